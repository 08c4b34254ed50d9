# Which messages of a stream its consumers still need, and how many; see needs.pyx.

from libc.stdint cimport int64_t, uint64_t

from penstock.consumer.pending cimport Pending
from penstock.store.store_state cimport StoreState
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


cdef class PendingCount:
    cdef object store
    cdef readonly SubjectFilter subjects
    cdef uint64_t cursor
    cdef int64_t total
    # The last sequence that was counted; 0 if the count is not known.
    cdef uint64_t up_to
    cdef uint64_t deleted

    cdef int64_t count_in(self, StoreState state, uint64_t cursor) except? -1


cdef class StreamNeeds(Interest):
    # Of the stream's consumers, by name.
    cdef readonly dict positions
    # Streams that read from this one, as the stream lists them.
    cdef list fed_streams
    cdef object load_subject

    cdef bint runs_python(self) noexcept
    cdef bint is_needed(self, uint64_t stream_seq, bytes subject) except -1
