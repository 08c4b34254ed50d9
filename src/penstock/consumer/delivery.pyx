"""From records to receivers: the per-message half of delivery.

A `MessageSender` writes messages as they lie in the store into the outboxes of a subject's
subscribers. They see the subject that a message was stored under, and a reply subject that
acknowledges it. A run sends many messages of a stream to one subject, and notes each as pending; it
makes no Python object per message.

Invariant: a message counts as sent, is noted and passed, only if a subscriber took it.

Thread: the event loop's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from penstock.consumer.pending cimport Pending
from penstock.format.record cimport Record
from penstock.protocol.lines cimport put_number
from penstock.routing.hub cimport Hub, route_as
from penstock.net.link cimport backlog
from penstock.routing.sublist cimport Frame, Matches, Sublist
from penstock.store.log.fast_scan cimport (
    TAKEN_GONE, TAKEN_NONE, TAKEN_UNREAD, Scanner, Taken,
)
from penstock.subjects cimport SubjectFilter

cdef enum:
    # Five numbers of up to 20 digits, and the dots between them.
    NUMBERS_BYTES = 104
    # A receiver with more bytes than this waiting for its socket gets no more for a while: they
    # would only lie in memory.
    BACKLOG_MAX = 4194304
    FIRST_LINE_BYTES = 10
    SIZE_HEADER_BYTES = 15

cdef const char* FIRST_LINE = b"NATS/1.0\r\n"
cdef const char* SIZE_HEADER = b"Nats-Msg-Size: "


cdef bytes _show(const Record* record, Frame* frame, bint headers_only):
    # Put a record's parts into a frame. Headers and payload must lie behind each other; in a record
    # the payload's length stands between them, so both are copied. Return the copy, if any.
    cdef bytes joined
    if headers_only:
        return _show_size(record, frame)
    frame.subject = record.subject
    frame.subject_size = record.subject_size
    frame.headers_size = record.headers_size
    frame.payload_size = record.headers_size + record.payload_size
    frame.payload = record.payload
    if not record.headers_size:
        return None
    joined = PyBytes_FromStringAndSize(NULL, frame.payload_size)
    frame.payload = <const uint8_t*>PyBytes_AS_STRING(joined)
    memcpy(PyBytes_AS_STRING(joined), record.headers, record.headers_size)
    memcpy(
        PyBytes_AS_STRING(joined) + record.headers_size, record.payload, record.payload_size
    )
    return joined


cdef bytes _show_size(const Record* record, Frame* frame):
    # Put a record into a frame without its payload: its headers, with the size of the payload.
    cdef const uint8_t* before = <const uint8_t*>FIRST_LINE
    cdef size_t before_size = FIRST_LINE_BYTES
    cdef unsigned char digits[NUMBERS_BYTES]
    cdef size_t digits_size = put_number(digits, record.payload_size)
    cdef bytes shown
    cdef char* out
    # The empty line that ends headers comes again behind the size.
    if record.headers_size > 2:
        before, before_size = record.headers, record.headers_size - 2
    frame.headers_size = before_size + SIZE_HEADER_BYTES + digits_size + 4
    frame.payload_size = frame.headers_size
    frame.subject = record.subject
    frame.subject_size = record.subject_size
    shown = PyBytes_FromStringAndSize(NULL, frame.payload_size)
    out = PyBytes_AS_STRING(shown)
    frame.payload = <const uint8_t*>out
    memcpy(out, before, before_size)
    memcpy(out + before_size, SIZE_HEADER, SIZE_HEADER_BYTES)
    memcpy(out + before_size + SIZE_HEADER_BYTES, digits, digits_size)
    memcpy(out + before_size + SIZE_HEADER_BYTES + digits_size, b"\r\n\r\n", 4)
    return shown


RUN_END = 0
RUN_COUNT = 1
RUN_BYTES = 2
RUN_UNREAD = 3
RUN_NOBODY = 4
RUN_BEHIND = 5


cdef class MessageSender:
    """Sends one consumer's messages; see the module."""

    def __init__(self, Hub hub not None, Sublist sublist not None, bytes reply_start not None):
        """`reply_start` is what the reply subjects of all messages begin with."""
        self.hub = hub
        self.sublist = sublist
        self.reply_start = len(reply_start)
        self.reply = <unsigned char*>malloc(self.reply_start + NUMBERS_BYTES)
        if self.reply == NULL:
            raise MemoryError
        memcpy(self.reply, <const char*>reply_start, self.reply_start)

    def __dealloc__(self):
        free(self.reply)

    cdef size_t _write_reply(
        self, uint64_t deliveries, uint64_t stream_seq, uint64_t consumer_seq, int64_t time_ns,
        uint64_t pending,
    ) noexcept:
        cdef unsigned char* out = self.reply + self.reply_start
        out += put_number(out, deliveries)
        out[0] = 46
        out += 1
        out += put_number(out, stream_seq)
        out[0] = 46
        out += 1
        out += put_number(out, consumer_seq)
        out[0] = 46
        out += 1
        out += put_number(out, <uint64_t>max(time_ns, 0))
        out[0] = 46
        out += 1
        out += put_number(out, pending)
        return out - self.reply

    def reply_to(self, uint64_t deliveries, uint64_t stream_seq, uint64_t consumer_seq,
                 int64_t time_ns, uint64_t pending):
        """Return the reply subject of a message that is sent in another way."""
        cdef size_t size = self._write_reply(
            deliveries, stream_seq, consumer_seq, time_ns, pending
        )
        return self.reply[:size]

    def has_interest(self, bytes target not None):
        """Return True if a subject has subscribers."""
        cdef Matches found = self.sublist.match(target, len(target))
        return len(found.plain) > 0 or len(found.queues) > 0

    def is_behind(self, bytes target not None):
        """Return True if a subscriber of a subject has too many bytes waiting for its socket."""
        return backlog(self.sublist.match(target, len(target))) > BACKLOG_MAX

    cdef void _begin(self, Frame* frame) noexcept:
        frame.reply = self.reply
        frame.size_text = frame.headers_text = NULL
        frame.size_text_size = frame.headers_text_size = 0

    cdef Taken _next(self, Scanner scanner, list chosen, uint64_t until) except *:
        # Go to the next message, or to the next of those that are chosen. One that is gone counts
        # in a run: to look for it takes time, too.
        cdef Taken taken
        if chosen is None:
            return scanner.next()
        if not chosen or <uint64_t>chosen[-1] > until:
            return TAKEN_NONE
        taken = scanner.find(<uint64_t>chosen[-1])
        if taken == TAKEN_GONE:
            chosen.pop()
        return taken

    cdef bint _give(
        self, Matches found, const Frame* frame, bytes target, list chosen
    ) except -1:
        # Send a message; False where nobody took it.
        if chosen is None:
            return route_as(self.hub, found, None, frame, target, len(target)) != 0
        # It is chosen no more before it is routed, which may lead to messages being removed.
        seq = chosen.pop()
        if route_as(self.hub, found, None, frame, target, len(target)):
            return True
        chosen.append(seq)
        return False

    def run(self, Scanner scanner not None, bytes target not None, SubjectFilter subjects, *,
            uint64_t cursor, uint64_t until, int64_t count_max, int64_t bytes_max,
            bint first_goes, uint64_t consumer_seq, uint64_t num_pending,
            Pending pending not None, int64_t now_ns, list targets=None,
            bint headers_only=False, list chosen=None):
        """Send the messages from `cursor` on to `target`; return why it stopped.

        At most `count_max` messages are sent, with a size of `bytes_max` together (-1: any), but a
        first one of any size if `first_goes`; none above `until`. `consumer_seq` is that of the
        first; `num_pending` counts the matching messages from `cursor` on. What is sent is noted in
        `pending`. Several `targets` are sent one message each in turn. With `headers_only` the size
        of a payload is sent instead of it. Only those that are `chosen` are sent, if that is given:
        their sequences, the next one last; what is sent or gone is removed from it.
        """
        cdef Matches found = self.sublist.match(target, len(target))
        cdef list in_turn = None
        cdef Py_ssize_t place = 0
        cdef Frame frame
        cdef Taken taken
        cdef int64_t size
        # Must live as long as the frame points into it.
        cdef bytes _joined
        self.cursor = cursor
        self.sent = self.sent_bytes = 0
        if not found.plain and not found.queues:
            return RUN_NOBODY
        if scanner.block is not None or backlog(found) > BACKLOG_MAX:
            # The scanner is in use if this delivery is a consequence of another one.
            return RUN_BEHIND
        if targets is not None:
            in_turn = [self.sublist.match(each, len(each)) for each in targets]
        self._begin(&frame)
        scanner.begin(subjects, cursor, until)
        try:
            while self.sent < count_max:
                taken = self._next(scanner, chosen, until)
                if taken == TAKEN_GONE:
                    count_max -= 1
                    num_pending -= num_pending > 0
                    continue
                if taken == TAKEN_NONE:
                    self.cursor = max(self.cursor, until + 1)
                    return RUN_END
                self.cursor = scanner.seq
                if taken == TAKEN_UNREAD:
                    return RUN_UNREAD
                num_pending -= num_pending > 0
                frame.reply_size = self._write_reply(
                    1, scanner.seq, consumer_seq, scanner.record.timestamp_ns, num_pending
                )
                _joined = _show(&scanner.record, &frame, headers_only)
                size = frame.subject_size + frame.reply_size + frame.payload_size
                if 0 <= bytes_max < self.sent_bytes + size and (self.sent or not first_goes):
                    return RUN_BYTES
                if in_turn is not None:
                    found, target = <Matches>in_turn[place], <bytes>targets[place]
                    place = (place + 1) % len(in_turn)
                if not self._give(found, &frame, target, chosen):
                    return RUN_NOBODY
                pending.note(scanner.seq, consumer_seq, now_ns)
                consumer_seq += 1
                self.last_seq = scanner.seq
                self.cursor = scanner.seq + 1
                self.sent += 1
                self.sent_bytes += size
                if (in_turn is not None or self.sent & 63 == 0) and backlog(found) > BACKLOG_MAX:
                    return RUN_BEHIND
        finally:
            scanner.end()
        return RUN_COUNT
