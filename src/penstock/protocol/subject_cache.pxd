# What was found out about subjects, remembered; see subject_cache.pyx.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy


cdef inline bint same_text(const uint8_t* one, const uint8_t* other, size_t size) noexcept nogil:
    # As memcmp, without a call for the length of most subjects.
    cdef uint64_t a, b, c, d
    cdef uint32_t e, f, g, h
    if 8 <= size <= 16:
        memcpy(&a, one, 8)
        memcpy(&b, other, 8)
        memcpy(&c, one + size - 8, 8)
        memcpy(&d, other + size - 8, 8)
        return a == b and c == d
    if 4 <= size < 8:
        memcpy(&e, one, 4)
        memcpy(&f, other, 4)
        memcpy(&g, one + size - 4, 4)
        memcpy(&h, other + size - 4, 4)
        return e == f and g == h
    return memcmp(one, other, size) == 0


cdef inline uint64_t _mix(uint64_t value, uint64_t word) noexcept nogil:
    value = (value ^ word) * 0x2545F4914F6CDD1DULL
    return value ^ (value >> 29)


cdef inline uint64_t hash_subject(const uint8_t* text, size_t size) noexcept nogil:
    # Good enough for a table that tolerates collisions, and a few cycles for a short subject. The
    # last bytes are read with loads that overlap: a copy of a few bytes would cost more than all.
    cdef uint64_t value = 0x9E3779B97F4A7C15ULL ^ size
    cdef uint64_t word = 0
    cdef uint32_t first, last
    if size >= 8:
        while size > 8:
            memcpy(&word, text, 8)
            value = _mix(value, word)
            text += 8
            size -= 8
        memcpy(&word, text + size - 8, 8)
    elif size >= 4:
        memcpy(&first, text, 4)
        memcpy(&last, text + size - 4, 4)
        word = (<uint64_t>first << 32) | last
    elif size:
        word = (
            (<uint64_t>text[0] << 16) | (<uint64_t>text[size >> 1] << 8) | <uint64_t>text[size - 1]
        )
    value = _mix(value, word)
    return value ^ (value >> 17)


cdef enum:
    # Longer subjects are not remembered. A slot fills a line of the processor's cache.
    CACHED_SUBJECT_BYTES = 48
    # What `find` returns for a subject that is not remembered.
    UNKNOWN = -1


cdef struct CachedSubject:
    uint64_t hash
    # Of the subject; 0 in an empty slot, for an empty subject is not remembered either.
    uint32_t size
    int32_t answer
    uint8_t[CACHED_SUBJECT_BYTES] subject


cdef class SubjectCache:
    cdef uint64_t slot_count
    cdef CachedSubject* slots

    cdef int32_t find(self, const uint8_t* subject, size_t size) noexcept nogil
    cdef void remember(self, const uint8_t* subject, size_t size, int32_t answer) noexcept nogil
