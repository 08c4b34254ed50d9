# The message ids that a stream has seen; see message_ids.pyx.

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct Stored:
    int64_t time_ns
    uint64_t seq


cdef class MessageIds:
    # The number of each id, counted from the first ever added, and the ids in that order.
    cdef dict numbers
    cdef object order
    # When their messages were stored, and their sequences: a ring as long as `order`.
    cdef Stored* ring
    cdef size_t room
    cdef size_t start
    cdef size_t count
    # The number of the oldest in the ring.
    cdef uint64_t first_number
    cdef public int64_t window_ns
    # The ids of all stored messages within the window are known.
    cdef public bint is_ready
    # The id of the message stored last that had one.
    cdef bytes last_id
    cdef uint64_t last_id_seq

    cpdef uint64_t find(self, bytes message_id, int64_t now_ns) except? 0xFFFFFFFFFFFFFFFF
    cpdef int remember(self, bytes message_id, uint64_t seq, int64_t time_ns) except -1
    cpdef bint prune(self, int64_t now_ns, uint32_t count_max=*) except -1
    cpdef bytes last(self, uint64_t last_seq)
    cdef Stored* _at(self, size_t place) noexcept
    cdef int _grow(self) except -1
