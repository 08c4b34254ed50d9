# Subjects by name, packed; see subject_table.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef struct Subject:
    # Sequence of the newest live message, or 0 where it must be looked for.
    uint64_t last_seq
    # Sequence of a message, perhaps gone, before which no live one lies; 0 where none is known.
    uint64_t first_seq
    uint64_t text_at
    uint32_t text_size
    uint32_t hash
    # Live messages. A subject without any stays as a ghost until `drop_ghosts`.
    uint32_t count
    # No live message lies in an earlier block; the true first may be later.
    uint32_t first_block
    # The newest block that was given a message of it; the newest live one may be earlier.
    uint32_t last_block
    # Its number in the dictionary of `last_block`, while that block is being written.
    uint32_t local


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
    # The first `ordered` items by name; those added since are not in it.
    cdef uint32_t* order
    cdef uint32_t ordered

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
    cdef uint32_t _first_with_prefix(self, const uint8_t* prefix, size_t size) noexcept nogil
    cdef bint _has_prefix(self, uint32_t item, const uint8_t* prefix, size_t size) noexcept nogil
    cpdef bytes matching(self, object subject_filter)


cdef int compare_names(
    const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size
) noexcept nogil
