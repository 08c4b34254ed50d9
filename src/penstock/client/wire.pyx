"""The client's side of the protocol over one blocking socket: frames out, messages in.

Publishing encodes into one buffer that is sent when it is large or when the client waits. Receiving
parses the bytes of the socket in place; a message becomes a Python object only when it is asked
for. `columns`, `row_publisher` and `bench.loops` read and write the buffers directly.

Blocking, with the socket's own timeout; one thread at a time. Waiting releases the interpreter
lock, and ends when a signal's handler raises. With TLS the bytes go through the socket object.
"""

from cpython.exc cimport PyErr_CheckSignals

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from dataclasses import dataclass

from penstock.errors import FormatError

from penstock.protocol.lines cimport (
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


cdef bint is_text(const Argument* argument, bytes text) noexcept:
    return argument.size == <size_t>len(text) and (
        memcmp(argument.text, <const char*>text, argument.size) == 0
    )


cdef int64_t number_behind(const Argument* subject, size_t before) noexcept nogil:
    # The number behind the first `before` bytes of a subject, or SIZE_BAD.
    cdef Argument number
    if subject.size <= before:
        return SIZE_BAD
    number.text = subject.text + before
    number.size = subject.size - <uint32_t>before
    return parse_size(&number)


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that a client received; `headers` is the raw block, b"" for none."""

    subject: bytes
    sid: bytes
    reply: bytes
    headers: bytes
    payload: bytes


cdef class Wire:
    """One connection's bytes; see the module."""

    def __init__(self, int fd):
        """Use the descriptor of a connected, blocking socket; the caller keeps it open."""
        self.fd = fd
        self.infos = []
        self.errors = []

    def secure(self, secured not None):
        """Continue through an encrypted socket on the same descriptor, with its own timeout."""
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
        """Add a publish to what will be sent; send when enough has gathered."""
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

    cpdef send(self):
        """Send everything that has gathered; raise OSError."""
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
        # Wait for more bytes and append them; raise at the end of the connection.
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
        # Parse the operation at the front; return its size, or 0 if more bytes must come.
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
        """Wait for the next message; raise TimeoutError, ConnectionError."""
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
        return ReceivedMessage(
            arguments[0].text[:arguments[0].size],
            arguments[1].text[:arguments[1].size],
            arguments[2].text[:arguments[2].size] if has_reply else b"",
            payload[:headers],
            payload[headers:size],
        )

    def wait_pong(self, uint64_t pongs):
        """Wait until `pongs` PONGs have come in all; return the messages that came before."""
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
        """Wait for an INFO; return its JSON."""
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
