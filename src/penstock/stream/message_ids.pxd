# The message ids that a stream has seen; see message_ids.pyx.

from libc.stdint cimport int64_t, uint64_t


cdef class MessageIds:
    # The sequence of each id, and the ids in the order in which they came.
    cdef dict seqs
    cdef object order
    # When they came: a ring as long as `order`.
    cdef int64_t* times
    cdef size_t room
    cdef size_t start
    cdef size_t count
    cdef public int64_t window_ns
    # What was stored before is known.
    cdef public bint is_ready
    # The id of the message stored last that had one.
    cdef bytes last_id
    cdef uint64_t last_id_seq

    cpdef uint64_t find(self, bytes message_id, int64_t now_ns) except? 0xFFFFFFFFFFFFFFFF
    cpdef int remember(self, bytes message_id, uint64_t seq, int64_t time_ns) except -1
    cpdef int prune(self, int64_t now_ns) except -1
    cdef int _grow(self) except -1
