"""One record of a block file: encode, decode, measure.

    +-------+----------------+----------------+----------------+- - - - -+-------+--------+-------+
    | flags | varint subject | varint headers | varint payload | expires | seq   | time   | XXH64 |
    | u8    | length, bytes  | length, bytes  | length, bytes  | i64 ns  | u64   | i64 ns | u64   |
    +-------+----------------+----------------+----------------+- - - - -+-------+--------+-------+

Little-endian; `expires` is there only when its flag is set. The checksum covers every byte before
it, flags and lengths included, and is seeded per block, so that a record that lies inside another
message's payload, or comes from another block, never checks out. A record can be measured from its
three lengths alone. Lengths are checked against `penstock.limits` before anything is read or moved.

Pure: no files, no clock; any thread.
"""

import msgspec

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.errors import FormatError
from penstock import limits

from penstock.format.hashing cimport xxh64_raw
from penstock.format.wire cimport get_u64, put_u64, put_uvarint, read_uvarint, uvarint_size

DELETED = FLAG_DELETED
SKIP = FLAG_SKIP
ENVELOPED = FLAG_ENVELOPED
TOMBSTONE = FLAG_TOMBSTONE
EXPIRES = FLAG_EXPIRES
COMMIT_START = FLAG_COMMIT_START

cdef uint64_t SUBJECT_MAX = limits.SUBJECT_BYTES_MAX
cdef uint64_t HEADERS_MAX = limits.HEADERS_BYTES_MAX
cdef uint64_t MESSAGE_PAYLOAD_MAX = limits.PAYLOAD_BYTES_MAX
# An enveloped payload holds the headers as well.
cdef uint64_t PAYLOAD_MAX = (
    limits.PAYLOAD_BYTES_MAX + limits.HEADERS_BYTES_MAX + limits.ENVELOPE_BYTES_MAX
)


class DecodedRecord(msgspec.Struct, frozen=True):
    """A record's fields as Python objects; `length` is its size on disk."""

    flags: int
    subject: bytes
    headers: bytes
    payload: bytes
    seq: int
    timestamp_ns: int
    expires_ns: int
    checksum: int
    length: int


cdef Parsed parse(const uint8_t* start, size_t available, Record* record) noexcept nogil:
    cdef const uint8_t* end = start + available
    cdef const uint8_t* p = start + 1
    cdef uint64_t size
    cdef size_t trailer = TRAILER_BYTES
    cdef int used
    if available < RECORD_BYTES_MIN:
        return PARSED_SHORT
    record.flags = start[0]
    if record.flags & ~FLAGS_KNOWN:
        return PARSED_BAD

    used = read_uvarint(p, end, &size)
    if used == 0 or size > SUBJECT_MAX:
        return PARSED_BAD
    p += used
    record.subject = p
    record.subject_size = <uint32_t>size
    # Checked before the cursor moves: the subject and what must follow it lie inside.
    if <size_t>(end - p) < size + 2 + TRAILER_BYTES:
        return PARSED_SHORT
    p += size

    used = read_uvarint(p, end, &size)
    if used == 0 or size > HEADERS_MAX:
        return PARSED_BAD
    p += used
    record.headers = p
    record.headers_size = <uint32_t>size
    if <size_t>(end - p) < size + 1 + TRAILER_BYTES:
        return PARSED_SHORT
    p += size

    used = read_uvarint(p, end, &size)
    if used == 0 or size > PAYLOAD_MAX:
        return PARSED_BAD
    p += used
    record.payload = p
    record.payload_size = <uint32_t>size
    if record.flags & FLAG_EXPIRES:
        trailer += 8
    if <size_t>(end - p) < size + trailer:
        return PARSED_SHORT
    p += size

    record.expires_ns = 0
    if record.flags & FLAG_EXPIRES:
        record.expires_ns = <int64_t>get_u64(p)
        p += 8
    record.seq = get_u64(p)
    record.timestamp_ns = <int64_t>get_u64(p + 8)
    record.checksum = get_u64(p + 16)
    record.length = <uint32_t>(p + TRAILER_BYTES - start)
    return PARSED_WHOLE


cdef bint checksum_holds(const uint8_t* start, const Record* record, uint64_t seed) noexcept nogil:
    return xxh64_raw(start, record.length - 8, seed) == record.checksum


cdef size_t encoded_size(
    uint8_t flags, size_t subject_size, size_t headers_size, size_t payload_size
) noexcept nogil:
    return (
        1 + uvarint_size(subject_size) + subject_size + uvarint_size(headers_size) + headers_size
        + uvarint_size(payload_size) + payload_size + TRAILER_BYTES
        + (8 if flags & FLAG_EXPIRES else 0)
    )


