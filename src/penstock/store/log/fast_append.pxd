# The quick way in for messages; see fast_append.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.store.log.ledger cimport Ledger
from penstock.store.log.writer cimport LogWriter


cdef class Appender:
    cdef object health
    cdef object times
    cdef object durability
    cdef object lock
    cdef Ledger ledger
    cdef LogWriter writer
    # Of headers and payload together; 0 for no limit.
    cdef int64_t body_bytes_max
    cdef int64_t stamp_ns

    cdef uint64_t put(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size,
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t put_with(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, int64_t expires_ns,
        uint32_t keep,
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t put_placed(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, uint64_t seq,
        int64_t time_ns,
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t _put(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, int64_t expires_ns,
        uint32_t keep, uint64_t seq, int64_t time_ns,
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t skip(self) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t last_seq_of(
        self, const uint8_t* subject, size_t size
    ) except? 0xFFFFFFFFFFFFFFFF
