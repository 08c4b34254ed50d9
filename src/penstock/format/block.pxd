# A block's header, its summary in a checkpoint and its file as scanned; see block.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef class BlockHeader:
    cdef readonly uint32_t number
    cdef readonly uint32_t generation
    cdef readonly uint64_t salt
    cdef readonly uint64_t base_seq
    cdef readonly int64_t created_ns
    cdef readonly uint64_t previous_checksum
    cdef readonly uint8_t cipher
    cdef uint8_t wrapped[60]


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


cdef class ScannedBlock:
    cdef readonly uint32_t number
    cdef readonly str path
    cdef readonly uint64_t size
    # The header's bytes as they were found.
    cdef readonly bytes image
    cdef public BlockHeader header
    # What is the matter with the header; it was mended if there is one all the same.
    cdef public str reason
    cdef public bint is_foreign
    # The header is that of records which may all be of one commit.
    cdef public bint has_one_commit
    # What a block without a header held, where something tells.
    cdef public uint64_t first_seq
    cdef public uint64_t last_seq


cdef uint64_t seed_of(uint64_t salt, uint32_t number, uint32_t generation) noexcept
cpdef BlockHeader decode_block_header(bytes data, str path)
