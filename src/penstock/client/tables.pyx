"""Messages by the batch over a wire: columns from what a consumer delivers, publishes from rows.

No Python object is made of a message either way. What a connection is and how it waits, `wire` has.

Blocking; one thread at a time, as the wire that is given.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from penstock.errors import FormatError, RefusedByServer, UsageError

from penstock.client.wire cimport SEND_AT, Wire, is_text, number_behind
from penstock.format.columns cimport ColumnBuilder
from penstock.protocol.operations cimport (
    ARGUMENTS_MAX, OP_HMSG, OP_MSG, SIZE_BAD, Argument, Line, parse_size, put_number,
)


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


cdef int64_t _number(const uint8_t* text, uint32_t size) noexcept nogil:
    # A sequence or a time, or SIZE_BAD; 18 digits and a bit more fit.
    cdef int64_t value = 0
    cdef uint32_t at
    if size == 0 or size > 19:
        return SIZE_BAD
    for at in range(size):
        if text[at] < 48 or text[at] > 57:
            return SIZE_BAD
        value = value * 10 + (text[at] - 48)
    return value if value >= 0 else SIZE_BAD


cdef bint _read_delivery(const Argument* reply, int64_t* seq, int64_t* time_ns) noexcept nogil:
    # What a delivery's reply subject tells: $JS.ACK, then stream, consumer, deliveries, sequence,
    # place, time and pending; newer servers have the domain and the account before the stream.
    cdef int dots = 0, wanted = 5
    cdef uint32_t at, first = 0
    for at in range(reply.size):
        dots += reply.text[at] == 46
    if dots < 8 or memcmp(reply.text, b"$JS.ACK.", 8):
        return False
    if dots > 8:
        wanted = 7
    dots = 0
    for at in range(reply.size + 1):
        if at == reply.size or reply.text[at] == 46:
            if dots == wanted:
                seq[0] = _number(reply.text + first, at - first)
            elif dots == wanted + 2:
                time_ns[0] = _number(reply.text + first, at - first)
                return seq[0] != SIZE_BAD and time_ns[0] != SIZE_BAD
            dots += 1
            first = at + 1
    return False


cdef str _shown(bytes data):
    return data.decode("utf-8", "backslashreplace")


def publish_rows(
    Wire wire not None,
    const int32_t[::1] subject_offsets not None, const uint8_t[::1] subjects not None,
    const int32_t[::1] header_offsets not None, const uint8_t[::1] headers not None,
    const int32_t[::1] payload_offsets not None, const uint8_t[::1] payloads not None,
    bytes inbox not None, int64_t in_flight,
):
    """Publish a message for each row, and wait until all are acknowledged; give duplicates.

    Each `*_offsets` holds one place more than there are rows. At most `in_flight` wait for
    their acknowledgement at a time; it comes to `inbox`, a dot and the row's number, where the
    caller has subscribed. Raises RefusedByServer with the row and the server's words.
    """
    cdef Line line
    cdef Argument[ARGUMENTS_MAX] arguments
    cdef int count = 0
    cdef Py_ssize_t used
    cdef int64_t rows = subject_offsets.shape[0] - 1
    cdef int64_t sent = 0, acked = 0, row, duplicates = 0
    cdef bint with_headers = header_offsets.shape[0] > 0
    _check_offsets(subject_offsets, subjects, rows)
    _check_offsets(payload_offsets, payloads, rows)
    if with_headers:
        _check_offsets(header_offsets, headers, rows)
    while acked < rows:
        while sent < rows and sent - acked < in_flight:
            _put_row(
                wire, _slice(subject_offsets, subjects, sent),
                _slice(header_offsets, headers, sent) if with_headers else Argument(NULL, 0),
                _slice(payload_offsets, payloads, sent), inbox, sent,
            )
            sent += 1
            if wire.out_used >= SEND_AT:
                wire.send()
        used = wire.step(&line, arguments, &count)
        if used == 0:
            wire.send()
            wire.fill()
            continue
        if line.operation == OP_MSG or line.operation == OP_HMSG:
            row = number_behind(&arguments[0], len(inbox) + 1)
            # What comes late of an earlier call, or for somebody else, is passed over.
            if 0 <= row < sent and not memcmp(
                arguments[0].text, <const char*>inbox, len(inbox)
            ):
                duplicates += _check_ack(wire, &line, arguments, count, used, row)
                acked += 1
        else:
            wire.note(&line)
        wire.start += used
    return duplicates


cdef int _put_row(
    Wire wire, Argument subject, Argument headers, Argument payload, bytes inbox, int64_t row
) except -1:
    cdef uint8_t[64] numbers
    cdef int used
    cdef uint32_t at
    # What would end the line, or an argument of it, would be taken for something else.
    for at in range(subject.size):
        if subject.text[at] <= 32:
            raise UsageError(f"row {row}: no subject: {subject.text[:subject.size]!r}")
    if subject.size == 0:
        raise UsageError(f"row {row}: the subject is empty")
    if headers.size:
        wire.put("HPUB ", 5)
    else:
        wire.put("PUB ", 4)
    wire.put(subject.text, subject.size)
    wire.put(" ", 1)
    wire.put(<const char*>inbox, len(inbox))
    numbers[0] = 46
    used = 1 + put_number(numbers + 1, row)
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


cdef bint _check_ack(
    Wire wire, const Line* line, const Argument* arguments, int count, Py_ssize_t used, int64_t row
) except -1:
    # Whether the server had the message already; raises where it refused it.
    cdef int64_t size = parse_size(&arguments[count - 1])
    cdef bytes body = wire.data[wire.start + used - 2 - size:wire.start + used - 2]
    if line.operation == OP_HMSG:
        raise RefusedByServer(f"row {row}: no stream takes it ({_shown(body[9:12])})")
    if not body.startswith(b'{"stream":') or b'"error"' in body:
        raise RefusedByServer(f"row {row}: {_shown(body)}")
    return b'"duplicate":true' in body


def collect(
    Wire wire not None, ColumnBuilder builder not None, bytes sid not None, int64_t last_seq,
    int64_t rows_max, size_t bytes_max,
):
    """Add messages that a consumer delivers to the columns, making no object of any.

    Ends when they are full, at the message with `last_seq` or one behind it (which is not
    added), or at a message that is no delivery: a status, or one of another subscription.
    Gives (that message or None, whether `last_seq` was reached). Raises TimeoutError,
    ConnectionError, FormatError.
    """
    cdef Line line
    cdef Argument[ARGUMENTS_MAX] arguments
    cdef int count = 0
    cdef Py_ssize_t used
    cdef int64_t seq = 0, time_ns = 0, size, headers
    cdef const uint8_t* body
    while builder.count < rows_max and builder.data_bytes() < bytes_max:
        used = wire.step(&line, arguments, &count)
        if used == 0:
            wire.fill()
            continue
        if line.operation != OP_MSG and line.operation != OP_HMSG:
            wire.note(&line)
            wire.start += used
            continue
        if not is_text(&arguments[1], sid) or count != (
            5 if line.operation == OP_HMSG else 4
        ) or not _read_delivery(&arguments[2], &seq, &time_ns):
            message = wire.message(&line, arguments, count, used)
            wire.start += used
            return message, False
        size = parse_size(&arguments[count - 1])
        headers = parse_size(&arguments[count - 2]) if line.operation == OP_HMSG else 0
        if headers == SIZE_BAD or headers > size:
            raise FormatError("a message line with a wrong header size")
        body = wire.data + wire.start + used - 2 - size
        if seq <= last_seq:
            builder.add(
                seq, time_ns, 0, arguments[0].text, arguments[0].size, body, headers,
                body + headers, size - headers,
            )
        wire.start += used
        if seq >= last_seq:
            return None, True
    return None, False
