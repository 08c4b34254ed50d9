"""Rows of columns as messages: published one by one with an acknowledgement each, or in batches.

    rows = Rows(subjects, headers, payloads)
    rows.put_members(wire, first, end, batch_id, 1)     members of an atomic batch, unanswered
    publisher.publish(rows); publisher.finish()         each acknowledged, many on their way

A column is its offsets (int32, one more than rows) and its bytes; headers are whole blocks, or
empty. No Python object is made per row. `wire` has the connection.

Blocking; one thread at a time, as the wire. Called by `client` and by Spark's sinks.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from array import array

from penstock.errors import FormatError, RefusedByServer, UsageError

from penstock.client.wire cimport SEND_AT, Wire, number_behind
from penstock.format.hashing cimport xxh64_raw
from penstock.protocol.lines cimport (
    ARGUMENTS_MAX, OP_HMSG, OP_MSG, Argument, Line, parse_size, put_number,
)

cdef enum:
    # "NATS/1.0" and the end of its line, with which every block begins.
    START_SIZE = 10


cdef int _check_offsets(
    const int32_t[::1] offsets, const uint8_t[::1] data, int64_t rows
) except -1:
    cdef int64_t row
    if offsets.shape[0] != rows + 1 or offsets[0] < 0 or offsets[rows] > data.shape[0]:
        raise FormatError("the offsets of a column do not fit its data")
    for row in range(rows):
        if offsets[row] > offsets[row + 1]:
            raise FormatError("the offsets of a column go backwards")
    return 0


cdef Argument _slice(
    const int32_t[::1] offsets, const uint8_t[::1] data, int64_t row
) noexcept:
    cdef Argument part
    part.size = offsets[row + 1] - offsets[row]
    part.text = &data[offsets[row]] if part.size else NULL
    return part


cdef str _shown(bytes data):
    return data.decode("utf-8", "backslashreplace")


cdef class Rows:
    """Columns whose rows are messages; see the module."""

    cdef const int32_t[::1] subject_offsets
    cdef const uint8_t[::1] subjects
    cdef const int32_t[::1] header_offsets
    cdef const uint8_t[::1] headers
    cdef const int32_t[::1] payload_offsets
    cdef const uint8_t[::1] payloads
    cdef bint has_headers
    cdef readonly int64_t count

    def __init__(self, subjects not None, headers, payloads not None):
        """Take (offsets, bytes) of each column, None for no headers; raise FormatError."""
        self.subject_offsets, self.subjects = subjects
        self.payload_offsets, self.payloads = payloads
        self.has_headers = headers is not None
        self.header_offsets, self.headers = headers if headers is not None else (array("i"), b"")
        self.count = self.subject_offsets.shape[0] - 1
        _check_offsets(self.subject_offsets, self.subjects, self.count)
        _check_offsets(self.payload_offsets, self.payloads, self.count)
        if self.has_headers:
            _check_offsets(self.header_offsets, self.headers, self.count)

    cdef Argument _headers_of(self, int64_t row) noexcept:
        if not self.has_headers:
            return Argument(NULL, 0)
        return _slice(self.header_offsets, self.headers, row)

    cdef int64_t _check_range(self, int64_t first, int64_t end) except -1:
        if not 0 <= first <= end <= self.count:
            raise UsageError(f"no rows {first} to {end} of {self.count}")
        return 0

    def end_of(self, int64_t first, int64_t rows_max, int64_t bytes_max):
        """Return where a part ends that begins at `first`, and its bytes.

        The part ends with the row that reaches `rows_max` or `bytes_max`.
        """
        cdef int64_t row = first, size = 0
        self._check_range(first, self.count)
        while row < self.count and row - first < rows_max and size < bytes_max:
            size += (
                _slice(self.subject_offsets, self.subjects, row).size + self._headers_of(row).size
                + _slice(self.payload_offsets, self.payloads, row).size
            )
            row += 1
        return row, size

    def hashed(self, int64_t first, int64_t end, uint64_t seed):
        """Return a hash over rows that continues `seed`, however the rows are split."""
        cdef Argument[3] parts
        cdef uint32_t[3] sizes
        cdef int64_t row
        cdef int part
        self._check_range(first, end)
        for row in range(first, end):
            parts[0] = _slice(self.subject_offsets, self.subjects, row)
            parts[1] = self._headers_of(row)
            parts[2] = _slice(self.payload_offsets, self.payloads, row)
            for part in range(3):
                sizes[part] = parts[part].size
            seed = xxh64_raw(<const uint8_t*>sizes, sizeof(sizes), seed)
            for part in range(3):
                if parts[part].size:
                    seed = xxh64_raw(parts[part].text, parts[part].size, seed)
        return seed

    def put_members(
        self, Wire wire not None, int64_t first, int64_t end, bytes batch_id not None,
        int64_t number, int64_t bytes_max, bytes inbox=None,
    ):
        """Publish rows as members of an atomic batch, numbered from `number`.

        The server does not answer; with an `inbox` it answers each to the inbox, a dot and its
        number. Raise UsageError for a row that is no message, or has more than `bytes_max`.
        """
        cdef bytes reply = b"" if inbox is None else b" %b." % inbox
        cdef bytes start = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: " % batch_id
        cdef int64_t row
        self._check_range(first, end)
        for row in range(first, end):
            self._put_member(wire, row, start, number, reply, bytes_max)
            number += 1
            if wire.out_used >= SEND_AT:
                wire.send()

    cdef int _put_member(
        self, Wire wire, int64_t row, bytes start, int64_t number, bytes reply, int64_t bytes_max
    ) except -1:
        cdef Argument subject = _slice(self.subject_offsets, self.subjects, row)
        cdef Argument headers = self._headers_of(row)
        cdef Argument payload = _slice(self.payload_offsets, self.payloads, row)
        cdef uint8_t[32] digits
        cdef uint8_t[64] numbers
        cdef int digit_count = put_number(digits, number), used = 1
        cdef size_t size
        digits[digit_count] = 13
        digits[digit_count + 1] = 10
        if headers.size < START_SIZE:
            headers.text, headers.size = <const uint8_t*><const char*>b"\r\n", 2
        else:
            headers.text += START_SIZE
            headers.size -= START_SIZE
        size = <size_t>len(start) + digit_count + 2 + headers.size
        _check_row(subject, row, size + payload.size, bytes_max)
        wire.put("HPUB ", 5)
        wire.put(subject.text, subject.size)
        if len(reply):
            wire.put(<const char*>reply, len(reply))
            wire.put(digits, digit_count)
        numbers[0] = 32
        used += put_number(numbers + used, size)
        numbers[used] = 32
        used += 1
        used += put_number(numbers + used, size + payload.size)
        numbers[used] = 13
        numbers[used + 1] = 10
        wire.put(numbers, used + 2)
        wire.put(<const char*>start, len(start))
        wire.put(digits, digit_count + 2)
        wire.put(headers.text, headers.size)
        wire.put(payload.text, payload.size)
        wire.put("\r\n", 2)
        return 0

    cdef int _put_one(
        self, Wire wire, int64_t row, bytes inbox, int64_t number, int64_t bytes_max
    ) except -1:
        cdef Argument subject = _slice(self.subject_offsets, self.subjects, row)
        cdef Argument headers = self._headers_of(row)
        cdef Argument payload = _slice(self.payload_offsets, self.payloads, row)
        cdef uint8_t[64] numbers
        cdef int used
        _check_row(subject, number, <size_t>headers.size + payload.size, bytes_max)
        if headers.size:
            wire.put("HPUB ", 5)
        else:
            wire.put("PUB ", 4)
        wire.put(subject.text, subject.size)
        wire.put(" ", 1)
        wire.put(<const char*>inbox, len(inbox))
        numbers[0] = 46
        used = 1 + put_number(numbers + 1, number)
        numbers[used] = 32
        used += 1
        if headers.size:
            used += put_number(numbers + used, headers.size)
            numbers[used] = 32
            used += 1
        used += put_number(numbers + used, <size_t>headers.size + payload.size)
        numbers[used] = 13
        numbers[used + 1] = 10
        wire.put(numbers, used + 2)
        wire.put(headers.text, headers.size)
        wire.put(payload.text, payload.size)
        wire.put("\r\n", 2)
        return 0


cdef int _check_row(Argument subject, int64_t row, size_t size, int64_t bytes_max) except -1:
    # A space or a line end in a subject would change the operation, and the server closes the
    # connection of a client that sends more than its limit.
    cdef uint32_t at
    for at in range(subject.size):
        if subject.text[at] <= 32:
            raise UsageError(f"row {row}: no subject: {subject.text[:subject.size]!r}")
    if subject.size == 0:
        raise UsageError(f"row {row}: the subject is empty")
    if size > <size_t>bytes_max:
        raise UsageError(f"row {row}: {size} bytes, and the server takes {bytes_max} at the most")
    return 0


cdef class RowPublisher:
    """Publishes rows and waits for the acknowledgement of each; rows are numbered from 0 on.

    Acknowledgements of the last rows come in while the caller makes the next ones.
    """

    cdef Wire wire
    cdef bytes inbox
    cdef int64_t in_flight
    cdef int64_t bytes_max
    cdef int64_t sent
    cdef int64_t acked
    cdef readonly int64_t duplicates

    def __init__(
        self, Wire wire not None, bytes inbox not None, int64_t in_flight, int64_t bytes_max
    ):
        """Have `in_flight` rows unacknowledged at a time; acks come to `inbox`, dot, number.

        A message has at most `bytes_max` bytes of headers and payload.
        """
        self.bytes_max = bytes_max
        self.wire = wire
        self.inbox = inbox
        self.in_flight = in_flight

    def publish(self, Rows rows not None):
        """Publish rows; the last ones may still be unacknowledged when this returns.

        Raise RefusedByServer or UsageError with the number of the row.
        """
        cdef int64_t row
        for row in range(rows.count):
            while self.sent - self.acked >= self.in_flight:
                self._take_one()
            rows._put_one(self.wire, row, self.inbox, self.sent, self.bytes_max)
            self.sent += 1
            if self.wire.out_used >= SEND_AT:
                self.wire.send()
        self.wire.send()

    def finish(self):
        """Wait until all rows are acknowledged; raise as `publish` does."""
        while self.acked < self.sent:
            self._take_one()

    cdef int _take_one(self) except -1:
        # Read one operation of the server, waiting for it if need be.
        cdef Line line
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = 0
        cdef int64_t row
        cdef Py_ssize_t used = self.wire.step(&line, arguments, &count)
        if used == 0:
            self.wire.send()
            self.wire.fill()
            return 0
        if line.operation == OP_MSG or line.operation == OP_HMSG:
            row = number_behind(&arguments[0], len(self.inbox) + 1)
            # Messages of an earlier call, or of another subscription, are skipped.
            if 0 <= row < self.sent and not memcmp(
                arguments[0].text, <const char*>self.inbox, len(self.inbox)
            ):
                self.duplicates += self._check_ack(&line, arguments, count, used, row)
                self.acked += 1
        else:
            self.wire.note(&line)
        self.wire.start += used
        return 0

    cdef bint _check_ack(
        self, const Line* line, const Argument* arguments, int count, Py_ssize_t used, int64_t row
    ) except -1:
        # Return True if the server had the message already; raise if it refused it.
        cdef int64_t size = parse_size(&arguments[count - 1])
        cdef size_t end = self.wire.start + used - 2
        cdef bytes body = self.wire.data[end - size:end]
        if line.operation == OP_HMSG:
            raise RefusedByServer(f"row {row}: no stream takes it ({_shown(body[9:12])})")
        if not body.startswith(b'{"stream":') or b'"error"' in body:
            raise RefusedByServer(f"row {row}: {_shown(body)}")
        return b'"duplicate":' in body
