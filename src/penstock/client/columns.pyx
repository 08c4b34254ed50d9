"""Columns from what a consumer delivers over a wire.

No Python object is made per message. `wire` has the connection. Called by `Client.collect`.

Blocking; one thread at a time, as the wire.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from penstock.errors import FormatError

from penstock.client.wire cimport Wire, is_text
from penstock.format.columns cimport ColumnBuilder
from penstock.protocol.lines cimport (
    ARGUMENTS_MAX, OP_HMSG, OP_MSG, SIZE_BAD, Argument, Line, parse_size,
)


cdef int64_t _number(const uint8_t* text, uint32_t size) noexcept nogil:
    # A sequence or a time, or SIZE_BAD; all numbers of 18 digits fit.
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
    # Read a delivery's reply subject: $JS.ACK, then stream, consumer, deliveries, stream sequence,
    # consumer sequence, time and pending; newer servers put domain and account before the stream.
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


def collect(
    Wire wire not None, ColumnBuilder builder not None, bytes sid not None, int64_t last_seq,
    int64_t rows_max, size_t bytes_max,
):
    """Add messages that a consumer delivers to columns, without an object per message.

    Stop when the columns are full, at the message `last_seq` or a later one (which is not added),
    or at a message that is no delivery: a status, or one of another subscription. Return (that
    message or None, whether `last_seq` was reached). Raise TimeoutError, ConnectionError,
    FormatError.
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
