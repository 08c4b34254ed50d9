# Sorted disjoint ranges in chunked leaves; see range_leaves.pyx.

from libc.stdint cimport uint32_t, uint64_t


cdef struct Range:
    uint64_t first
    uint64_t last


cdef struct Leaf:
    uint64_t first      # ranges[0].first: kept here so that a search reads one array only
    uint64_t members    # sequences within, modulo 2**64
    Range* ranges
    uint32_t count
    uint32_t room


cdef struct Cursor:     # the place of a range; `leaf` equal to `leaf_count` is the end
    size_t leaf
    uint32_t index


cdef class RangeLeaves:
    cdef Leaf* leaves
    cdef size_t leaf_count
    cdef size_t leaf_room
    cdef readonly size_t range_count
    cdef uint64_t members    # modulo 2**64: zero also stands for the set of all sequences

    cdef bint has(self, uint64_t seq) noexcept nogil
    cdef int put_range(self, uint64_t first, uint64_t last) except -1
    cdef int drop_range(self, uint64_t first, uint64_t last) except -1
    cdef Cursor find(self, uint64_t seq) noexcept nogil
    cdef Cursor following(self, Cursor at) noexcept nogil
    cdef Range* range_at(self, Cursor at) noexcept nogil
    cdef void _set_first(self, Cursor at, uint64_t first) noexcept nogil
    cdef void _set_last(self, Cursor at, uint64_t last) noexcept nogil
    cdef int _insert(self, Cursor at, uint64_t first, uint64_t last) except -1
    cdef Cursor _make_room(self, Cursor at) except *
    cdef int _open_leaf(self, size_t place, uint32_t room) except -1
    cdef int _grow_leaf(self, Leaf* leaf, uint32_t room) except -1
    cdef int _split_leaf(self, size_t place) except -1
    cdef int append(self, uint64_t first, uint64_t last, size_t more) except -1
    cdef int _open_hole(self, Cursor at, uint64_t first, uint64_t last) except -1
    cdef void _erase(self, Cursor start, Cursor stop) noexcept nogil
    cdef void _erase_within(self, size_t place, uint32_t start, uint32_t stop) noexcept nogil
    cdef void _close_leaves(self, size_t start, size_t stop) noexcept nogil
    cdef void _settle(self, size_t place) noexcept nogil
    cdef bint _join_leaves(self, size_t place) noexcept nogil
    cdef void release(self) noexcept
    cdef object total(self)
