# Little-endian integers and varints in raw memory, for the compiled modules of this package.
#
# `get_*` and `put_*` do not check bounds: the caller has. `read_uvarint` checks: it returns the
# number of bytes used, or 0 when the varint runs past `end` or is longer than ten bytes.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline uint64_t get_u64(const uint8_t* p) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, p, 8)
    return value


cdef inline uint32_t get_u32(const uint8_t* p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return value


cdef inline uint16_t get_u16(const uint8_t* p) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, p, 2)
    return value


cdef inline void put_u64(uint8_t* p, uint64_t value) noexcept nogil:
    memcpy(p, &value, 8)


cdef inline void put_u32(uint8_t* p, uint32_t value) noexcept nogil:
    memcpy(p, &value, 4)


cdef inline int put_uvarint(uint8_t* p, uint64_t value) noexcept nogil:
    # Ten bytes at the most; returns how many were used.
    cdef int used = 0
    while value >= 0x80:
        p[used] = <uint8_t>(value | 0x80)
        value >>= 7
        used += 1
    p[used] = <uint8_t>value
    return used + 1


cdef inline int uvarint_size(uint64_t value) noexcept nogil:
    cdef int used = 1
    while value >= 0x80:
        value >>= 7
        used += 1
    return used


cdef inline int read_uvarint(const uint8_t* p, const uint8_t* end, uint64_t* value) noexcept nogil:
    cdef int used = 0
    cdef uint64_t result = 0
    while p + used < end and used < 10:
        result |= (<uint64_t>(p[used] & 0x7F)) << (7 * used)
        used += 1
        if not (p[used - 1] & 0x80):
            if used == 10 and p[9] > 1:
                return 0
            value[0] = result
            return used
    return 0
