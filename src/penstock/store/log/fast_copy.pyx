"""Copying plain messages from one store into another, without a Python object each.

A message is plain that is not encrypted, is not damaged, and has no header that a stream must know
of: none whose name begins with `Nats-`. The first that is not ends the run, and so does one that
the other store has to look at closely; both are left to Python.

Invariant: what was copied is as the store's own `store_raw` or `store` would have it,
limits included; it is durable when the store says so.

Thread: the one that owns both streams. The lock of the store that is read is held for a whole run,
that of the other one for each message.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.format.record cimport Record
from penstock.protocol.lines cimport put_number
from penstock.store.log.fast_append cimport Appender
from penstock.store.log.fast_scan cimport TAKEN_WHOLE, Scanner
from penstock.subjects cimport SubjectFilter

from penstock.limits import BLOCK_BYTES_DEFAULT, MESSAGE_HEADERS_BYTES_MAX

cdef extern from "string.h" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef const char* OURS = b"\nNats-"
cdef const char* FIRST_LINE = b"NATS/1.0\r\n"
cdef size_t HEADERS_MAX = MESSAGE_HEADERS_BYTES_MAX
# Larger ones have bounds of their own.
cdef size_t PAYLOAD_MAX = BLOCK_BYTES_DEFAULT

cdef enum:
    OURS_SIZE = 6
    FIRST_LINE_SIZE = 10
    NUMBER_SIZE_MAX = 20


cdef class Copier:
    """The quick way from one store into another; see the module."""

    cdef Scanner origin
    cdef Appender target
    cdef uint8_t* headers
    cdef size_t headers_room

    def __init__(self, Scanner origin not None, Appender target not None):
        self.origin = origin
        self.target = target

    def __dealloc__(self):
        free(self.headers)

    def copy_placed(self, SubjectFilter subjects, uint64_t seq, uint64_t until, *,
                    uint32_t count_max, uint64_t bytes_max):
        """Copy messages with sequences and times, from `seq` on; give the last sequence, or 0."""
        cdef uint64_t last_seq = 0
        self.target.begin_placed(seq)
        self.origin.begin(subjects, seq, until)
        try:
            while count_max and bytes_max and self._next():
                if not self.target.put_placed(
                    self.origin.record.subject, self.origin.record.subject_size,
                    self.origin.record.headers, self.origin.record.headers_size,
                    self.origin.record.payload, self.origin.record.payload_size,
                    self.origin.seq, self.origin.record.timestamp_ns,
                ):
                    break
                last_seq = self.origin.seq
                count_max -= 1
                bytes_max -= min(bytes_max, <uint64_t>self.origin.record.payload_size)
        finally:
            self.origin.end()
            self.target.end()
        return last_seq

    def copy_marked(self, SubjectFilter subjects, uint64_t seq, uint64_t until,
                    bytes before not None, bytes between not None, bytes after not None, *,
                    uint32_t count_max, uint64_t bytes_max):
        """Copy messages under the next sequences, each with a header more; give the last, or 0.

        The header is `before`, the sequence in the origin, `between`, the subject, and `after`.
        """
        cdef uint64_t last_seq = 0
        cdef size_t headers_size
        self.target.begin()
        self.origin.begin(subjects, seq, until)
        try:
            while count_max and bytes_max and self._next():
                headers_size = self._mark(&self.origin.record, before, between, after)
                if headers_size > HEADERS_MAX or not self.target.put(
                    self.origin.record.subject, self.origin.record.subject_size,
                    self.headers, headers_size,
                    self.origin.record.payload, self.origin.record.payload_size,
                ):
                    break
                last_seq = self.origin.seq
                count_max -= 1
                bytes_max -= min(bytes_max, <uint64_t>self.origin.record.payload_size)
        finally:
            self.origin.end()
            self.target.end()
        return last_seq

    cdef bint _next(self) except -1:
        # Go to the next message; False where there is none, or it is not plain.
        if self.origin.next() != TAKEN_WHOLE:
            return False
        cdef Record* record = &self.origin.record
        if record.expires_ns or record.payload_size > PAYLOAD_MAX:
            return False
        if record.headers_size == 0:
            return True
        return record.headers_size <= HEADERS_MAX and memmem(
            record.headers, record.headers_size, OURS, OURS_SIZE
        ) == NULL

    cdef size_t _mark(
        self, const Record* record, bytes before, bytes between, bytes after
    ) except 0:
        # Write the headers with the mark behind the others; give their size.
        cdef size_t kept = record.headers_size - 2 if record.headers_size > 2 else 0
        cdef size_t most = (
            (kept if kept else FIRST_LINE_SIZE) + len(before) + NUMBER_SIZE_MAX + len(between)
            + record.subject_size + len(after)
        )
        cdef uint8_t* out
        if most > self.headers_room:
            out = <uint8_t*>realloc(self.headers, 2 * most)
            if out == NULL:
                raise MemoryError
            self.headers = out
            self.headers_room = 2 * most
        out = self.headers
        if kept:
            out = _put(out, record.headers, kept)
        else:
            out = _put(out, <const uint8_t*>FIRST_LINE, FIRST_LINE_SIZE)
        out = _put_bytes(out, before)
        out += put_number(out, self.origin.seq)
        out = _put_bytes(out, between)
        out = _put(out, record.subject, record.subject_size)
        out = _put_bytes(out, after)
        return out - self.headers


cdef inline uint8_t* _put(uint8_t* out, const uint8_t* data, size_t size) noexcept nogil:
    memcpy(out, data, size)
    return out + size


cdef inline uint8_t* _put_bytes(uint8_t* out, bytes data) noexcept:
    return _put(out, <const uint8_t*>PyBytes_AS_STRING(data), len(data))
