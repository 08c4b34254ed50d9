"""The compiled half of a connection: from bytes that came in to bytes in the receivers' outboxes.

`consume` walks a buffer of operations in place. A publish costs no Python call: its subject is
looked up in the account's sublist, and the message is written into the outbox of every receiver.
Everything else (CONNECT, SUB, UNSUB, PING, errors) is handed to hooks (`on_…`), which the Python
half overrides: `net.channel` those of the socket, `net.connection` those of the protocol. When a
buffer is done, `Hub.flush` writes each receiver's bytes with one system call.

Invariants: an outbox never grows beyond `max_pending`; a receiver that would pass it is marked slow
and closed, and no publisher waits for it. Of an operation that is not complete at most a control
line and a payload are kept.

The clock is read here, once for each buffer that held a publish, and not taken as an argument: the
coarse clock costs a few nanoseconds and no system call, an argument would cost a Python call for
each buffer. Monitoring alone looks at the time (`last_publish_ns`).

One thread: the event loop's.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from penstock.protocol.lines cimport (
    ARGUMENTS_MAX, LINE_SHORT, LINE_TOO_LONG, LINE_UNKNOWN, OP_CONNECT, OP_HMSG, OP_HPUB,
    OP_INFO, OP_MINUS_ERR, OP_MSG, OP_PING, OP_PONG, OP_PUB, OP_SUB, OP_UNSUB, SIZE_BAD, Argument,
    Line, PublishLine, parse_size, put_number, read_line, read_publish, split_arguments,
)
from penstock.protocol.subject_cache cimport same_text
from penstock.routing.hub cimport (
    HEADROOM, READ_BYTES, READ_BYTES_MAX, TAKEN, TAKEN_LATE, Hub, Name, Shadow, keep_name,
    route_to,
)
from penstock.routing.outbox cimport Outbox
from penstock.routing.sublist cimport Frame, Matches, Receiver, Subscription

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int fd, void* data, size_t size, int flags)
    enum:
        MSG_DONTWAIT

cdef extern from "strings.h" nogil:
    int strncasecmp(const char* one, const char* other, size_t size)

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* now)
    enum:
        CLOCK_REALTIME_COARSE

cdef enum:
    # An outbox this full is sent in the middle of a buffer, so that it stays in the caches.
    SEND_EARLY = 131072
    # What one link may cost before others get their turn, some milliseconds, in deliveries. What
    # Python is asked to decide on costs as much as many of them.
    TURN_COST = 100000
    PYTHON_COST = 200
    # What one link may have read before others get their turn.
    TURN_BYTES = 524288
    # A message of at least so many bytes is worth a larger read.
    LARGE_MESSAGE = 32768
    # A kept operation larger than this gives its memory back when it is done.
    TAIL_KEPT = 16384


cdef inline int _spend(Link link, uint32_t cost) except -1:
    link.spent += cost
    if link.spent >= TURN_COST:
        link.spent = 0
        link.on_long_turn()
    return 0


cdef class Link(Receiver):
    """The compiled half of a connection; see the module."""

    def __init__(self, Hub hub not None, int fd):
        self.hub = hub
        self.fd = fd
        self.out = Outbox()
        self.verbose = self.pedantic = self.echo = True
        self.max_payload = 1048576
        self.max_control_line = 4096
        self.max_pending = 67108864

    def __dealloc__(self):
        free(self.tail)

    # Hooks, which the Python half overrides

    def on_connect(self, bytes text):
        """CONNECT came; `text` is its JSON."""

    def on_subscribe(self, bytes subject, bytes queue, bytes sid):
        """SUB came; `queue` is None for a subscription without a queue group."""

    def on_unsubscribe(self, bytes sid, int64_t max_messages):
        """UNSUB came; `max_messages` is -1 where it ends at once."""

    def on_ping(self):
        """PING came."""

    def on_pong(self):
        """PONG came."""

    def on_client_error(self, bytes text):
        """-ERR came."""

    def on_info(self, bytes text):
        """INFO came; `text` is its JSON."""

    def on_publish_line(self, bytes subject):
        """A pedantic client publishes to this subject; its message has yet to come."""

    def on_violation(self, str kind, str text):
        """The client broke the protocol; `text` is the error to send, "" for none."""

    def on_lost(self):
        """The client closed its side, or the connection broke."""

    def on_slow(self):
        """More bytes wait for this receiver than `max_pending`."""

    def on_blocked(self):
        """The socket takes no more bytes: the rest must be sent when it does."""

    def on_auto_unsubscribed(self, Subscription subscription):
        """A subscription has had its last message."""

    def on_stall(self):
        """A receiver is far behind what this client publishes: reading must pause for a moment."""

    def on_long_turn(self):
        """This client has used up its turn: the hook may set `held` and call `release` later."""

    def drain(self):
        """Send what waits through the filters; called where `fd` is -1."""

    def on_refused(self, bytes subject):
        """The client may not publish to this subject: its message goes nowhere."""

    def may_publish(self, bytes subject, bytes reply):
        """Return True if a publish to, or with, a subject that belongs to servers goes on."""
        return True

    def publish_traced(self, bytes subject, bytes reply, bytes headers, bytes body):
        """Publish a message that asks to be traced, and return None.

        Or return the headers with which it goes on as any other message.
        """
        return headers

    def on_oversized(self, bytes subject, bytes headers, int64_t size):
        """A message that asks to be traced is too large; `headers` is what came of them so far."""

    # Coming in

    def on_readable(self):
        """Read what the socket has, route it, and send what receivers gathered."""
        cdef ssize_t got
        cdef size_t wanted, turn = 0
        self.spent = 0
        while not self.closed and not self.held and turn < TURN_BYTES:
            wanted = READ_BYTES if self.tail_wanted < LARGE_MESSAGE else READ_BYTES_MAX
            got = c_recv(self.fd, self.hub.buffer + HEADROOM, wanted, MSG_DONTWAIT)
            if got < 0:
                if errno == EINTR:
                    continue
                if errno != EAGAIN:
                    self.on_lost()
                break
            if got == 0:
                self.on_lost()
                break
            self._consume_read(self.hub.buffer + HEADROOM, got)
            turn += got
            if <size_t>got < wanted:
                break
        self.hub.flush()
        self._stall_if_wanted()

    cdef int _stall_if_wanted(self) except -1:
        if self.stall_wanted:
            self.stall_wanted = False
            if not self.closed:
                self.on_stall()
        return 0

    def feed(self, const uint8_t[::1] data not None):
        """Route bytes that came through filters, and send what receivers gathered."""
        self.spent = 0
        if data.shape[0] and not self.closed:
            self.consume(&data[0], data.shape[0])
        self.hub.flush()
        self._stall_if_wanted()

    def release(self):
        """Clear `held` and go on with what came since; the caller resumes reading."""
        self.held = False
        self.spent = 0
        if self.tail_used and not self.closed:
            self._consume_tail()
        self.hub.flush()
        self._stall_if_wanted()

    cdef int _consume_read(self, uint8_t* data, size_t size) except -1:
        # As `consume`, with HEADROOM before `data`: the kept tail is copied there, so that not all
        # that came must be copied behind the tail.
        cdef size_t kept = self.tail_used
        if 0 < kept <= HEADROOM and kept + size >= self.tail_wanted:
            memcpy(data - kept, self.tail, kept)
            self.tail_used = 0
            self.consume(data - kept, kept + size)
            if self.tail_used == 0 and self.tail_room > TAIL_KEPT:
                self._free_tail()
            return 0
        return self.consume(data, size)

    cdef int consume(self, const uint8_t* data, size_t size) except -1:
        cdef Py_ssize_t used
        cdef uint64_t before = self.in_msgs
        cdef timespec now
        if self.tail_used == 0:
            used = self._parse(data, size)
            if not self.closed and <size_t>used < size:
                self._keep_tail(data + used, size - used)
        else:
            self._keep_tail(data, size)
            if self.tail_used >= self.tail_wanted:
                self._consume_tail()
        if self.in_msgs != before:
            clock_gettime(CLOCK_REALTIME_COARSE, &now)
            self.last_publish_ns = <int64_t>now.tv_sec * 1000000000 + now.tv_nsec
        return 0

    cdef int _consume_tail(self) except -1:
        cdef Py_ssize_t used
        self.parsing = True
        try:
            used = self._parse(self.tail, self.tail_used)
        finally:
            self.parsing = False
        self.tail_used -= used
        if self.closed or (self.tail_used == 0 and self.tail_room > TAIL_KEPT):
            self._free_tail()
        elif self.tail_used:
            memmove(self.tail, self.tail + used, self.tail_used)
        return 0

    cdef void _free_tail(self) noexcept:
        free(self.tail)
        self.tail = NULL
        self.tail_used = self.tail_room = self.tail_wanted = 0

    def let_go(self):
        """Free the buffers of a closed link; return how many bytes they had."""
        cdef size_t freed = self.out.room
        self.out.release()
        if not self.parsing:
            freed += self.tail_used
            self._free_tail()
        return freed

    cdef int _keep_tail(self, const uint8_t* data, size_t size) except -1:
        cdef size_t room = self.tail_room if self.tail_room else 512
        cdef uint8_t* grown
        if self.tail_used + size > self.tail_room:
            while room < self.tail_used + size or room < self.tail_wanted:
                room *= 2
            grown = <uint8_t*>realloc(self.tail, room)
            if grown == NULL:
                raise MemoryError
            self.tail = grown
            self.tail_room = room
        memcpy(self.tail + self.tail_used, data, size)
        self.tail_used += size
        return 0

    cdef Py_ssize_t _parse(self, const uint8_t* data, size_t size) except -2:
        # Return how many bytes were used; the rest is an operation that is not complete.
        cdef size_t at = 0
        cdef Py_ssize_t line_bytes, used, whole
        cdef Line line
        self.tail_wanted = 0
        line.operation = OP_CONNECT
        while at < size and not self.closed and not self.held:
            if self.authorized and not self.pedantic:
                whole = self._publish_plain(data + at, size - at)
                if whole:
                    at += whole
                    continue
            elif not self.authorized and data[at] != 67 and data[at] != 99:
                self.on_violation("authorization", "Authorization Violation")
                return size
            line_bytes = read_line(data + at, size - at, self.max_control_line, &line)
            if line_bytes == LINE_UNKNOWN or (
                line.operation == OP_MSG or line.operation == OP_HMSG
            ):
                self.on_violation("parse", "Unknown Protocol Operation")
                return size
            if line_bytes == LINE_SHORT:
                return at
            if line_bytes == LINE_TOO_LONG:
                self.on_violation("control line", "maximum control line exceeded")
                return size
            if line.operation == OP_PUB or line.operation == OP_HPUB:
                used = self._publish(
                    data + at, size - at, line_bytes, &line, line.operation == OP_HPUB
                )
                if used == 0:
                    return at
                if used < 0:
                    return size
                at += used
                continue
            self._control(&line)
            at += line_bytes
        return at

    cdef Py_ssize_t _publish_plain(self, const uint8_t* start, size_t available) except -2:
        # Return the bytes of a publish that is whole and plain; 0 where `_publish` must look at it.
        cdef PublishLine line
        cdef Frame frame
        cdef int64_t size, headers = 0
        cdef size_t whole
        line.reply.text = line.headers_size.text = NULL
        line.headers_size.size = 0
        if not read_publish(start, available, &line) or line.line_bytes > self.max_control_line:
            return 0
        size = parse_size(&line.size)
        if line.with_headers:
            headers = parse_size(&line.headers_size)
            if not self.headers or headers == SIZE_BAD or headers > size:
                return 0
        whole = line.line_bytes + <size_t>size + 2
        if (
            size == SIZE_BAD or 0 <= self.max_payload < size or available < whole
            or start[whole - 2] != 13 or start[whole - 1] != 10
        ):
            return 0
        frame.subject = line.subject.text
        frame.subject_size = line.subject.size
        frame.reply = line.reply.text
        frame.reply_size = line.reply.size
        frame.payload = start + line.line_bytes
        frame.payload_size = <size_t>size
        frame.headers_size = <size_t>headers
        frame.size_text = line.size.text
        frame.size_text_size = line.size.size
        frame.headers_text = line.headers_size.text
        frame.headers_text_size = line.headers_size.size
        self._take(&frame)
        return whole

    cdef int _take(self, const Frame* frame) except -1:
        self.in_msgs += 1
        self.in_bytes += frame.payload_size
        self.hub.in_msgs += 1
        self.hub.in_bytes += frame.payload_size
        if frame.headers_size and (
            _asks_for_trace(frame.payload, frame.headers_size, self.traces_parents)
        ):
            return self._take_traced(frame)
        return self._route(frame)

    cdef int _take_traced(self, const Frame* frame) except -1:
        cdef bytes before = frame.payload[:frame.headers_size]
        cdef bytes body = frame.payload[frame.headers_size:frame.payload_size]
        cdef bytes headers, payload
        cdef Frame other
        _spend(self, PYTHON_COST)
        reply = frame.reply[:frame.reply_size] if frame.reply_size else None
        headers = self.publish_traced(frame.subject[:frame.subject_size], reply, before, body)
        if headers is None:
            return 0
        if headers == before:
            return self._route(frame)
        payload = headers + body
        other = frame[0]
        other.payload = payload
        other.payload_size = len(payload)
        other.headers_size = len(headers)
        other.size_text = other.headers_text = NULL
        return self._route(&other)

    cdef Py_ssize_t _publish(
        self, const uint8_t* start, size_t available, size_t line_bytes, const Line* line,
        bint with_headers
    ) except -2:
        # Return the bytes of the publish; 0 where more must come; -1 where the link was closed.
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = split_arguments(line.text, line.text_size, arguments, False)
        cdef int sizes = 2 if with_headers else 1
        cdef int64_t size, headers = 0
        cdef size_t whole, present
        cdef Frame frame
        if with_headers and not self.headers:
            self.on_violation("headers", "")
            return -1
        if count < 1 + sizes or count > 2 + sizes:
            self.on_violation("arguments", "")
            return -1
        size = parse_size(&arguments[count - 1])
        if with_headers:
            headers = parse_size(&arguments[count - 2])
        if size == SIZE_BAD or headers == SIZE_BAD or headers > size:
            self.on_violation("size", "")
            return -1
        if 0 <= self.max_payload < size:
            present = min(available - line_bytes, <size_t>headers)
            if _asks_for_trace(start + line_bytes, present, self.traces_parents):
                subject = arguments[0].text[:arguments[0].size]
                self.on_oversized(subject, start[line_bytes:line_bytes + present], size)
            self.on_violation("payload", "Maximum Payload Violation")
            return -1
        whole = line_bytes + <size_t>size + 2
        if self.pedantic and not self.line_judged:
            self.line_judged = True
            _spend(self, PYTHON_COST)
            self.on_publish_line(arguments[0].text[:arguments[0].size])
        # Bytes that cannot be the end of a payload are refused as soon as they are seen.
        if (available >= whole - 1 and start[whole - 2] != 13) or (
            available >= whole and start[whole - 1] != 10
        ):
            self.on_violation("parse", "Unknown Protocol Operation")
            return -1
        if available < whole:
            self.tail_wanted = whole if available == whole - 1 else whole - 1
            return 0
        self.line_judged = False
        frame.subject = arguments[0].text
        frame.subject_size = arguments[0].size
        frame.reply = arguments[1].text
        frame.reply_size = arguments[1].size if count == 2 + sizes else 0
        frame.payload = start + line_bytes
        frame.payload_size = <size_t>size
        frame.headers_size = <size_t>headers
        frame.size_text = arguments[count - 1].text
        frame.size_text_size = arguments[count - 1].size
        frame.headers_text = arguments[count - 2].text
        frame.headers_text_size = arguments[count - 2].size
        self._take(&frame)
        return whole

    cdef int _route(self, const Frame* frame) except -1:
        if _is_reserved(frame):
            _spend(self, PYTHON_COST)
            reply = frame.reply[:frame.reply_size] if frame.reply_size else None
            if not self.may_publish(frame.subject[:frame.subject_size], reply):
                return 0
        elif self.publishing is not None and self._is_refused(frame):
            _spend(self, PYTHON_COST)
            self.on_refused(frame.subject[:frame.subject_size])
            return 0
        if self.verbose:
            self.write(b"+OK\r\n")
        return self._pass_on(frame) if self.mappings is None else self._route_mapped(frame)

    cdef int _route_mapped(self, const Frame* frame) except -1:
        cdef Frame mapped
        cdef Name name
        cdef bytes _kept
        cdef const uint8_t* text
        cdef size_t size
        if not self.mappings.apply(frame.subject, frame.subject_size, &text, &size):
            return self._pass_on(frame)
        _kept = keep_name(&name, text, size)
        mapped = frame[0]
        mapped.subject = name.text
        mapped.subject_size = name.size
        return self._pass_on(&mapped)

    cdef bint _is_refused(self, const Frame* frame) except -1:
        return not self.publishing.allows_raw(frame.subject, frame.subject_size) and (
            self.responses is None or not self.responses.allows_raw(
                frame.subject, frame.subject_size, self.hub.now_ns()
            )
        )

    cdef int _pass_on(self, const Frame* frame) except -1:
        cdef Matches found = None
        cdef bint is_nobody
        cdef int taken = 0
        if (
            frame.subject_size == self.latest_size and self.latest_epoch == self.sublist.epoch
            and same_text(self.latest_subject, frame.subject, frame.subject_size)
        ):
            is_nobody = self.latest_nobody
            if not is_nobody:
                found = <Matches>self.latest
        else:
            found = self._look_up(frame)
            is_nobody = found.is_nobody
        if not is_nobody:
            taken = route_to(self.hub, found, self, frame)
            _spend(self, taken)
        if not taken and self.no_responders and frame.reply_size:
            self.tell_no_responders(
                frame.subject[:frame.subject_size], frame.reply[:frame.reply_size]
            )
        return 0

    cdef Matches _look_up(self, const Frame* frame):
        # Return who subscribed to the frame's subject; kept for the next publish where it can be.
        cdef Matches found = self.sublist.match(frame.subject, frame.subject_size)
        self.latest_size = 0
        if found.is_kept and frame.subject_size <= sizeof(self.latest_subject):
            self.latest = <void*>found
            self.latest_epoch = self.sublist.epoch
            self.latest_nobody = found.is_nobody
            self.latest_size = <uint8_t>frame.subject_size
            memcpy(self.latest_subject, frame.subject, frame.subject_size)
        return found

    cpdef tell_no_responders(self, bytes subject, bytes reply):
        """Send the status 503 to this client's own subscription to the reply subject."""
        cdef Subscription subscription
        cdef Matches found = self.sublist.match(reply, len(reply))
        for subscription in found.plain:
            if subscription.receiver is self and not subscription.closed:
                size = b"%d" % (32 + len(subject))
                self.write(b"".join((
                    b"HMSG ", reply, b" ", subscription.sid, b" ", size, b" ", size,
                    b"\r\nNATS/1.0 503\r\nNats-Subject: ", subject, b"\r\n\r\n\r\n",
                )))
                return

    cdef int _control(self, const Line* line) except -1:
        _spend(self, PYTHON_COST)
        if line.operation == OP_PING:
            self.on_ping()
        elif line.operation == OP_PONG:
            self.on_pong()
        elif line.operation == OP_CONNECT:
            self.on_connect(line.text[:line.text_size])
        elif line.operation == OP_SUB:
            self._take_subscribe(line)
        elif line.operation == OP_UNSUB:
            self._take_unsubscribe(line)
        elif line.operation == OP_MINUS_ERR:
            self.on_client_error(line.text[:line.text_size])
        elif line.operation == OP_INFO:
            self.on_info(line.text[:line.text_size])
        return 0

    cdef int _take_subscribe(self, const Line* line) except -1:
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = split_arguments(line.text, line.text_size, arguments, True)
        if count == 2 or count == 3:
            self.on_subscribe(
                arguments[0].text[:arguments[0].size],
                arguments[1].text[:arguments[1].size] if count == 3 else None,
                arguments[count - 1].text[:arguments[count - 1].size],
            )
        else:
            self.on_violation("arguments", "")
        return 0

    cdef int _take_unsubscribe(self, const Line* line) except -1:
        cdef Argument[ARGUMENTS_MAX] arguments
        cdef int count = split_arguments(line.text, line.text_size, arguments, True)
        if count == 1 or count == 2:
            self.on_unsubscribe(
                arguments[0].text[:arguments[0].size],
                parse_size(&arguments[1]) if count == 2 else -1,
            )
        else:
            self.on_violation("arguments", "")
        return 0

    # Going out

    cdef void _mark_dirty(self):
        if not self.is_dirty:
            self.is_dirty = True
            self.hub.dirty.append(self)

    cdef bint _frame_fits(self, size_t size) noexcept:
        if self.out.end - self.out.start + size > self.max_pending:
            self.slow = True
            return False
        return True

    cdef int send_gathered(self) except -1:
        cdef Py_ssize_t left
        self.is_dirty = False
        if self.slow:
            self.on_slow()
            return 0
        if self.closed or self.blocked:
            return 0
        if self.fd < 0:
            self.drain()
            return 0
        left = self.out.send(self.fd)
        if left < 0:
            self.on_lost()
        elif left > 0:
            self.blocked = True
            self.on_blocked()
        return 0

    cdef int charge(self, int taken) except -1:
        # Charge this link for a receiver that took its message late, or by a Python call.
        if taken == TAKEN_LATE:
            self.stall_wanted = True
            return 0
        return _spend(self, PYTHON_COST)

    cpdef write(self, bytes data):
        """Put protocol bytes into the outbox; the next flush sends them."""
        if self.closed or self.slow:
            return
        self._mark_dirty()
        if self._frame_fits(len(data)):
            self.out.put(<const char*>data, len(data))

    def send_waiting(self):
        """Send what waits once the socket takes bytes again; return True if nothing is left."""
        cdef Py_ssize_t left = self.out.send(self.fd)
        if left < 0:
            self.on_lost()
            return True
        self.blocked = left > 0
        return left == 0

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        # Write the message as this client shall see it; return TAKEN, TAKEN_LATE or 0 for neither.
        cdef Outbox box = self.out
        cdef bint with_headers = frame.headers_size > 0 and self.headers
        cdef size_t skipped = 0 if with_headers or not frame.headers_size else frame.headers_size
        cdef size_t body = frame.payload_size - skipped
        cdef size_t sid_size = len(subscription.sid)
        # The operation, three spaces, two numbers and two line ends take less than 64 bytes.
        cdef size_t room = frame.subject_size + sid_size + frame.reply_size + body + 64
        cdef uint8_t* p
        if self.closed or self.slow:
            return 0
        if not self.is_dirty:
            self._mark_dirty()
        if not self._frame_fits(room):
            return 0
        p = box.data + box.end if box.end + room <= box.room else box.reserve(room)
        if with_headers:
            memcpy(p, <const char*>b"HMSG ", 5)
            p += 5
        else:
            memcpy(p, <const char*>b"MSG ", 4)
            p += 4
        _copy_short(p, frame.subject, frame.subject_size)
        p += frame.subject_size
        p[0] = 32
        p += 1
        _copy_short(p, <const uint8_t*><const char*>subscription.sid, sid_size)
        p += sid_size
        p[0] = 32
        p += 1
        if frame.reply_size:
            memcpy(p, frame.reply, frame.reply_size)
            p += frame.reply_size
            p[0] = 32
            p += 1
        if with_headers:
            p += _put_size(p, frame.headers_size, frame.headers_text, frame.headers_text_size)
            p[0] = 32
            p += 1
        if skipped:
            p += put_number(p, body)
        else:
            p += _put_size(p, body, frame.size_text, frame.size_text_size)
        p[0] = 13
        p[1] = 10
        p += 2
        memcpy(p, frame.payload + skipped, body)
        p += body
        p[0] = 13
        p[1] = 10
        p += 2
        box.end = p - box.data
        self.out_msgs += 1
        self.out_bytes += body
        self.hub.out_msgs += 1
        self.hub.out_bytes += body
        if self.responses is not None and frame.reply_size:
            self.responses.note_raw(frame.reply, frame.reply_size, self.hub.now_ns())
        if self.blocked:
            return TAKEN_LATE if (box.end - box.start) * 4 > self.max_pending * 3 else TAKEN
        if box.end - box.start > SEND_EARLY and self.fd >= 0:
            if box.send(self.fd) > 0:
                self.blocked = True
                self.on_blocked()
        return 1

    def spend(self, uint32_t count):
        """Charge this link's turn for `count` calls of Python."""
        _spend(self, min(count, <uint32_t>(TURN_COST // PYTHON_COST)) * PYTHON_COST)

    def count_in(self, uint64_t size):
        """Count a message that this client published another way than by PUB."""
        self.in_msgs += 1
        self.in_bytes += size


cdef inline bint _begins(
    const uint8_t* text, size_t size, const char* start, size_t length
) noexcept:
    return size >= length and memcmp(text, start, length) == 0


cdef inline void _copy_short(uint8_t* out, const uint8_t* text, size_t size) noexcept nogil:
    # As memcpy, without a call for the length of most subjects.
    cdef uint64_t first, last
    if size <= 16 and size >= 8:
        memcpy(&first, text, 8)
        memcpy(&last, text + size - 8, 8)
        memcpy(out, &first, 8)
        memcpy(out + size - 8, &last, 8)
    elif size == 1:
        out[0] = text[0]
    else:
        memcpy(out, text, size)


cdef inline size_t _put_size(
    uint8_t* out, size_t size, const uint8_t* text, size_t text_size
) noexcept:
    # Write a size as its publisher did, leading zeros and all; a plain number where `text` is NULL.
    if text == NULL:
        return put_number(out, size)
    memcpy(out, text, text_size)
    return text_size


cdef bint _asks_for_trace(const uint8_t* headers, size_t size, bint with_parents) noexcept nogil:
    # Return True if a line begins with the name of a header that may ask for a trace.
    cdef const uint8_t* end = headers + size
    cdef const uint8_t* place = headers
    while True:
        place = <const uint8_t*>memchr(place, 10, end - place)
        if place == NULL:
            return False
        place += 1
        if end - place < 16:
            return False
        if place[0] == 78 and memcmp(place, <const char*>b"Nats-Trace-Dest:", 16) == 0:
            return True
        if with_parents and strncasecmp(<const char*>place, "traceparent:", 12) == 0:
            return True


cdef bint _is_reserved(const Frame* frame) noexcept:
    # Return True for subjects and replies that belong to servers: `may_publish` decides on them.
    if frame.subject[0] == 36 or frame.subject[0] == 95:
        if _begins(frame.subject, frame.subject_size, "$NRG.", 5):
            return True
        if _begins(frame.subject, frame.subject_size, "_GR_.", 5):
            return True
        if _begins(frame.subject, frame.subject_size, "$GR.", 4):
            return True
    if frame.reply_size and (frame.reply[0] == 36 or frame.reply[0] == 95):
        return (
            _begins(frame.reply, frame.reply_size, "$JS.ACK.", 8)
            or _begins(frame.reply, frame.reply_size, "_R_.", 4)
            or _begins(frame.reply, frame.reply_size, "_GR_.", 5)
            or _begins(frame.reply, frame.reply_size, "$GR.", 4)
        )
    return False


cdef size_t backlog(Matches found) noexcept:
    # Return the bytes that wait for that of these receivers whose socket is furthest behind.
    cdef size_t most = 0
    cdef list members
    cdef Py_ssize_t place
    for place in range(len(found.plain)):
        most = max(most, _backlog_of((<Subscription>found.plain[place]).receiver))
    for members in found.queues:
        for place in range(len(members)):
            most = max(most, _backlog_of((<Subscription>members[place]).receiver))
    return most


cdef size_t _backlog_of(Receiver receiver) noexcept:
    if isinstance(receiver, Shadow):
        receiver = (<Shadow>receiver).original.receiver
    if not isinstance(receiver, Link) or not (<Link>receiver).blocked:
        return 0
    return (<Link>receiver).out.pending()
