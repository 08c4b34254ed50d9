# One record of a block: the parsed view of it in memory and its codec; see record.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    FLAG_DELETED = 0x01
    FLAG_SKIP = 0x02
    FLAG_ENVELOPED = 0x04
    FLAG_TOMBSTONE = 0x08
    FLAG_EXPIRES = 0x10
    # The first record of a commit: all before it in the block was on stable storage when it was
    # written.
    FLAG_COMMIT_START = 0x20
    FLAGS_KNOWN = 0x3F
    TRAILER_BYTES = 24
    # Flags, three one-byte lengths, the trailer: no record is shorter.
    RECORD_BYTES_MIN = 28


cdef struct Record:
    uint8_t flags
    const uint8_t* subject
    const uint8_t* headers
    const uint8_t* payload
    uint32_t subject_size
    uint32_t headers_size
    uint32_t payload_size
    # Bytes of the whole record, checksum included.
    uint32_t length
    uint64_t seq
    int64_t timestamp_ns
    # Zero where the record does not expire.
    int64_t expires_ns
    uint64_t checksum


cdef enum Parsed:
    PARSED_WHOLE = 1
    # The bytes at hand end before the record does.
    PARSED_SHORT = 0
    # No record can start like this.
    PARSED_BAD = -1

cdef Parsed parse(const uint8_t* start, size_t available, Record* record) noexcept nogil
cdef bint checksum_holds(const uint8_t* start, const Record* record, uint64_t seed) noexcept nogil
cdef size_t encoded_size(
    uint8_t flags, size_t subject_size, size_t headers_size, size_t payload_size
) noexcept nogil
cdef size_t write_record(
    uint8_t* out, uint8_t flags,
    const uint8_t* subject, size_t subject_size,
    const uint8_t* headers, size_t headers_size,
    const uint8_t* payload, size_t payload_size,
    int64_t expires_ns, uint64_t seq, int64_t timestamp_ns, uint64_t seed,
) noexcept nogil
cdef uint32_t message_bytes(
    size_t subject_size, size_t headers_size, size_t payload_size
) noexcept nogil
