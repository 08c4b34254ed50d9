"""Direct gets of the last message of a subject, compiled: requests without a body.

The subject stands behind the stream's name in the subject of the request. A message that is found
is sent as it lies in the store, with headers that say where it is from. Everything else goes to
`api.direct_get`: a request with a body, a pattern, a message that is not there.

Invariant: what is sent is what `api.direct_get` would send.

Thread: the event loop's.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from penstock.format.record cimport FLAG_ENVELOPED
from penstock.protocol.lines cimport put_number
from penstock.routing.hub cimport TAKEN_BY_PYTHON, Hub, route
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription
from penstock.store.log.block cimport StoredMessage
from penstock.text.clock_text cimport put_time

from penstock.errors import CorruptStore, RecordNotFound

cdef enum:
    # The names of the headers, a sequence and a time take less than this.
    HEADERS_ROOM = 256


cdef inline uint8_t* _put(uint8_t* out, const char* text, size_t size) noexcept:
    memcpy(out, text, size)
    return out + size


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
