"""Direct gets of the last message of a subject, compiled: requests without a body.

The subject stands behind the stream's name in the subject of the request. A message that is found
is sent as it lies in the store, with headers that say where it is from. Everything else goes to
`api.direct_get`: a request with a body, a pattern, a message that is not there.

Invariant: what is sent is what `api.direct_get` would send.

Thread: the event loop's.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from penstock.format.record cimport FLAG_ENVELOPED
from penstock.protocol.lines cimport put_number
from penstock.routing.hub cimport TAKEN_BY_PYTHON, Hub, route
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription
from penstock.store.log.block cimport StoredMessage

from penstock.errors import CorruptStore, RecordNotFound

cdef enum:
    # The names of the headers, a sequence and a time take less than this.
    HEADERS_ROOM = 256
    TIME_BYTES_MAX = 30


cdef inline uint8_t* _put(uint8_t* out, const char* text, size_t size) noexcept:
    memcpy(out, text, size)
    return out + size


cdef inline uint8_t* _put_digits(uint8_t* out, uint64_t number, int count) noexcept:
    cdef int place
    for place in range(count - 1, -1, -1):
        out[place] = <uint8_t>(48 + number % 10)
        number //= 10
    return out + count


cdef uint8_t* put_time(uint8_t* out, int64_t time_ns) noexcept:
    # RFC 3339 in UTC, without zeros at the end; TIME_BYTES_MAX at the most, for years up to 2262.
    cdef int64_t seconds = time_ns // 1000000000
    cdef int64_t rest_ns = time_ns - seconds * 1000000000
    if rest_ns < 0:
        rest_ns += 1000000000
        seconds -= 1
    cdef int64_t days = seconds // 86400
    cdef int64_t second = seconds - days * 86400
    if second < 0:
        second += 86400
        days -= 1
    # Counted from a March so that the leap day is last, in eras of 400 years.
    days += 719468
    cdef int64_t era = (days if days >= 0 else days - 146096) // 146097
    cdef int64_t rest = days - era * 146097
    cdef int64_t year = (rest - rest // 1460 + rest // 36524 - rest // 146096) // 365
    rest -= 365 * year + year // 4 - year // 100
    cdef int64_t month = (5 * rest + 2) // 153
    cdef int64_t day = rest - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (1 if month <= 2 else 0)
    out = _put_digits(out, <uint64_t>year, 4)
    out = _put_digits(_put(out, b"-", 1), <uint64_t>month, 2)
    out = _put_digits(_put(out, b"-", 1), <uint64_t>day, 2)
    out = _put_digits(_put(out, b"T", 1), <uint64_t>(second // 3600), 2)
    out = _put_digits(_put(out, b":", 1), <uint64_t>(second // 60 % 60), 2)
    out = _put_digits(_put(out, b":", 1), <uint64_t>(second % 60), 2)
    if rest_ns:
        out = _put_digits(_put(out, b".", 1), <uint64_t>rest_ns, 9)
        while out[-1] == 48:
            out -= 1
    return _put(out, b"Z", 1)


def time_text(int64_t time_ns):
    """Return a time as the headers have it."""
    cdef uint8_t[TIME_BYTES_MAX] text
    cdef uint8_t* end = put_time(text, time_ns)
    return (<const char*>text)[:end - text]


cdef class Lookup(Receiver):
    """Answers for one stream, under its own name or that of its origin; see the module."""

    cdef Hub hub
    cdef Sublist sublist
    cdef object store
    cdef object callback
    cdef bytes name_line
    cdef size_t start_size
    cdef uint8_t* room
    cdef size_t room_size

    def __init__(
        self, Hub hub not None, Sublist sublist not None, store, bytes name not None,
        size_t start_size, callback,
    ):
        """`start_size` is how much of a request's subject stands before the subject it asks for.

        `callback(subject, reply, headers, body)` is called for everything else.
        """
        self.hub = hub
        self.sublist = sublist
        self.store = store
        self.name_line = b"Nats-Stream: %b\r\nNats-Subject: " % name
        self.start_size = start_size
        self.callback = callback

    def __dealloc__(self):
        free(self.room)

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        if frame.payload_size or not frame.reply_size or not self._answer(frame):
            self.callback(
                frame.subject[:frame.subject_size],
                frame.reply[:frame.reply_size] if frame.reply_size else None,
                frame.payload[:frame.headers_size],
                frame.payload[frame.headers_size:frame.payload_size],
            )
        return TAKEN_BY_PYTHON

    def on_auto_unsubscribed(self, Subscription subscription):
        """Never: the server unsubscribes it."""

    cdef bint _answer(self, const Frame* request) except -1:
        cdef const uint8_t* wanted = request.subject + self.start_size
        cdef size_t wanted_size = request.subject_size - self.start_size
        cdef StoredMessage message
        cdef Frame frame
        # A wildcard token makes it a pattern; a name with such a letter is only slower.
        if memchr(wanted, 42, wanted_size) != NULL or memchr(wanted, 62, wanted_size) != NULL:
            return False
        try:
            message = self.store.load_last(wanted[:wanted_size])
        except (RecordNotFound, CorruptStore):
            return False
        if message.flags & FLAG_ENVELOPED:
            return False
        frame.subject = request.reply
        frame.subject_size = request.reply_size
        frame.reply = NULL
        frame.reply_size = 0
        frame.size_text = frame.headers_text = NULL
        frame.size_text_size = frame.headers_text_size = 0
        self._write(message, &frame)
        route(self.hub, self.sublist, None, &frame)
        return True

    cdef int _write(self, StoredMessage message, Frame* frame) except -1:
        cdef const uint8_t* raw = message.raw
        cdef size_t name_size = len(self.name_line)
        cdef size_t room = (
            HEADERS_ROOM + name_size + message.subject_size + message.headers_size
            + message.payload_size
        )
        cdef uint8_t* out
        if room > self.room_size:
            out = <uint8_t*>realloc(self.room, room)
            if out == NULL:
                raise MemoryError
            self.room = out
            self.room_size = room
        out = self.room
        if message.headers_size > 2:
            # Its own headers, without the empty line that ends them.
            out = _put(out, <const char*>raw + message.headers_at, message.headers_size - 2)
        else:
            out = _put(out, b"NATS/1.0\r\n", 10)
        out = _put(out, <const char*>self.name_line, name_size)
        out = _put(out, <const char*>raw + message.subject_at, message.subject_size)
        out = _put(out, b"\r\nNats-Sequence: ", 17)
        out += put_number(out, message.seq)
        out = _put(out, b"\r\nNats-Time-Stamp: ", 19)
        out = put_time(out, message.timestamp_ns)
        out = _put(out, b"\r\n\r\n", 4)
        frame.headers_size = out - self.room
        out = _put(out, <const char*>raw + message.payload_at, message.payload_size)
        frame.payload = self.room
        frame.payload_size = out - self.room
        return 0
