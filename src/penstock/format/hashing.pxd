# XXH64 for the compiled modules of the package; see hashing.pyx.

from libc.stdint cimport uint8_t, uint64_t

cdef uint64_t xxh64_raw(const uint8_t* data, size_t size, uint64_t seed) noexcept nogil
