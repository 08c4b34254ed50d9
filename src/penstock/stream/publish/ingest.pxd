# The compiled half of a stream's publish path; see ingest.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.routing.hub cimport Hub
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription
from penstock.store.log.fast_append cimport Appender
from penstock.stream.publish.message_ids cimport MessageIds


cdef class AckQueue:
    # Acknowledgements that wait for their sequences, packed one behind another.
    cdef uint8_t* data
    cdef size_t start
    cdef size_t end
    cdef size_t room
    cdef readonly size_t count

    cdef uint8_t* reserve(self, size_t more) except NULL
    cdef int put(self, uint64_t seq, bytes reply, bytes headers, bytes body) except -1


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
    cdef AckQueue waiting
    cdef bint is_batch_open
    # The current message was stored before, and its publisher has been answered.
    cdef bint is_answered
    cdef readonly uint64_t durable_seq
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
    cdef uint64_t _put(self, const Frame* frame) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t _put_once(
        self, const Frame* frame, bytes message_id
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef int _hold_plain(self, uint64_t seq, const Frame* frame) except -1
    cdef bint _put_member(self, const Frame* frame) except -1
    cdef int _open_batch(self) except -1