cdef size_t write_record(
    uint8_t* out, uint8_t flags,
    const uint8_t* subject, size_t subject_size,
    const uint8_t* headers, size_t headers_size,
    const uint8_t* payload, size_t payload_size,
    int64_t expires_ns, uint64_t seq, int64_t timestamp_ns, uint64_t seed,
) noexcept nogil:
    # The caller has room for encoded_size() bytes at `out`, and sizes within the limits.
    cdef uint8_t* p = out
    p[0] = flags
    p += 1
    p += put_uvarint(p, subject_size)
    if subject_size:
        memcpy(p, subject, subject_size)
        p += subject_size
    p += put_uvarint(p, headers_size)
    if headers_size:
        memcpy(p, headers, headers_size)
        p += headers_size
    p += put_uvarint(p, payload_size)
    if payload_size:
        memcpy(p, payload, payload_size)
        p += payload_size
    if flags & FLAG_EXPIRES:
        put_u64(p, <uint64_t>expires_ns)
        p += 8
    put_u64(p, seq)
    put_u64(p + 8, <uint64_t>timestamp_ns)
    p += 16
    put_u64(p, xxh64_raw(out, p - out, seed))
    return p + 8 - out


cdef uint32_t message_bytes(
    size_t subject_size, size_t headers_size, size_t payload_size
) noexcept nogil:
    # What a message counts for in a stream's `bytes`: the size of the reference server's record,
    # so that limits and reports agree with it whatever our own record costs.
    return <uint32_t>(30 + subject_size + payload_size + (4 + headers_size if headers_size else 0))


def encode(bytes subject not None, bytes headers not None, bytes payload not None, *,
           uint64_t seq, int64_t timestamp_ns, int flags=0, int64_t expires_ns=0,
           uint64_t seed=0):
    """Encode one record; raises FormatError for what the format cannot hold."""
    cdef uint8_t bits = <uint8_t>flags
    cdef const uint8_t* s = subject
    cdef const uint8_t* h = headers
    cdef const uint8_t* p = payload
    if flags & ~FLAGS_KNOWN:
        raise FormatError(f"unknown record flags {flags:#x}")
    if expires_ns:
        bits |= FLAG_EXPIRES
    check_sizes(len(subject), len(headers), len(payload))
    cdef size_t size = encoded_size(bits, len(subject), len(headers), len(payload))
    out = PyBytes_FromStringAndSize(NULL, size)
    write_record(
        <uint8_t*>PyBytes_AS_STRING(out), bits, s, len(subject), h, len(headers), p, len(payload),
        expires_ns, seq, timestamp_ns, seed,
    )
    return out


def check_sizes(size_t subject_size, size_t headers_size, size_t payload_size):
    """Raise FormatError where a record could not hold these."""
    if subject_size > SUBJECT_MAX:
        raise FormatError(f"a subject of {subject_size} bytes (at most {SUBJECT_MAX})")
    if headers_size > HEADERS_MAX:
        raise FormatError(f"headers of {headers_size} bytes (at most {HEADERS_MAX})")
    if payload_size > PAYLOAD_MAX:
        raise FormatError(f"a payload of {payload_size} bytes (at most {PAYLOAD_MAX})")


def check_message(size_t subject_size, size_t headers_size, size_t payload_size):
    """Raise FormatError where a message is too large, be it enveloped or not.

    A record's payload may be a little longer than a message's: that room is the envelope's.
    """
    if payload_size > MESSAGE_PAYLOAD_MAX:
        raise FormatError(f"a payload of {payload_size} bytes (at most {MESSAGE_PAYLOAD_MAX})")
    check_sizes(subject_size, headers_size, payload_size)


def measure(const uint8_t[::1] data not None, Py_ssize_t offset=0):
    """Return the length of the record at `offset` without decoding it.

    Raises FormatError where no record can start or the buffer ends before the record does.
    """
    cdef Record record
    _parse_at(data, offset, &record)
    return record.length


def decode(const uint8_t[::1] data not None, Py_ssize_t offset=0, *, uint64_t seed=0):
    """Decode the record at `offset`, verifying its checksum; raises FormatError."""
    cdef Record record
    _parse_at(data, offset, &record)
    if not checksum_holds(&data[offset], &record, seed):
        raise FormatError("record checksum differs", offset=offset)
    return DecodedRecord(
        record.flags,
        record.subject[:record.subject_size],
        record.headers[:record.headers_size],
        record.payload[:record.payload_size],
        record.seq,
        record.timestamp_ns,
        record.expires_ns,
        record.checksum,
        record.length,
    )


cdef int _parse_at(const uint8_t[::1] data, Py_ssize_t offset, Record* record) except -1:
    if offset < 0 or offset >= data.shape[0]:
        raise FormatError("no record here: past the end", offset=offset)
    cdef Parsed outcome = parse(&data[offset], data.shape[0] - offset, record)
    if outcome == PARSED_SHORT:
        raise FormatError("the record is cut off", offset=offset)
    if outcome == PARSED_BAD:
        raise FormatError("no record can start like this", offset=offset)
    return 0
