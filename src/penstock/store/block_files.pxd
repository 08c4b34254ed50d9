# The two files of one sealed block; see block_files.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.block_index cimport Entry


cdef class BlockFiles:
    cdef readonly str path
    cdef object block_file
    cdef object open_index
    cdef object index_file
    cdef int block_fd
    cdef int index_fd

    cdef bytes read(self, uint64_t offset, size_t size)
    cdef bytes read_at_hand(self, uint64_t offset, size_t size)
    cdef int read_entry(self, uint32_t ordinal, Entry* entry) except -1


cdef class StoredMessage:
    cdef readonly uint64_t seq
    cdef readonly int64_t timestamp_ns
    cdef readonly int64_t expires_ns
    cdef bytes raw
    cdef uint8_t flags
    cdef uint32_t subject_at
    cdef uint32_t subject_size
    cdef uint32_t headers_at
    cdef uint32_t headers_size
    cdef uint32_t payload_at
    cdef uint32_t payload_size
    cdef object unseal
    cdef tuple opened


cdef StoredMessage open_at_hand(
    bytes raw, uint64_t seq, uint64_t seed, uint64_t offset, object unseal
)
cdef StoredMessage open_record(
    bytes raw, uint64_t seq, uint64_t seed, uint64_t offset, str path, object unseal
)
