# From records to receivers; see delivery.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.routing.hub cimport Hub
from penstock.routing.sublist cimport Frame, Matches, Sublist
from penstock.store.log.fast_scan cimport Scanner, Taken


cdef class MessageSender:
    cdef Hub hub
    cdef Sublist sublist
    # What every reply subject begins with, and room for the rest.
    cdef uint8_t* reply
    cdef size_t reply_start

    # Of the last run: the next sequence to look at, the last message, how many, and their bytes.
    cdef readonly uint64_t cursor
    cdef readonly uint64_t last_seq
    cdef readonly int64_t sent
    cdef readonly int64_t sent_bytes

    cdef void _begin(self, Frame* frame) noexcept
    cdef Taken _next(self, Scanner scanner, list chosen, uint64_t until) except *
    cdef bint _give(
        self, Matches found, const Frame* frame, bytes target, list chosen
    ) except -1
    cdef size_t _write_reply(
        self, uint64_t deliveries, uint64_t stream_seq, uint64_t consumer_seq, int64_t time_ns,
        uint64_t pending,
    ) noexcept
