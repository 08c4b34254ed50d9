# The order of subjects by name; see order.pyx.

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


cdef struct Names:
    # The subjects and the text in which their names stand.
    const Subject* items
    const uint8_t* text


cdef class SubjectOrder:
    # The first `size` subjects, by name; those added since are not in it.
    cdef uint32_t* places
    cdef uint32_t size
    # Newcomers that are being sorted: `fresh_count` of them, in sorted runs of `width`.
    cdef uint32_t* fresh
    cdef uint32_t* spare
    cdef uint32_t* joined
    cdef uint32_t fresh_count
    cdef uint32_t width
    # Where sorting, merging or joining has come to.
    cdef uint32_t left, one, other

    cdef void clear(self) noexcept
    cdef bint step(self, const Names* names, uint32_t used, int64_t* budget) except -1
    cdef uint32_t lower_bound(
        self, const Names* names, const uint8_t* name, size_t size
    ) noexcept nogil
    cdef int _begin(self, uint32_t used) except -1
    cdef void _drop_fresh(self) noexcept
    cdef void _sort_runs(self, const Names* names, int64_t* budget) noexcept nogil
    cdef void _merge_runs(self, const Names* names, int64_t* budget) noexcept nogil
    cdef bint _join(self, const Names* names, int64_t* budget) except -1


cdef int compare_names(
    const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size
) noexcept nogil
