# What a stream publishes once sequences are durable; see ack_queue.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.routing.hub cimport Hub
from penstock.routing.sublist cimport Sublist


cdef class AckQueue:
    # Messages that wait for sequences, packed one behind another.
    cdef uint8_t* data
    cdef size_t start
    cdef size_t end
    cdef size_t room
    cdef readonly size_t count

    cdef uint8_t* add(
        self, uint64_t seq, const uint8_t* subject, size_t subject_size, size_t headers_size,
        size_t body_size, bint is_copy=*,
    ) except NULL
    cdef int put(self, uint64_t seq, bytes subject, bytes headers, bytes body) except -1
    cdef int take_over(self, AckQueue other) except -1
    cdef int send(self, uint64_t durable_seq, Hub hub, Sublist sublist) except -1
    cdef int refuse(self, bytes body, Hub hub, Sublist sublist) except -1
    cdef int shrink(self) except -1
    cdef uint8_t* _reserve(self, size_t more) except NULL


cdef class CopyText:
    # What the copies of a stream's messages say of it.
    cdef bytes stream
    # Of what every copy has.
    cdef size_t names_size
    # The time that was written last, and its text.
    cdef int64_t time_ns
    cdef bytes time_text

    cdef int put(
        self, AckQueue queue, uint64_t seq, int64_t time_ns, uint64_t last_seq,
        const uint8_t* target, size_t target_size, const uint8_t* subject, size_t subject_size,
        const uint8_t* headers, size_t headers_size, const uint8_t* body, size_t body_size,
        bint is_empty,
    ) except -1
