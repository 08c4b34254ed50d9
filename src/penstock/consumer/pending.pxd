# What was delivered and is not acknowledged; see pending.pyx.

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct Delivery:
    uint64_t stream_seq
    # Of its first delivery; 0 if it is acknowledged and its entry not yet reused.
    uint64_t consumer_seq
    # When it was delivered last, moved by +WPI and delayed NAKs.
    int64_t time_ns
    uint32_t marks
    uint32_t zero


cdef class Pending:
    cdef Delivery* items
    cdef size_t start
    cdef size_t end
    cdef size_t room
    cdef readonly size_t count
    # No item before this one waits for its first deadline.
    cdef size_t fresh
    # (due_ns, stream_seq) of items with another deadline than the first; some are out of date.
    cdef list moved
    # The waits after the first, second, ... delivery; the last one is for all further ones.
    cdef readonly tuple waits_ns
    cdef int64_t first_wait_ns
    # Deliveries after the first, by stream sequence; also of messages that were given up.
    cdef readonly dict redelivered
    # What is delivered is done: no acknowledgement is expected.
    cdef public bint expects_none
    # The last delivery, and the ack floor: everything up to it is acknowledged.
    cdef public uint64_t delivered_consumer_seq
    cdef public uint64_t delivered_stream_seq
    cdef public uint64_t floor_consumer_seq
    cdef public uint64_t floor_stream_seq

    cdef int note(self, uint64_t stream_seq, uint64_t consumer_seq, int64_t now_ns) except -1
    cdef bint acknowledge(self, uint64_t stream_seq) except -1
    cdef void _move_floor(self, uint64_t consumer_seq, uint64_t stream_seq) noexcept
    cdef int add(self, uint64_t stream_seq, uint64_t consumer_seq, int64_t now_ns) except -1
    cdef Delivery* find(self, uint64_t stream_seq) noexcept
    cdef uint64_t drop(self, uint64_t stream_seq) noexcept
    cdef int _make_room(self) except -1
    cdef int64_t _due(self, const Delivery* item) except? -1
    cdef int _schedule(self, Delivery* item) except -1
    cdef void _pass_gone(self) noexcept
