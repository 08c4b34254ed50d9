"""Messages in batches, from columns: their hash, and their forms for snapshots and stores.

    hash of a message = XXH64 of (sequence u64, time i64 ns, sizes of subject, headers and payload
                        u32 each), seeded with 0; then of the subject, the headers and the payload,
                        each seeded with the hash before
    hash of messages  = the sum of theirs, modulo 2**64

Little-endian. A sequence is part of its message's hash, so that the sum also covers the order; and
the hash of two files together is the sum of theirs, however they were divided.

Columns are sequences (u64), times (i64), and for subjects, headers and payloads (offsets, bytes)
each, with one int32 more than there are rows. Pure; any thread. Offsets are checked before a byte
is read.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.errors import UsageError

from penstock.format.hashing cimport xxh64_raw

cdef enum:
    HEAD_BYTES = 28
    # Five numbers of up to ten bytes each.
    ENTRY_HEAD_BYTES_MAX = 50


cdef class _Texts:
    """A column of bytes whose offsets were checked: they rise and stay within."""

    cdef const int32_t[::1] _offsets
    cdef const uint8_t[::1] _data
    cdef const int32_t* at
    cdef const uint8_t* data

    def __cinit__(self, column, Py_ssize_t count):
        cdef Py_ssize_t row
        self._offsets, self._data = column
        if self._offsets.shape[0] != count + 1:
            raise UsageError(f"{self._offsets.shape[0]} offsets for {count} rows")
        self.at = &self._offsets[0]
        self.data = &self._data[0] if self._data.shape[0] else NULL
        if self.at[0] < 0 or self.at[count] > self._data.shape[0]:
            raise UsageError("offsets point outside of their column")
        for row in range(count):
            if self.at[row] > self.at[row + 1]:
                raise UsageError("offsets fall")

    cdef inline uint32_t size(self, Py_ssize_t row) noexcept nogil:
        return <uint32_t>(self.at[row + 1] - self.at[row])

    cdef inline const uint8_t* start(self, Py_ssize_t row) noexcept nogil:
        return self.data + self.at[row]

    cdef bytes text(self, Py_ssize_t row):
        return PyBytes_FromStringAndSize(<const char*>self.start(row), self.size(row))


cdef int _check_times(Py_ssize_t count, Py_ssize_t times) except -1:
    if times != count:
        raise UsageError(f"{times} times for {count} rows")
    return 0


def hash_each(const uint64_t[::1] sequences, const int64_t[::1] times, subjects, headers, payloads):
    """Return the hash of each message, as consecutive u64."""
    cdef Py_ssize_t count = sequences.shape[0]
    cdef _Texts subject = _Texts(subjects, count)
    cdef _Texts header = _Texts(headers, count)
    cdef _Texts payload = _Texts(payloads, count)
    cdef const uint64_t* sequence
    cdef const int64_t* time_ns
    cdef uint8_t head[HEAD_BYTES]
    cdef uint32_t sizes[3]
    cdef Py_ssize_t row
    cdef bytes hashes = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef uint64_t* out = <uint64_t*>PyBytes_AS_STRING(hashes)
    _check_times(count, times.shape[0])
    if not count:
        return hashes
    sequence, time_ns = &sequences[0], &times[0]
    # Column by column: within a message each hash waits for the one before, and those of many
    # messages are taken at a time.
    with nogil:
        for row in range(count):
            sizes[0], sizes[1], sizes[2] = subject.size(row), header.size(row), payload.size(row)
            memcpy(head, &sequence[row], 8)
            memcpy(head + 8, &time_ns[row], 8)
            memcpy(head + 16, sizes, 12)
            out[row] = xxh64_raw(head, HEAD_BYTES, 0)
        for row in range(count):
            out[row] = xxh64_raw(subject.start(row), subject.size(row), out[row])
        for row in range(count):
            out[row] = xxh64_raw(header.start(row), header.size(row), out[row])
        for row in range(count):
            out[row] = xxh64_raw(payload.start(row), payload.size(row), out[row])
    return hashes


def hash_rows(const uint64_t[::1] sequences, const int64_t[::1] times, subjects, headers, payloads):
    """Return the hash of messages."""
    cdef bytes hashes = hash_each(sequences, times, subjects, headers, payloads)
    cdef const uint64_t* each = <const uint64_t*>PyBytes_AS_STRING(hashes)
    cdef uint64_t total = 0
    cdef Py_ssize_t row
    for row in range(sequences.shape[0]):
        total += each[row]
    return total


cdef inline size_t _put_uvarint(uint8_t* out, uint64_t number) noexcept nogil:
    cdef size_t used = 0
    while number >= 0x80:
        out[used] = <uint8_t>(number & 0x7F | 0x80)
        number >>= 7
        used += 1
    out[used] = <uint8_t>number
    return used + 1


def encode_entries(
    const uint64_t[::1] sequences, const int64_t[::1] times, subjects, headers, payloads
):
    """Return messages as the entries of a snapshot; see `format.golang.archive`."""
    cdef Py_ssize_t count = sequences.shape[0]
    cdef _Texts subject = _Texts(subjects, count)
    cdef _Texts header = _Texts(headers, count)
    cdef _Texts payload = _Texts(payloads, count)
    cdef size_t room = 0
    cdef size_t used = 0
    cdef Py_ssize_t row
    cdef uint8_t* out
    cdef int64_t time_ns
    cdef bytes entries
    _check_times(count, times.shape[0])
    if not count:
        return b""
    room = (
        count * ENTRY_HEAD_BYTES_MAX
        + (subject.at[count] - subject.at[0])
        + (header.at[count] - header.at[0])
        + <size_t>(payload.at[count] - payload.at[0])
    )
    entries = PyBytes_FromStringAndSize(NULL, room)
    out = <uint8_t*>PyBytes_AS_STRING(entries)
    for row in range(count):
        time_ns = times[row]
        used += _put_uvarint(out + used, subject.size(row))
        # Small numbers of either sign become small ones without.
        used += _put_uvarint(out + used, (<uint64_t>time_ns << 1) ^ <uint64_t>(time_ns >> 63))
        used += _put_uvarint(out + used, sequences[row])
        used += _put_uvarint(out + used, header.size(row))
        used += _put_uvarint(out + used, payload.size(row))
        for each in (subject, header, payload):
            used += _put_text(out + used, each, row)
    return entries[:used]


cdef inline size_t _put_text(uint8_t* out, _Texts texts, Py_ssize_t row) noexcept:
    cdef uint32_t size = texts.size(row)
    if size:
        memcpy(out, texts.start(row), size)
    return size


def raw_messages(
    const uint64_t[::1] sequences, const int64_t[::1] times, subjects, headers, payloads
):
    """Return messages as a store takes them with their sequences, without expiries."""
    cdef Py_ssize_t count = sequences.shape[0]
    cdef _Texts subject = _Texts(subjects, count)
    cdef _Texts header = _Texts(headers, count)
    cdef _Texts payload = _Texts(payloads, count)
    _check_times(count, times.shape[0])
    return [
        (
            sequences[row],
            times[row],
            subject.text(row),
            header.text(row),
            payload.text(row),
            0,
        )
        for row in range(count)
    ]
