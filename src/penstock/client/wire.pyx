"""The client's side of the protocol over one blocking socket: frames out, messages in.

Publishing encodes into one buffer that is sent when it is large or when somebody waits. Receiving
parses what the socket gave in place; a message becomes a Python object only when it is asked for,
and `count` passes over messages without making any.

Blocking, with the socket's own timeout; one thread at a time. Waiting lets go of the interpreter
lock, and ends when a signal's handler raises. With TLS the bytes go through the socket object.
"""

from cpython.exc cimport PyErr_CheckSignals

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from dataclasses import dataclass

from penstock.client.delivered import flow_reply
from penstock.errors import FormatError

from penstock.protocol.operations cimport (
    ARGUMENTS_MAX, LINE_SHORT, OP_HMSG, OP_INFO, OP_MINUS_ERR, OP_MSG, OP_PING, OP_PONG,
    SIZE_BAD, Argument, Line, parse_size, put_number, read_line, split_arguments,
)

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    enum:
        MSG_NOSIGNAL

cdef enum:
    READ_BYTES = 262144
    # INFO of a server with many peers is far longer than a control line.
    LINE_MAX = 1048576
    # Longest message line that is remembered to find alike ones.
    ALIKE_LINE_MAX = 512
    # A prime, so that steps of it come by every number below another.
    SPREAD_STEP = 1000003


cdef int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef bint is_text(const Argument* argument, bytes text) noexcept:
    return argument.size == <size_t>len(text) and (
        memcmp(argument.text, <const char*>text, argument.size) == 0
    )


cdef int64_t number_behind(const Argument* subject, size_t before) noexcept nogil:
    # The number behind so many bytes of a subject, or SIZE_BAD.
    cdef Argument number
    if subject.size <= before:
        return SIZE_BAD
    number.text = subject.text + before
    number.size = subject.size - <uint32_t>before
    return parse_size(&number)


