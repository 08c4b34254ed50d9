# Reply subjects that are remembered for a while; see replies.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef struct Reply:
    # The key, and behind it the value; NULL where the entry is free.
    uint8_t* text
    uint32_t key_size
    uint32_t value_size
    uint64_t hash
    # When it was noted or used last.
    int64_t time_ns
    # For the owner's use.
    int64_t count
    # Other entries by their place: the next in its bucket, and those before and behind it in time.
    int32_t chained
    int32_t older
    int32_t newer


cdef class Replies:
    # Entries by their place; a place stays the entry's while it is there.
    cdef Reply* entries
    cdef int32_t* buckets
    cdef int32_t room
    cdef readonly int32_t count
    cdef int32_t free_first
    cdef readonly int32_t oldest
    cdef int32_t newest

    cdef int32_t find(self, const uint8_t* key, size_t size) noexcept nogil
    cdef int32_t add(
        self, const uint8_t* key, size_t key_size, const uint8_t* value, size_t value_size,
        int64_t now_ns
    ) except -1
    cdef void touch(self, int32_t place, int64_t now_ns) noexcept nogil
    cdef void remove(self, int32_t place) noexcept nogil
    cdef int _grow(self) except -1
    cdef void _link(self, int32_t place) noexcept nogil
    cdef void _unlink(self, int32_t place) noexcept nogil
    cdef void _unchain(self, int32_t place) noexcept nogil
