# The quick way in for plain messages; see fast_append.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.store.log.block cimport Block
from penstock.store.log.ledger cimport Ledger


cdef class Appender:
    cdef object log
    cdef object health
    cdef object times
    cdef object durability
    cdef object lock
    cdef Ledger ledger
    cdef Block block
    cdef int64_t messages_max
    cdef int64_t bytes_max
    cdef int64_t body_bytes_max
    cdef int64_t keep_per_subject
    cdef uint64_t block_bytes_max
    # Nothing about the stream's configuration wants a closer look at each message.
    cdef bint is_plain
    cdef int64_t stamp_ns

    cdef uint64_t put(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size,
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t put_placed(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, uint64_t seq,
        int64_t time_ns,
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef int _append(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, uint64_t seq,
        int64_t time_ns,
    ) except -1