cdef str _text(bytes data):
    return data.decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was received; `headers` is the raw block, b"" for none."""

    subject: bytes
    sid: bytes
    reply: bytes
    headers: bytes
    payload: bytes


cdef class Wire:
    """One connection's bytes; see the module."""

    def __init__(self, int fd):
        """Take over a connected, blocking socket's descriptor; the caller keeps it open."""
        self.fd = fd
        self.infos = []
        self.errors = []

    def secure(self, secured not None):
        """Go on through an encrypted socket on the same descriptor, which has its own timeout."""
        self.secured = secured

    def __dealloc__(self):
        free(self.out)
        free(self.data)

    # Sending

    cdef int _reserve(self, size_t more) except -1:
        cdef size_t room = self.out_room if self.out_room else 65536
        cdef uint8_t* grown
        if self.out_used + more <= self.out_room:
            return 0
        while room < self.out_used + more:
            room *= 2
        grown = <uint8_t*>realloc(self.out, room)
        if grown == NULL:
            raise MemoryError
        self.out = grown
        self.out_room = room
        return 0

    cdef int put(self, const void* data, size_t size) except -1:
        self._reserve(size)
        memcpy(self.out + self.out_used, data, size)
        self.out_used += size
        return 0

    def write(self, bytes data not None):
        """Add raw protocol bytes to what will be sent."""
        self.put(<const char*>data, len(data))

    def publish(self, bytes subject not None, bytes payload not None, bytes reply=None,
                bytes headers=None):
        """Add a publish to what will be sent; sends when enough has gathered."""
        cdef uint8_t[64] numbers
        cdef int used = 0
        cdef size_t body = len(payload)
        if headers is not None:
            self.put("HPUB ", 5)
        else:
            self.put("PUB ", 4)
        self.put(<const char*>subject, len(subject))
        self.put(" ", 1)
        if reply is not None:
            self.put(<const char*>reply, len(reply))
            self.put(" ", 1)
        if headers is not None:
            used = put_number(numbers, len(headers))
            numbers[used] = 32
            used += 1
            body += len(headers)
        used += put_number(numbers + used, body)
        numbers[used] = 13
        numbers[used + 1] = 10
        self.put(numbers, used + 2)
        if headers is not None:
            self.put(<const char*>headers, len(headers))
        self.put(<const char*>payload, len(payload))
        self.put("\r\n", 2)
        if self.out_used >= SEND_AT:
            self.send()

    def publish_many(self, bytes subject not None, bytes payload not None, int64_t count,
                     bytes reply=None):
        """Publish the same message `count` times: for benches, without a call or a copy each."""
        cdef int64_t each, left
        cdef bytes block
        head = subject + b" " + reply if reply is not None else subject
        frame = b"PUB %b %d\r\n%b\r\n" % (head, len(payload), payload)
        each = max(1, min(count, SEND_AT // len(frame)))
        block = frame * each
        if count >= each:
            self.send()
        left = count
        while left >= each:
            self._send_all(<const uint8_t*><const char*>block, len(block))
            left -= each
        self.put(<const char*>block, left * len(frame))

    cpdef send(self):
        """Send everything that has gathered; raises OSError."""
        self._send_all(self.out, self.out_used)
        self.out_used = 0

    cdef int _send_all(self, const uint8_t* data, size_t size) except -1:
        cdef size_t at = 0
        cdef ssize_t sent = 0
        cdef int problem = 0
        if self.secured is not None:
            if size:
                self.secured.sendall(<const uint8_t[:size]>data)
            return 0
        while at < size:
            with nogil:
                while at < size:
                    sent = c_send(self.fd, data + at, size - at, MSG_NOSIGNAL)
                    if sent < 0:
                        problem = errno
                        break
                    at += sent
            if sent < 0:
                self._check(problem)
        return 0

    cdef int _check(self, int problem) except -1:
        # An interrupted call is made again, unless a signal's handler raises.
        if problem != EINTR:
            self._raise(problem)
        return PyErr_CheckSignals()

    cdef _raise(self, int problem):
        if problem == EAGAIN:
            raise TimeoutError("the server did not answer in time")
        raise ConnectionError(problem, "the connection to the server broke")

    # Receiving

    cdef int fill(self) except -1:
        # Read more bytes behind those that are there; waits. Raises at the end of the stream.
        cdef ssize_t got = 0
        cdef size_t room = self.room if self.room else READ_BYTES
        cdef uint8_t* grown
        cdef int problem = 0
        if self.start:
            memmove(self.data, self.data + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
        if self.room - self.end < READ_BYTES // 2:
            while room - self.end < READ_BYTES:
                room *= 2
            grown = <uint8_t*>realloc(self.data, room)
            if grown == NULL:
                raise MemoryError
            self.data = grown
            self.room = room
        if self.secured is not None:
            got = self.secured.recv_into(<uint8_t[:self.room - self.end]>(self.data + self.end))
        else:
            while True:
                with nogil:
                    got = c_recv(self.fd, self.data + self.end, self.room - self.end, 0)
                    if got < 0:
                        problem = errno
                if got >= 0:
                    break
                self._check(problem)
        if got == 0:
            raise ConnectionResetError("the server closed the connection" + self._last_words())
        self.end += got
        return 0

    def _last_words(self):
        return f": {self.errors[-1].decode(errors='replace')}" if self.errors else ""

    cdef Py_ssize_t step(self, Line* line, Argument* arguments, int* count) except -2:
        # Find the operation at the front: its bytes, or 0 where more must come.
        cdef Py_ssize_t line_bytes
        cdef int64_t size
        if self.start == self.end:
            return 0
        line_bytes = read_line(self.data + self.start, self.end - self.start, LINE_MAX, line)
        if line_bytes == LINE_SHORT:
            return 0
        if line_bytes < 0:
            raise FormatError("the server does not speak NATS")
        if line.operation != OP_MSG and line.operation != OP_HMSG:
            return line_bytes
        count[0] = split_arguments(line.text, line.text_size, arguments, False)
        if count[0] < 3 or count[0] > 5:
            raise FormatError("a message line with wrong arguments")
        size = parse_size(&arguments[count[0] - 1])
        if size == SIZE_BAD:
            raise FormatError("a message line with a wrong size")
        if self.end - self.start < <size_t>(line_bytes + size + 2):
            return 0
        return line_bytes + size + 2

    cdef note(self, const Line* line):
        if line.operation == OP_PONG:
            self.pongs += 1
        elif line.operation == OP_PING:
            self.write(b"PONG\r\n")
            self.send()
        elif line.operation == OP_INFO:
            self.infos.append(line.text[:line.text_size])
            del self.infos[:-8]
        elif line.operation == OP_MINUS_ERR:
            self.errors.append(line.text[:line.text_size].strip(b"'"))
            del self.errors[:-64]

    def next_message(self):
        """Wait for the next message; raises TimeoutError, ConnectionError."""
        cdef Line line
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = 0
        cdef Py_ssize_t used
        while True:
            used = self.step(&line, arguments, &count)
            if used == 0:
                self.fill()
                continue
            if line.operation == OP_MSG or line.operation == OP_HMSG:
                message = self.message(&line, arguments, count, used)
                self.start += used
                return message
            self.note(&line)
            self.start += used

    cdef message(self, const Line* line, const Argument* arguments, int count, Py_ssize_t used):
        cdef int64_t size = parse_size(&arguments[count - 1])
        cdef int64_t headers = 0
        cdef bint with_headers = line.operation == OP_HMSG
        cdef const uint8_t* payload = self.data + self.start + used - 2 - size
        if with_headers:
            headers = parse_size(&arguments[count - 2])
            if headers == SIZE_BAD or headers > size:
                raise FormatError("a message line with a wrong header size")
        has_reply = count == (5 if with_headers else 4)
        return Message(
            arguments[0].text[:arguments[0].size],
            arguments[1].text[:arguments[1].size],
            arguments[2].text[:arguments[2].size] if has_reply else b"",
            payload[:headers],
            payload[headers:size],
        )

    def count_messages(self, int64_t wanted, bytes end_sid=b""):
        """Wait until `wanted` messages have passed, making no object of any; for benches.

        Ends early at a message of the subscription `end_sid`, which is not counted; gives how many
        were.
        """
        cdef Line line
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = 0
        cdef Py_ssize_t used
        cdef int64_t seen = 0
        # A frame that begins as the last one did is as long as it was: most are told by that.
        cdef uint8_t[ALIKE_LINE_MAX] alike
        cdef size_t alike_line = 0, alike_frame = 0
        while seen < wanted:
            while (
                alike_line and seen < wanted and self.end - self.start >= alike_frame
                and memcmp(self.data + self.start, alike, alike_line) == 0
            ):
                self.start += alike_frame
                seen += 1
            if seen == wanted:
                break
            used = self.step(&line, arguments, &count)
            if used == 0:
                self.fill()
                continue
            if line.operation != OP_MSG and line.operation != OP_HMSG:
                self.note(&line)
            elif is_text(&arguments[1], end_sid):
                self.start += used
                break
            else:
                seen += 1
                alike_frame = used
                alike_line = used - 2 - parse_size(&arguments[count - 1])
                if alike_line > ALIKE_LINE_MAX:
                    alike_line = 0
                memcpy(alike, self.data + self.start, alike_line)
            self.start += used
        return seen

    def answer_many(self, bytes end_sid not None):
        """Answer every request with its own bytes until `end_sid` has a message; for benches."""
        cdef Line line
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = 0
        cdef Py_ssize_t used
        cdef int64_t answered = 0
        while True:
            used = self.step(&line, arguments, &count)
            if used == 0:
                self.send()
                self.fill()
                continue
            if line.operation != OP_MSG and line.operation != OP_HMSG:
                self.note(&line)
            elif is_text(&arguments[1], end_sid):
                self.start += used
                self.send()
                return answered
            elif count == (5 if line.operation == OP_HMSG else 4):
                # From its reply subject on, a request reads as the answer must.
                if line.operation == OP_HMSG:
                    self.put("H", 1)
                self.put("PUB ", 4)
                self.put(
                    arguments[2].text, self.data + self.start + used - arguments[2].text
                )
                answered += 1
            self.start += used

    def request_many(self, bytes subject not None, bytes inbox not None, bytes payload not None,
                     int64_t in_flight, int64_t[::1] latencies_ns not None, int64_t spread=0,
                     int64_t groups=1):
        """Send a request for each place in `latencies_ns`, and put there how long it took.

        At most `in_flight` wait for their answer at a time. Answers come to `inbox`, a dot and the
        place, where the caller has subscribed. With `spread` each subject ends in a number below
        it, and one request after the other goes somewhere else; with `groups` in a group's number,
        a dot and that number, which says the group. For benches.
        """
        cdef Line line
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = 0
        cdef Py_ssize_t used
        cdef int64_t place, asked = 0, answered = 0, total = latencies_ns.shape[0]
        cdef int64_t ending
        cdef bytes before = b"PUB %b" % subject
        cdef bytes between = b" %b." % inbox
        cdef bytes after = b" %d\r\n%b\r\n" % (len(payload), payload)
        cdef uint8_t[32] number
        while answered < total:
            while asked < total and asked - answered < in_flight:
                self.put(<const char*>before, len(before))
                if spread:
                    ending = asked * SPREAD_STEP % spread
                    if groups > 1:
                        self.put(number, put_number(number, ending % groups))
                        self.put(".", 1)
                    self.put(number, put_number(number, ending))
                self.put(<const char*>between, len(between))
                self.put(number, put_number(number, asked))
                self.put(<const char*>after, len(after))
                latencies_ns[asked] = -monotonic_ns()
                asked += 1
            used = self.step(&line, arguments, &count)
            if used == 0:
                self.send()
                self.fill()
                continue
            if line.operation == OP_MSG or line.operation == OP_HMSG:
                self._check_answer(&line, arguments, count, used)
                place = number_behind(&arguments[0], len(inbox) + 1)
                if place < 0 or place >= asked or latencies_ns[place] >= 0:
                    raise FormatError("an answer to no request")
                latencies_ns[place] += monotonic_ns()
                answered += 1
            else:
                self.note(&line)
            self.start += used

    def consume_many(self, int64_t wanted, bytes ack not None, bytes ask not None=b"",
                     int64_t batch=0, int64_t in_flight=1):
        """Wait until `wanted` messages of a JetStream consumer have passed; for benches.

        `ack` is published to each one's reply subject, b"" for none. `ask` is the frame of a pull
        request for `batch` messages, which divides `wanted`; `in_flight` of them wait at a time.
        Without it the consumer pushes by itself. Flow control is answered; any other status is
        RefusedByServer, since who is promised messages is not told to wait.
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
                self.put(<const char*>ask, len(ask))
                asked += batch
            used = self.step(&line, arguments, &count)
            if used == 0:
                self.send()
                self.fill()
                continue
            if line.operation != OP_MSG and line.operation != OP_HMSG:
                self.note(&line)
            elif line.operation == OP_MSG or not self._is_status(arguments, count, used):
                seen += 1
                if acks and count == (5 if line.operation == OP_HMSG else 4):
                    self.put("PUB ", 4)
                    self.put(arguments[2].text, arguments[2].size)
                    self.put(<const char*>rest, len(rest))
                    if self.out_used >= SEND_AT:
                        self.send()
            else:
                reply = flow_reply(self.message(&line, arguments, count, used))
                if reply:
                    self.publish(reply, b"")
                    self.send()
            self.start += used
        self.send()

    cdef bint _is_status(self, const Argument* arguments, int count, Py_ssize_t used) noexcept:
        # A status stands behind the version, where stored headers have a line end.
        cdef int64_t size = parse_size(&arguments[count - 1])
        cdef const uint8_t* body = self.data + self.start + used - 2 - size
        return size >= 12 and memcmp(body, b"NATS/1.0 ", 9) == 0

    cdef int _check_answer(
        self, const Line* line, const Argument* arguments, int count, Py_ssize_t used
    ) except -1:
        # A status, or JetStream's error, is not what was asked for.
        cdef int64_t size = parse_size(&arguments[count - 1])
        cdef const uint8_t* body = self.data + self.start + used - 2 - size
        if line.operation == OP_HMSG and size >= 12 and memcmp(body, b"NATS/1.0 ", 9) == 0:
            if memcmp(body + 9, b"503", 3) == 0:
                raise FormatError("nobody answers requests")
            raise FormatError(f"a request was refused: {_text(body[9:12])}")
        if line.operation == OP_MSG and size >= 8 and memcmp(body, b'{"error"', 8) == 0:
            raise FormatError(f"a request was refused: {_text(body[:size])}")
        return 0

    def wait_pong(self, uint64_t pongs):
        """Wait until so many PONGs have come in all; messages that come before are kept.

        Gives those messages.
        """
        cdef Line line
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = 0
        cdef Py_ssize_t used
        messages = []
        while self.pongs < pongs:
            used = self.step(&line, arguments, &count)
            if used == 0:
                self.fill()
                continue
            if line.operation == OP_MSG or line.operation == OP_HMSG:
                messages.append(self.message(&line, arguments, count, used))
            else:
                self.note(&line)
            self.start += used
        return messages

    def wait_info(self):
        """Wait for an INFO; gives its JSON."""
        cdef Line line
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = 0
        cdef Py_ssize_t used
        while not self.infos:
            used = self.step(&line, arguments, &count)
            if used == 0:
                self.fill()
                continue
            self.note(&line)
            self.start += used
        return self.infos[-1]
