# The header of a block file; see block.pyx.

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


cdef uint64_t seed_of(uint64_t salt, uint32_t number, uint32_t generation) noexcept
cpdef BlockHeader decode_block_header(bytes data, str path)
