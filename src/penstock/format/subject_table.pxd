# Subjects by name, packed; see subject_table.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.subjects.order cimport Names, Subject, SubjectOrder, compare_names


cdef class SubjectTable:
    cdef Subject* items
    cdef readonly uint32_t used
    cdef uint32_t room
    # Subjects that have live messages.
    cdef readonly uint32_t live
    cdef uint32_t* slots
    cdef uint32_t mask
    cdef uint8_t* text
    cdef uint64_t text_used
    cdef uint64_t text_room
    cdef SubjectOrder order

    cdef int64_t find(self, const uint8_t* text, size_t size) noexcept nogil
    cdef int64_t intern(self, const uint8_t* text, size_t size) except -1 nogil
    cdef void count_up(
        self, uint32_t item, uint32_t block, uint64_t seq, uint32_t more
    ) noexcept nogil
    cdef void count_down(self, uint32_t item, uint32_t fewer) noexcept nogil
    cdef int _grow_items(self) except -1 nogil
    cdef int _grow_slots(self) except -1 nogil
    cdef int _grow_text(self, size_t more) except -1 nogil
    cdef int _sort(self) except -1
    cdef Names names(self) noexcept nogil
    cdef bint has_prefix(self, uint32_t item, const uint8_t* prefix, size_t size) noexcept nogil
    cpdef bytes matching(self, object subject_filter)
