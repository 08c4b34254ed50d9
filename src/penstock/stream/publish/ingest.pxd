# The compiled half of a stream's publish path; see ingest.pyx.

from libc.stdint cimport int64_t, uint64_t

from penstock.routing.hub cimport Hub
from penstock.routing.sublist cimport Frame, Receiver, Sublist
from penstock.store.log.fast_append cimport Appender
from penstock.stream.interest cimport Interest
from penstock.stream.publish.ack_queue cimport AckQueue, CopyText
from penstock.stream.publish.message_ids cimport MessageIds
from penstock.stream.publish.rules cimport Message, Rules


cdef class Members:
    # The members of an atomic batch: plain ones as (subject, headers, body), others as they are.
    cdef readonly list entries
    cdef readonly int64_t bytes
    cdef object room
    cdef int64_t count_max
    # Members were added since `AtomicBatches.touch`.
    cdef public bint is_touched


cdef class Ingest(Receiver):
    cdef Hub hub
    cdef Sublist sublist
    cdef Appender appender
    cdef object stream
    cdef bytes ack_start
    cdef MessageIds message_ids
    cdef Rules rules
    cdef Interest interest
    cdef CopyText copy_text
    cdef AckQueue waiting
    cdef bint is_batch_open
    # When the first of the messages of this buffer expires that have a time for it; 0 for none.
    cdef int64_t expires_ns
    # The last refusal, and what it was for.
    cdef bytes refusal
    cdef int refused_for
    cdef uint64_t refused_seq
    cdef str refused_text
    cdef readonly uint64_t durable_seq
    # When the last message was skipped because no consumer wants it; 0 for never.
    cdef public int64_t last_skip_ns
    # Bytes that may be stored before the quota is asked again.
    cdef public int64_t bytes_left
    # Every message is judged in Python.
    cdef public bint careful
    # No publisher is answered (`no_ack`).
    cdef public bint silent
    # The atomic batches that may have plain members, by their ids.
    cdef readonly dict open_batches
    cdef bint has_touched

    cpdef hold(self, uint64_t seq, bytes reply, bytes body, bytes headers=*)
    cpdef bytes duplicate_ack(self, uint64_t seq)
    cdef bint _take(self, const Frame* frame) except -1
    cdef bytes _refusal(self, int reason)
    cdef bint _store(self, Message* message, const Frame* frame) except -1
    cdef bint _skip(self, const Message* message, const Frame* frame) except -1
    cdef int _follow_up(
        self, const Message* message, uint64_t seq, int64_t expires_ns
    ) except -1
    cdef int _acknowledge(self, uint64_t seq, const Frame* frame) except -1
    cdef bint _put_member(self, const Frame* frame, const Message* message) except -1
    cdef int _open_batch(self) except -1
