# XXH64 for the compiled modules of the package; see hashing.pyx.
#
# Written in C and inlined into each of them: records are hashed one by one, most of them shorter
# than a few hundred bytes, where a call through a pointer is a good part of the cost.

from libc.stdint cimport uint8_t, uint64_t

cdef extern from *:
    """
    #ifndef PENSTOCK_XXH64
    #define PENSTOCK_XXH64
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define PX1 0x9E3779B185EBCA87ULL
    #define PX2 0xC2B2AE3D27D4EB4FULL
    #define PX3 0x165667B19E3779F9ULL
    #define PX4 0x85EBCA77C2B2AE63ULL
    #define PX5 0x27D4EB2F165667C5ULL

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
        return penstock_turn(lane + word * PX2, 31) * PX1;
    }
    static inline uint64_t penstock_fold(uint64_t hash, uint64_t lane) {
        return (hash ^ penstock_mix(0, lane)) * PX1 + PX4;
    }
    static inline uint64_t penstock_xxh64(const uint8_t* p, size_t size, uint64_t seed) {
        const uint8_t* end = p + size;
        uint64_t hash;
        if (size >= 32) {
            uint64_t a = seed + PX1 + PX2, b = seed + PX2, c = seed, d = seed - PX1;
            const uint8_t* last = end - 32;
            do {
                a = penstock_mix(a, penstock_load64(p));
                b = penstock_mix(b, penstock_load64(p + 8));
                c = penstock_mix(c, penstock_load64(p + 16));
                d = penstock_mix(d, penstock_load64(p + 24));
                p += 32;
            } while (p <= last);
            hash = penstock_turn(a, 1) + penstock_turn(b, 7) + penstock_turn(c, 12)
                 + penstock_turn(d, 18);
            hash = penstock_fold(hash, a);
            hash = penstock_fold(hash, b);
            hash = penstock_fold(hash, c);
            hash = penstock_fold(hash, d);
        } else {
            hash = seed + PX5;
        }
        hash += size;
        while (end - p >= 8) {
            hash = penstock_turn(hash ^ penstock_mix(0, penstock_load64(p)), 27) * PX1 + PX4;
            p += 8;
        }
        if (end - p >= 4) {
            hash = penstock_turn(hash ^ ((uint64_t)penstock_load32(p) * PX1), 23) * PX2 + PX3;
            p += 4;
        }
        while (p < end) {
            hash = penstock_turn(hash ^ (*p * PX5), 11) * PX1;
            p++;
        }
        hash = (hash ^ (hash >> 33)) * PX2;
        hash = (hash ^ (hash >> 29)) * PX3;
        return hash ^ (hash >> 32);
    }
    #endif
    """
    uint64_t xxh64_raw "penstock_xxh64"(
        const uint8_t* data, size_t size, uint64_t seed
    ) noexcept nogil
