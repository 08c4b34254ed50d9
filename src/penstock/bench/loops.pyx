"""The loops of load processes over a client's wire: publish, count, answer, request, consume.

Each loop moves many messages without a Python object or call per message, so that the measured
server is slower than its load. The bytes are parsed and buffered by `penstock.client.wire`.

Called by `penstock.bench.load`. Blocking, with the socket's timeout; one thread at a time.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from penstock.client.jetstream import flow_reply
from penstock.errors import FormatError

from penstock.client.wire cimport SEND_AT, Wire, is_text, number_behind
from penstock.protocol.lines cimport (
    ARGUMENTS_MAX, OP_HMSG, OP_MSG, Argument, Line, parse_size, put_number,
)

cdef enum:
    # Longest message line that is kept to recognise equal ones.
    ALIKE_LINE_MAX = 512
    # A prime: multiples of it, modulo a smaller number, reach every value below that number.
    SPREAD_STEP = 1000003
    LINE_END_BYTES = 2
    # The end of the last header's line, and an empty line.
    HEADERS_END_BYTES = 4


cdef int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef str _text(bytes data):
    return data.decode("utf-8", "backslashreplace")


def publish_many(
    Wire wire not None, bytes subject not None, bytes payload not None, int64_t count,
    bytes reply=None
):
    """Publish one message `count` times; the rest below a full buffer waits for `Wire.send`."""
    cdef int64_t each, left
    cdef bytes block
    head = subject + b" " + reply if reply is not None else subject
    frame = b"PUB %b %d\r\n%b\r\n" % (head, len(payload), payload)
    each = max(1, min(count, SEND_AT // len(frame)))
    block = frame * each
    if count >= each:
        wire.send()
    left = count
    while left >= each:
        wire._send_all(<const uint8_t*><const char*>block, len(block))
        left -= each
    wire.put(<const char*>block, left * len(frame))


def publish_ring(
    Wire wire not None, bytes ring not None, int64_t frame_bytes, int64_t first, int64_t count
):
    """Publish `count` frames of a ring of equally long frames, from number `first` on.

    The last frame of the ring is followed by its first. Raise ValueError for a ring that has no
    whole frame, or a part of one.
    """
    cdef int64_t frames, at, run
    if frame_bytes < 1 or len(ring) < frame_bytes or len(ring) % frame_bytes or first < 0:
        raise ValueError("a ring holds whole frames, at least one")
    frames = len(ring) // frame_bytes
    at = first % frames
    wire.send()
    while count > 0:
        run = min(count, frames - at)
        wire._send_all(
            <const uint8_t*><const char*>ring + at * frame_bytes, <size_t>(run * frame_bytes)
        )
        at = (at + run) % frames
        count -= run


def count_messages(
    Wire wire not None, int64_t wanted, bytes end_sid=b""
):
    """Wait for `wanted` messages and return how many came.

    A message of the subscription `end_sid` ends the wait early and is not counted.
    """
    cdef Line line
    cdef Argument[ARGUMENTS_MAX] arguments
    cdef int count = 0
    cdef Py_ssize_t used
    cdef int64_t seen = 0
    # A frame with the same line as the last one has the same size: most are recognised by it.
    cdef uint8_t[ALIKE_LINE_MAX] alike
    cdef size_t alike_line = 0, alike_frame = 0
    while seen < wanted:
        while (
            alike_line and seen < wanted and wire.end - wire.start >= alike_frame
            and memcmp(wire.data + wire.start, alike, alike_line) == 0
        ):
            wire.start += alike_frame
            seen += 1
        if seen == wanted:
            break
        used = wire.step(&line, arguments, &count)
        if used == 0:
            wire.fill()
            continue
        if line.operation != OP_MSG and line.operation != OP_HMSG:
            wire.note(&line)
        elif is_text(&arguments[1], end_sid):
            wire.start += used
            break
        else:
            seen += 1
            alike_frame = used
            alike_line = used - 2 - parse_size(&arguments[count - 1])
            if alike_line > ALIKE_LINE_MAX:
                alike_line = 0
            memcpy(alike, wire.data + wire.start, alike_line)
        wire.start += used
    return seen


def answer_many(
    Wire wire not None, bytes end_sid not None
):
    """Answer every request with its own bytes until `end_sid` has a message.

    Return the number of answers.
    """
    cdef Line line
    cdef Argument[ARGUMENTS_MAX] arguments
    cdef int count = 0
    cdef Py_ssize_t used
    cdef int64_t answered = 0
    while True:
        used = wire.step(&line, arguments, &count)
        if used == 0:
            wire.send()
            wire.fill()
            continue
        if line.operation != OP_MSG and line.operation != OP_HMSG:
            wire.note(&line)
        elif is_text(&arguments[1], end_sid):
            wire.start += used
            wire.send()
            return answered
        elif count == (5 if line.operation == OP_HMSG else 4):
            # The answer has the bytes of the request from its reply subject on.
            if line.operation == OP_HMSG:
                wire.put("H", 1)
            wire.put("PUB ", 4)
            wire.put(
                arguments[2].text, wire.data + wire.start + used - arguments[2].text
            )
            answered += 1
        wire.start += used


cdef class _RequestFrames:
    """The frames of numbered requests, as `request_many` says; what they share is made once."""

    cdef bytes before, between, head, tail
    cdef int64_t spread, groups, shift
    cdef bint counts

    def __cinit__(
        self, bytes subject not None, bytes inbox not None, bytes payload not None, int64_t spread,
        int64_t groups, bytes headers not None, bytes counted not None, int64_t shift
    ):
        self.spread, self.groups, self.shift = spread, groups, shift
        self.counts = len(counted) > 0
        self.before = b"%b %b" % (b"HPUB" if headers or counted else b"PUB", subject)
        self.between = b" %b." % inbox
        if self.counts:
            self.head = b"NATS/1.0\r\n%b%b: " % (headers, counted)
            self.tail = b"\r\n\r\n%b\r\n" % payload
        elif headers:
            block = b"NATS/1.0\r\n%b\r\n" % headers
            sizes = (len(block), len(block) + len(payload))
            self.tail = b" %d %d\r\n%b%b\r\n" % (*sizes, block, payload)
        else:
            self.tail = b" %d\r\n%b\r\n" % (len(payload), payload)

    cdef int put(self, Wire wire, int64_t number) except -1:
        """Put the frame of a request."""
        cdef int64_t ending
        wire.put(<const char*>self.before, len(self.before))
        if self.spread:
            ending = number * SPREAD_STEP % self.spread
            if self.groups > 1:
                _put_number(wire, ending % self.groups)
                wire.put(".", 1)
            _put_number(wire, ending)
        wire.put(<const char*>self.between, len(self.between))
        _put_number(wire, number)
        if self.counts:
            self._put_counted(wire, max(number + self.shift, 0))
        wire.put(<const char*>self.tail, len(self.tail))
        return 0

    cdef int _put_counted(self, Wire wire, int64_t value) except -1:
        # The sizes of headers and message, and the headers up to the value.
        cdef uint8_t[32] digits
        cdef size_t digits_size = put_number(digits, value)
        cdef int64_t size = len(self.head) + digits_size + HEADERS_END_BYTES
        wire.put(" ", 1)
        _put_number(wire, size)
        wire.put(" ", 1)
        _put_number(wire, size + len(self.tail) - HEADERS_END_BYTES - LINE_END_BYTES)
        wire.put("\r\n", LINE_END_BYTES)
        wire.put(<const char*>self.head, len(self.head))
        wire.put(digits, digits_size)
        return 0


cdef int _put_number(Wire wire, int64_t value) except -1:
    cdef uint8_t[32] digits
    wire.put(digits, put_number(digits, value))
    return 0


def request_many(
    Wire wire not None, bytes subject not None, bytes inbox not None, bytes payload not None,
    int64_t in_flight, int64_t[::1] latencies_ns not None, int64_t spread=0, int64_t groups=1,
    bytes headers not None=b"", bytes counted not None=b"", int64_t shift=0
):
    """Send one request per element of `latencies_ns` and store there how long each took.

    At most `in_flight` requests are unanswered at a time. Answers come to `inbox`, a dot and the
    element's index; the caller has subscribed there. With `spread` each subject ends in a number
    below it, a different one per request. With `groups` above 1 the number's group stands before
    it, followed by a dot. `headers` are lines, each with its end. `counted` is the name of one more
    header, whose value is the element's index plus `shift`, or 0 if that is negative. Raise
    FormatError if a request is refused.
    """
    cdef Line line
    cdef Argument[ARGUMENTS_MAX] arguments
    cdef int count = 0
    cdef Py_ssize_t used
    cdef int64_t place, asked = 0, answered = 0, total = latencies_ns.shape[0]
    cdef _RequestFrames frames = _RequestFrames(
        subject, inbox, payload, spread, groups, headers, counted, shift
    )
    while answered < total:
        while asked < total and asked - answered < in_flight:
            frames.put(wire, asked)
            latencies_ns[asked] = -monotonic_ns()
            asked += 1
        used = wire.step(&line, arguments, &count)
        if used == 0:
            wire.send()
            wire.fill()
            continue
        if line.operation == OP_MSG or line.operation == OP_HMSG:
            _check_answer(wire, &line, arguments, count, used)
            place = number_behind(&arguments[0], len(inbox) + 1)
            if place < 0 or place >= asked or latencies_ns[place] >= 0:
                raise FormatError("an answer to no request")
            latencies_ns[place] += monotonic_ns()
            answered += 1
        else:
            wire.note(&line)
        wire.start += used


def consume_many(
    Wire wire not None, int64_t wanted, bytes ack not None, bytes ask not None=b"",
    int64_t batch=0, int64_t in_flight=1
):
    """Wait until a JetStream consumer has delivered `wanted` messages.

    `ack` is published to the reply subject of each message; b"" acknowledges nothing. `ask` is the
    frame of a pull request for `batch` messages, where `batch` divides `wanted`; `in_flight`
    requests wait at a time. Without `ask` the consumer pushes. Flow control is answered. Raise
    RefusedByServer on any other status.
    """
    cdef Line line
    cdef Argument[ARGUMENTS_MAX] arguments
    cdef int count = 0
    cdef Py_ssize_t used
    cdef int64_t seen = 0, asked = 0
    cdef bytes rest = b" %d\r\n%b\r\n" % (len(ack), ack)
    cdef bint acks = len(ack) > 0
    while seen < wanted:
        while batch and asked < wanted and asked - seen <= (in_flight - 1) * batch:
            wire.put(<const char*>ask, len(ask))
            asked += batch
        used = wire.step(&line, arguments, &count)
        if used == 0:
            wire.send()
            wire.fill()
            continue
        if line.operation != OP_MSG and line.operation != OP_HMSG:
            wire.note(&line)
        elif line.operation == OP_MSG or not _is_status(wire, arguments, count, used):
            seen += 1
            if acks and count == (5 if line.operation == OP_HMSG else 4):
                wire.put("PUB ", 4)
                wire.put(arguments[2].text, arguments[2].size)
                wire.put(<const char*>rest, len(rest))
                if wire.out_used >= SEND_AT:
                    wire.send()
        else:
            reply = flow_reply(wire.message(&line, arguments, count, used))
            if reply:
                wire.publish(reply, b"")
                wire.send()
        wire.start += used
    wire.send()


cdef bint _is_status(Wire wire, const Argument* arguments, int count, Py_ssize_t used) noexcept:
    # A status follows the version; stored headers have a line end there.
    cdef int64_t size = parse_size(&arguments[count - 1])
    cdef const uint8_t* body = wire.data + wire.start + used - 2 - size
    return size >= 12 and memcmp(body, b"NATS/1.0 ", 9) == 0


cdef int _check_answer(
    Wire wire, const Line* line, const Argument* arguments, int count, Py_ssize_t used
) except -1:
    # Raise FormatError on a status or a JetStream error.
    cdef int64_t size = parse_size(&arguments[count - 1])
    cdef const uint8_t* body = wire.data + wire.start + used - 2 - size
    if line.operation == OP_HMSG and size >= 12 and memcmp(body, b"NATS/1.0 ", 9) == 0:
        if memcmp(body + 9, b"503", 3) == 0:
            raise FormatError("nobody answers requests")
        raise FormatError(f"a request was refused: {_text(body[9:12])}")
    if line.operation == OP_MSG and size >= 8 and memcmp(body, b'{"error"', 8) == 0:
        raise FormatError(f"a request was refused: {_text(body[:size])}")
    return 0
