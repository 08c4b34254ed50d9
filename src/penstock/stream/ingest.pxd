# The compiled half of a stream's publish path; see ingest.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.routing.link cimport Hub
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription
from penstock.store.intake cimport Intake


cdef class AckQueue:
    # Acknowledgements that wait for their sequences, packed one behind another.
    cdef uint8_t* data
    cdef size_t start
    cdef size_t end
    cdef size_t room
    cdef readonly size_t count

    cdef uint8_t* reserve(self, size_t more) except NULL
    cdef int put(
        self, uint64_t seq, const uint8_t* reply, size_t reply_size, const uint8_t* body,
        size_t body_size,
    ) except -1


cdef class Ingest(Receiver):
    cdef Hub hub
    cdef Sublist sublist
    cdef Intake intake
    cdef object stream
    cdef bytes ack_start
    cdef bytes ack_end
    cdef AckQueue waiting
    cdef bint is_batch_open
    cdef readonly uint64_t durable_seq
    # Every message is looked at by the Python half.
    cdef public bint careful
    # Nobody is answered.
    cdef public bint silent

    cdef int _hold_plain(self, uint64_t seq, const Frame* frame) except -1
    cdef int _open_batch(self) except -1
