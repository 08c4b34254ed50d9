# One block as a checkpoint tells of it; see block_summary.pyx.

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class BlockSummary:
    cdef readonly uint32_t number
    cdef readonly uint32_t generation
    cdef readonly uint64_t base_seq
    cdef readonly uint64_t last_seq
    cdef readonly uint32_t count
    cdef readonly uint32_t live
    cdef readonly uint64_t bytes
    cdef readonly uint64_t live_bytes
    cdef readonly uint64_t live_disk_bytes
    cdef readonly int64_t first_time_ns
    cdef readonly int64_t last_time_ns
    cdef readonly uint32_t expiring
    cdef readonly object dead
