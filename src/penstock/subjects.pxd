# Subjects, patterns and filters; see subjects.pyx.

from libc.stdint cimport uint8_t


cdef enum After:
    # What a pattern has after a run of literal bytes.
    END
    ONE_TOKEN
    ALL_TOKENS


cdef struct Run:
    # Literal bytes between two wildcards of a pattern, dots included; may be empty.
    const uint8_t* text
    size_t size
    After after


cdef bint match_raw(
    const uint8_t* pattern, size_t pattern_size, const uint8_t* subject, size_t subject_size,
) noexcept nogil
cdef bint is_valid_raw(const uint8_t* subject, size_t size) noexcept nogil
cdef bint is_literal_raw(const uint8_t* subject, size_t size) noexcept nogil


cdef class SubjectFilter:
    cdef readonly tuple patterns
    cdef readonly tuple literals
    cdef readonly tuple prefixes
    cdef readonly bint everything
    # The runs of all patterns, one pattern after another, each ended by END or ALL_TOKENS. They
    # point into the bytes that `patterns` keeps alive.
    cdef Run* runs
    cdef size_t run_count

    cdef bint matches_raw(self, const uint8_t* subject, size_t size) noexcept nogil
