"""What a stream publishes once sequences are durable: acknowledgements, and copies of messages.

A copy of a stored message is published under another subject (`republish`), and says where it
comes from:

    Nats-Stream, Nats-Subject, Nats-Sequence, Nats-Time-Stamp    of the stored message
    Nats-Last-Sequence    of the message before it with its subject, 0 for none
    Nats-Msg-Size         of its body, if the copy has none

Invariant: what was added first is sent first.

Thread: the event loop's; for `Ingest`.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, strlen

from penstock.protocol.lines cimport put_number
from penstock.routing.hub cimport Hub, route
from penstock.routing.sublist cimport Frame, Sublist

from penstock.text.times import timestamp

cdef enum:
    # A queue that grew beyond this frees its memory when it is empty.
    ROOM_KEPT = 262144


cdef struct Waiting:
    uint64_t seq
    uint32_t subject_size
    # Headers and body lie together.
    uint32_t payload_size
    uint32_t headers_size
    # Whether nobody waits for it: a message that is published again.
    bint is_copy


cdef class AckQueue:
    """Messages in the order in which they will be sent."""

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t* _reserve(self, size_t more) except NULL:
        cdef size_t room = self.room if self.room else 4096
        cdef uint8_t* grown
        if self.end + more <= self.room:
            return self.data + self.end
        if self.start:
            memmove(self.data, self.data + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
        while room < self.end + more:
            room *= 2
        if room > self.room:
            grown = <uint8_t*>realloc(self.data, room)
            if grown == NULL:
                raise MemoryError
            self.data = grown
            self.room = room
        return self.data + self.end

    cdef uint8_t* add(
        self, uint64_t seq, const uint8_t* subject, size_t subject_size, size_t headers_size,
        size_t body_size, bint is_copy=False,
    ) except NULL:
        # Add a message for when a sequence is durable; return where headers and body go.
        cdef Waiting head
        cdef size_t size = sizeof(Waiting) + subject_size + headers_size + body_size
        cdef uint8_t* out = self._reserve(size)
        head.seq = seq
        head.subject_size = <uint32_t>subject_size
        head.payload_size = <uint32_t>(headers_size + body_size)
        head.headers_size = <uint32_t>headers_size
        head.is_copy = is_copy
        memcpy(out, &head, sizeof(Waiting))
        memcpy(out + sizeof(Waiting), subject, subject_size)
        self.end += size
        self.count += 1
        return out + sizeof(Waiting) + subject_size

    cdef int put(self, uint64_t seq, bytes subject, bytes headers, bytes body) except -1:
        cdef uint8_t* out = self.add(seq, subject, len(subject), len(headers), len(body))
        memcpy(out, <const char*>headers, len(headers))
        memcpy(out + len(headers), <const char*>body, len(body))
        return 0

    cdef int take_over(self, AckQueue other) except -1:
        # Have what another queue has, behind the rest.
        if other.count:
            memcpy(
                self._reserve(other.end - other.start), other.data + other.start,
                other.end - other.start,
            )
            self.end += other.end - other.start
            self.count += other.count
        return 0

    cdef int send(self, uint64_t durable_seq, Hub hub, Sublist sublist) except -1:
        # Publish what waits for no sequence beyond `durable_seq`, in order.
        cdef Waiting head
        cdef Frame frame
        frame.reply = NULL
        frame.reply_size = 0
        frame.size_text = frame.headers_text = NULL
        frame.size_text_size = frame.headers_text_size = 0
        while self.count:
            memcpy(&head, self.data + self.start, sizeof(Waiting))
            if head.seq > durable_seq:
                break
            frame.subject = self.data + self.start + sizeof(Waiting)
            frame.subject_size = head.subject_size
            frame.payload = frame.subject + head.subject_size
            frame.payload_size = head.payload_size
            frame.headers_size = head.headers_size
            self.start += sizeof(Waiting) + head.subject_size + head.payload_size
            self.count -= 1
            route(hub, sublist, None, &frame)
        return 0

    cdef int refuse(self, bytes body, Hub hub, Sublist sublist) except -1:
        # Publish `body` in place of every answer that waits for a sequence, and no copies.
        cdef Waiting head
        cdef Frame frame
        frame.reply = NULL
        frame.reply_size = 0
        frame.size_text = frame.headers_text = NULL
        frame.size_text_size = frame.headers_text_size = 0
        while self.count:
            memcpy(&head, self.data + self.start, sizeof(Waiting))
            frame.subject = self.data + self.start + sizeof(Waiting)
            frame.subject_size = head.subject_size
            frame.payload = frame.subject + head.subject_size
            frame.payload_size = head.payload_size
            frame.headers_size = head.headers_size
            self.start += sizeof(Waiting) + head.subject_size + head.payload_size
            self.count -= 1
            if head.is_copy:
                continue
            if head.seq:
                frame.payload = body
                frame.payload_size = len(body)
                frame.headers_size = 0
            route(hub, sublist, None, &frame)
        return 0

    cdef int shrink(self) except -1:
        # Begin at the start again if nothing waits, and keep no more memory than is usual.
        if self.count:
            return 0
        self.start = self.end = 0
        if self.room > ROOM_KEPT:
            free(self.data)
            self.data = NULL
            self.room = 0
        return 0


cdef const char* FIRST_LINE = b"NATS/1.0\r\n"
cdef const char* STREAM = b"Nats-Stream: "
cdef const char* SUBJECT = b"\r\nNats-Subject: "
cdef const char* SEQUENCE = b"\r\nNats-Sequence: "
cdef const char* TIME = b"\r\nNats-Time-Stamp: "
cdef const char* LAST_SEQUENCE = b"\r\nNats-Last-Sequence: "
cdef const char* BODY_SIZE = b"\r\nNats-Msg-Size: "
cdef const char* END = b"\r\n\r\n"


cdef inline uint8_t* _write(uint8_t* out, const char* name, const void* text, size_t size) noexcept:
    cdef size_t name_size = strlen(name)
    memcpy(out, name, name_size)
    memcpy(out + name_size, text, size)
    return out + name_size + size


cdef class CopyText:
    """Writes the copies of a stream's messages."""

    def __init__(self, bytes stream not None):
        """`stream` is its name."""
        self.stream = stream
        self.time_text = b""
        self.names_size = (
            len(stream) + strlen(STREAM) + strlen(SUBJECT) + strlen(SEQUENCE) + strlen(TIME)
            + strlen(LAST_SEQUENCE) + strlen(END)
        )

    cdef int put(
        self, AckQueue queue, uint64_t seq, int64_t time_ns, uint64_t last_seq,
        const uint8_t* target, size_t target_size, const uint8_t* subject, size_t subject_size,
        const uint8_t* headers, size_t headers_size, const uint8_t* body, size_t body_size,
        bint is_empty,
    ) except -1:
        # Add a copy to be published to `target`, without its body if it is to be empty.
        cdef uint8_t[20] seq_text, last_text, size_text
        cdef size_t seq_size = put_number(seq_text, seq)
        cdef size_t last_size = put_number(last_text, last_seq)
        cdef size_t size_size = put_number(size_text, body_size)
        cdef size_t size = self.names_size + subject_size + seq_size + last_size
        cdef uint8_t* out
        if time_ns != self.time_ns or not self.time_text:
            self.time_ns = time_ns
            self.time_text = timestamp(time_ns).encode()
        size += len(self.time_text)
        if is_empty:
            size += strlen(BODY_SIZE) + size_size
        if headers_size < 2:
            headers = <const uint8_t*>FIRST_LINE
            headers_size = strlen(FIRST_LINE)
        else:
            headers_size -= 2
        out = queue.add(
            seq, target, target_size, headers_size + size, 0 if is_empty else body_size, True
        )
        out = _write(out, b"", headers, headers_size)
        out = _write(out, STREAM, <const char*>self.stream, len(self.stream))
        out = _write(out, SUBJECT, subject, subject_size)
        out = _write(out, SEQUENCE, seq_text, seq_size)
        out = _write(out, TIME, <const char*>self.time_text, len(self.time_text))
        out = _write(out, LAST_SEQUENCE, last_text, last_size)
        if is_empty:
            out = _write(out, BODY_SIZE, size_text, size_size)
            body_size = 0
        _write(out, END, body, body_size)
        return 0
