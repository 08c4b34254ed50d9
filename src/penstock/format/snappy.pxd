# Snappy's blocks; see snappy.pyx.

from libc.stdint cimport uint8_t

cdef size_t compressed_room(size_t size) noexcept nogil
cdef size_t compress_block(const uint8_t* data, size_t size, uint8_t* out) noexcept nogil
cdef bint decode_block(
    const uint8_t* p, const uint8_t* end, uint8_t* out, size_t out_size, bint repeats
) noexcept nogil
