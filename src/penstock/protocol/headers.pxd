# Values in a block of headers; see headers.pyx.

from libc.stdint cimport uint8_t, uint32_t


cdef struct Value:
    const uint8_t* start
    size_t size


cdef enum:
    # The headers that mean something to a stream that a message is published to.
    MESSAGE_ID
    EXPECTED_STREAM
    EXPECTED_LAST_SEQ
    EXPECTED_SUBJECT_SEQ
    EXPECTED_SUBJECT
    EXPECTED_LAST_ID
    ROLLUP
    TTL
    INCREMENT
    COUNTER_SOURCES
    STREAM_SOURCE
    REQUEST_INFO
    REQUIRED_LEVEL
    BATCH_ID
    BATCH_SEQ
    BATCH_COMMIT
    # Any whose name begins with "Nats-Schedule"; it has no value here.
    SCHEDULE
    NAME_COUNT


cdef struct StreamHeaders:
    # A bit for each name that is there, and the values of those.
    uint32_t seen
    Value[NAME_COUNT] values


cdef inline uint32_t bit_of(int name) noexcept nogil:
    return <uint32_t>1 << name


cdef inline size_t size_in(const StreamHeaders* told, int name) noexcept nogil:
    # The size of a header's value; 0 if it is not there or empty, which mean the same to streams.
    return told.values[name].size if told.seen & bit_of(name) else 0


cdef inline bytes bytes_in(const StreamHeaders* told, int name):
    return told.values[name].start[:size_in(told, name)] if size_in(told, name) else b""


cdef bint is_plain_start(const uint8_t* headers, size_t size) noexcept nogil
cdef void read_stream_headers(
    const uint8_t* headers, size_t size, StreamHeaders* told
) noexcept nogil
