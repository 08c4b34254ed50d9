# Which mapping a subject has, and where it leads; see applied_mappings.pyx.

from libc.stdint cimport int32_t, uint8_t, uint64_t

from penstock.protocol.subject_cache cimport SubjectCache
from penstock.routing.subject_transform cimport SubjectTransform


cdef class Chance:
    cdef uint64_t state

    cdef uint64_t below(self, uint64_t bound) noexcept


cdef class Choices:
    cdef SubjectTransform source
    # The transforms, and the sum of the weights up to each of them.
    cdef tuple transforms
    cdef uint8_t* ends
    cdef bint is_certain


cdef class AppliedMappings:
    cdef object random_below
    # The same where it is compiled; None otherwise.
    cdef Chance chance
    cdef list mappings
    # The place of the mapping of a subject; their number for none.
    cdef SubjectCache known

    # Return True for a subject that is mapped: the new one then lies in `text` until the next call,
    # and is empty where the message is to be lost.
    cdef bint apply(
        self, const uint8_t* subject, size_t size, const uint8_t** text, size_t* text_size
    ) except -1
    cdef int32_t _find(self, const uint8_t* subject, size_t size) except -1
