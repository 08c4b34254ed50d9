"""XXH64, the checksum of every file of the store.

Written out here because the records are hashed one by one inside compiled loops, where a Python
call each would cost more than the hash. Pure; any thread, without the interpreter lock.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define XP1 0x9E3779B185EBCA87ULL
    #define XP2 0xC2B2AE3D27D4EB4FULL
    #define XP3 0x165667B19E3779F9ULL
    #define XP4 0x85EBCA77C2B2AE63ULL
    #define XP5 0x27D4EB2F165667C5ULL
    static inline uint64_t penstock_load64(const uint8_t* p) {
        uint64_t v; memcpy(&v, p, 8); return v;
    }
    static inline uint32_t penstock_load32(const uint8_t* p) {
        uint32_t v; memcpy(&v, p, 4); return v;
    }
    static inline uint64_t penstock_turn(uint64_t v, int by) {
        return (v << by) | (v >> (64 - by));
    }
    static inline uint64_t penstock_mix(uint64_t lane, uint64_t word) {
        return penstock_turn(lane + word * XP2, 31) * XP1;
    }
    static inline uint64_t penstock_fold(uint64_t hash, uint64_t lane) {
        return (hash ^ penstock_mix(0, lane)) * XP1 + XP4;
    }
    """
    const uint64_t P1 "XP1"
    const uint64_t P2 "XP2"
    const uint64_t P3 "XP3"
    const uint64_t P4 "XP4"
    const uint64_t P5 "XP5"
    uint64_t load64 "penstock_load64"(const uint8_t* p) noexcept nogil
    uint32_t load32 "penstock_load32"(const uint8_t* p) noexcept nogil
    uint64_t turn "penstock_turn"(uint64_t value, int by) noexcept nogil
    uint64_t mix "penstock_mix"(uint64_t lane, uint64_t word) noexcept nogil
    uint64_t fold "penstock_fold"(uint64_t hash, uint64_t lane) noexcept nogil


cdef uint64_t xxh64_raw(const uint8_t* data, size_t size, uint64_t seed) noexcept nogil:
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef uint64_t a, b, c, d, result
    if size >= 32:
        a = seed + P1 + P2
        b = seed + P2
        c = seed
        d = seed - P1
        while p + 32 <= end:
            a = mix(a, load64(p))
            b = mix(b, load64(p + 8))
            c = mix(c, load64(p + 16))
            d = mix(d, load64(p + 24))
            p += 32
        result = turn(a, 1) + turn(b, 7) + turn(c, 12) + turn(d, 18)
        result = fold(fold(fold(fold(result, a), b), c), d)
    else:
        result = seed + P5
    result += size
    while p + 8 <= end:
        result = turn(result ^ mix(0, load64(p)), 27) * P1 + P4
        p += 8
    if p + 4 <= end:
        result = turn(result ^ (<uint64_t>load32(p) * P1), 23) * P2 + P3
        p += 4
    while p < end:
        result = turn(result ^ (p[0] * P5), 11) * P1
        p += 1
    result = (result ^ (result >> 33)) * P2
    result = (result ^ (result >> 29)) * P3
    return result ^ (result >> 32)


def xxh64(const uint8_t[::1] data not None, uint64_t seed=0):
    """Hash a contiguous buffer."""
    if data.shape[0] == 0:
        return xxh64_raw(NULL, 0, seed)
    return xxh64_raw(&data[0], data.shape[0], seed)
