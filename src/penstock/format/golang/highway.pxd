# HighwayHash-64 in pieces; see highway.pyx.
#
# A `Highway` is a plain struct: `highway_start` sets it up from a 32-byte key, `highway_absorb`
# takes bytes in pieces of any length, `highway_finish` gives the digest and leaves it used up.
# Copying the struct after `highway_start` saves setting up the same key again.

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct Highway:
    uint64_t v0[4]
    uint64_t v1[4]
    uint64_t mul0[4]
    uint64_t mul1[4]
    uint8_t held[32]
    size_t held_size


cdef void highway_start(Highway* state, const uint8_t* key) noexcept nogil
cdef void highway_absorb(Highway* state, const uint8_t* data, size_t size) noexcept nogil
cdef uint64_t highway_finish(Highway* state) noexcept nogil
