# Which messages of a stream its consumers still need; see needs.pyx.

from libc.stdint cimport uint64_t

from penstock.consumer.pending cimport Pending
from penstock.stream.interest cimport Interest
from penstock.subjects cimport SubjectFilter


cdef class Position:
    cdef Pending pending
    # The next sequence of the stream to look at.
    cdef public uint64_t cursor
    # Single messages to deliver before the one at the cursor, in descending order.
    cdef public list chosen
    # The messages that the consumer delivers; None for all.
    cdef public SubjectFilter subjects
    # Every message above the ack floor is needed, delivered or not.
    cdef public bint by_floor
    # Messages behind the cursor that wait for another of their key; None where keys do not count.
    cdef public object held

    cdef bint is_chosen(self, uint64_t stream_seq) except -1
    cdef bint needs_matching(self, uint64_t stream_seq) except -1


cdef class StreamNeeds(Interest):
    # Of the stream's consumers, by name.
    cdef readonly dict positions
    # Streams that read from this one, as the stream lists them.
    cdef list fed_streams
    cdef object load_subject

    cdef bint runs_python(self) noexcept
    cdef bint is_needed(self, uint64_t stream_seq, bytes subject) except -1
