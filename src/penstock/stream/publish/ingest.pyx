"""The compiled half of a stream's publish path: from a published message to its acknowledgement.

A plain message goes straight into the store's active block, and its acknowledgement waits here for
its sequence. A message is plain if the stream's configuration needs no rules and no header but a
message id concerns the stream; without an id it costs no Python object. A plain member of an atomic
batch is added to the batch, which `Publishing` has opened and will commit. Everything else goes to
`Stream.take`, which stores it and leaves its acknowledgement here too. `release` sends what has
become durable.

Invariant: no acknowledgement is sent before its message is durable, and none overtakes that of an
earlier message.

Thread: the event loop's.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from penstock.protocol.lines cimport put_number
from penstock.routing.hub cimport Hub, route
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription
from penstock.store.log.fast_append cimport Appender
from penstock.protocol.headers cimport (
    IDENTIFIED, ORDINARY, SPECIAL, Kind, Value, classify, find_member,
)
from penstock.stream.publish.message_ids cimport MessageIds

from penstock.errors import PenstockError

cdef enum:
    # A queue that grew beyond this frees its memory when it is empty.
    ROOM_KEPT = 262144
    # JetStream's own bound of a message's headers.
    HEADERS_MAX = 65535
    # What a message counts for beside its texts.
    RECORD_OVERHEAD = 34
    # A larger member is judged in Python: it may be larger than a record may be.
    MEMBER_BYTES_MAX = 1048576


cdef struct Waiting:
    uint64_t seq
    uint32_t reply_size
    # Headers and body lie together.
    uint32_t payload_size
    uint32_t headers_size


cdef class AckQueue:
    """Acknowledgements in the order in which they will be sent."""

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t* reserve(self, size_t more) except NULL:
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

    cdef int put(self, uint64_t seq, bytes reply, bytes headers, bytes body) except -1:
        cdef Waiting head
        cdef size_t reply_size = len(reply), headers_size = len(headers), body_size = len(body)
        cdef uint8_t* out = self.reserve(sizeof(Waiting) + reply_size + headers_size + body_size)
        head.seq = seq
        head.reply_size = <uint32_t>reply_size
        head.payload_size = <uint32_t>(headers_size + body_size)
        head.headers_size = <uint32_t>headers_size
        memcpy(out, &head, sizeof(Waiting))
        out += sizeof(Waiting)
        memcpy(out, <const char*>reply, reply_size)
        memcpy(out + reply_size, <const char*>headers, headers_size)
        memcpy(out + reply_size + headers_size, <const char*>body, body_size)
        self.end += sizeof(Waiting) + reply_size + headers_size + body_size
        self.count += 1
        return 0


cdef class Members:
    """The members of an open atomic batch."""

    def __init__(self, room not None):
        """`room` is the server's quota for batches, which the members' bytes count in."""
        self.entries = []
        self.room = room
        self.count_max = room.messages_max

    def add(self, entry, int64_t size):
        """Add a member of so many bytes; return False if the quota is used up."""
        if self.room.bytes + size > self.room.bytes_max:
            return False
        self.room.bytes += size
        self.bytes += size
        self.entries.append(entry)
        return True


cdef class Ingest(Receiver):
    """One stream's publish path; see the module."""

    def __init__(self, Hub hub not None, Sublist sublist not None, stream,
                 bytes ack_start not None, MessageIds message_ids not None):
        """`stream.take(subject, reply, headers, body)` is called for messages that are not plain.

        An acknowledgement is `ack_start`, the sequence and more fields.
        """
        self.hub = hub
        self.sublist = sublist
        self.stream = stream
        self.ack_start = ack_start
        self.message_ids = message_ids
        self.waiting = AckQueue()
        self.open_batches = {}

    def attach(self, Appender appender not None, uint64_t durable_seq):
        """Append to this store from now on, which is durable up to a sequence."""
        self.appender = appender
        self.durable_seq = durable_seq

    @property
    def waiting_count(self):
        """How many acknowledgements wait."""
        return self.waiting.count

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        cdef uint64_t seq = 0
        cdef Kind kind = SPECIAL
        cdef Value message_id
        if not self.careful and not _is_fast_batch(frame):
            kind = _kind_of(frame, &message_id)
            if kind == IDENTIFIED and not self.message_ids.is_ready:
                kind = SPECIAL
            if kind == SPECIAL and self.open_batches and self._put_member(frame):
                return 1
        if kind != SPECIAL and self._open_batch():
            if kind == IDENTIFIED:
                seq = self._put_once(frame, message_id.start[:message_id.size])
                if self.is_answered:
                    return 1
            else:
                seq = self._put(frame)
        if seq == 0:
            self.stream.take(
                frame.subject[:frame.subject_size],
                frame.reply[:frame.reply_size] if frame.reply_size else None,
                frame.payload[:frame.headers_size],
                frame.payload[frame.headers_size:frame.payload_size],
            )
        elif frame.reply_size and not self.silent:
            self._hold_plain(seq, frame)
        return 1

    def take_traced(self, bytes subject not None, bytes reply, bytes headers not None,
                    bytes body not None, trace not None):
        """Take a traced message; the trace notes what becomes of it."""
        self.stream.take(subject, reply, headers, body, trace=trace)

    cdef uint64_t _put(self, const Frame* frame) except? 0xFFFFFFFFFFFFFFFF:
        cdef int64_t size = <int64_t>(frame.subject_size + frame.payload_size) + RECORD_OVERHEAD
        cdef uint64_t seq
        if size > self.bytes_left:
            return 0
        seq = self.appender.put(
            frame.subject, frame.subject_size, frame.payload, frame.headers_size,
            frame.payload + frame.headers_size, frame.payload_size - frame.headers_size,
        )
        if seq:
            self.bytes_left -= size
        return seq

    cdef uint64_t _put_once(
        self, const Frame* frame, bytes message_id
    ) except? 0xFFFFFFFFFFFFFFFF:
        # Stores a message, unless one with the same id is stored: then answers its publisher.
        cdef uint64_t seq
        self.is_answered = False
        if 0 < self.appender.body_bytes_max < <int64_t>frame.payload_size:
            # Too large: refused, even if it is a duplicate.
            return 0
        seq = self.message_ids.find(message_id, self.appender.stamp_ns)
        self.is_answered = seq != 0
        if seq:
            if frame.reply_size and not self.silent:
                self.hold(seq, frame.reply[:frame.reply_size], self.duplicate_ack(seq))
            return 0
        seq = self._put(frame)
        if seq:
            self.message_ids.remember(message_id, seq, self.appender.stamp_ns)
        return seq

    cdef bint _put_member(self, const Frame* frame) except -1:
        # Adds the next member of a batch; False for a message that Python has to judge.
        cdef Value batch_id
        cdef Value digits
        cdef Members members
        cdef int64_t size = <int64_t>(frame.subject_size + frame.payload_size)
        if (
            frame.reply_size or frame.headers_size > HEADERS_MAX or size > MEMBER_BYTES_MAX
            or size + RECORD_OVERHEAD > self.bytes_left
            or 0 < self.appender.body_bytes_max < <int64_t>frame.payload_size
            or not find_member(frame.payload, frame.headers_size, &batch_id, &digits)
        ):
            return False
        members = self.open_batches.get(batch_id.start[:batch_id.size])
        if (
            members is None or len(members.entries) >= members.count_max
            or _number(&digits) != len(members.entries) + 1
        ):
            return False
        entry = (
            frame.subject[:frame.subject_size],
            frame.payload[:frame.headers_size],
            frame.payload[frame.headers_size:frame.payload_size],
        )
        if not members.add(entry, size):
            return False
        self.bytes_left -= size + RECORD_OVERHEAD
        members.is_touched = True
        if not self.has_touched:
            self.has_touched = True
            self.hub.finishing.append(self)
        return True

    cdef int _open_batch(self) except -1:
        # 1 if the appender is ready; 0 if the store takes no writes, which `take` will report.
        if self.is_batch_open:
            return 1
        try:
            self.appender.begin()
        except PenstockError:
            return 0
        self.is_batch_open = True
        self.hub.finishing.append(self)
        return 1

    cdef int finish(self) except -1:
        if self.has_touched:
            self.has_touched = False
            self.stream.on_members()
        if self.is_batch_open:
            self.is_batch_open = False
            self.appender.end()
            self.stream.on_stored()
        return 0

    def finish_batch(self):
        """Commit what was appended so far, before the end of the buffer."""
        self.finish()

    cdef int _hold_plain(self, uint64_t seq, const Frame* frame) except -1:
        cdef uint8_t[20] digits
        cdef size_t count = put_number(digits, seq)
        cdef size_t start_size = len(self.ack_start)
        cdef size_t body_size = start_size + count + 1
        cdef AckQueue queue = self.waiting
        cdef Waiting head
        cdef uint8_t* out = queue.reserve(sizeof(Waiting) + frame.reply_size + body_size)
        head.seq = seq
        head.reply_size = <uint32_t>frame.reply_size
        head.payload_size = <uint32_t>body_size
        head.headers_size = 0
        memcpy(out, &head, sizeof(Waiting))
        out += sizeof(Waiting)
        memcpy(out, frame.reply, frame.reply_size)
        out += frame.reply_size
        memcpy(out, <const char*>self.ack_start, start_size)
        memcpy(out + start_size, digits, count)
        out[start_size + count] = b"}"
        queue.end += sizeof(Waiting) + frame.reply_size + body_size
        queue.count += 1
        return 0

    cpdef hold(self, uint64_t seq, bytes reply, bytes body, bytes headers=b""):
        """Publish `body` to `reply` when a sequence is durable, behind all that waits."""
        if seq <= self.durable_seq and not self.waiting.count:
            self.hub.publish(self.sublist, reply, None, headers, body)
        else:
            self.waiting.put(seq, reply, headers, body)

    def ack(self, uint64_t seq, bytes more=b""):
        """Return the acknowledgement of a message, with more fields."""
        return b"%b%d%b}" % (self.ack_start, seq, more)

    cpdef bytes duplicate_ack(self, uint64_t seq):
        """Return the acknowledgement of a message that was stored before."""
        return b'%b%d,"duplicate": true}' % (self.ack_start, seq)

    def release(self, uint64_t durable_seq):
        """Send the acknowledgements of all messages up to a durable sequence."""
        cdef AckQueue queue = self.waiting
        cdef AckQueue meanwhile
        cdef Waiting head
        cdef Frame frame
        self.durable_seq = max(self.durable_seq, durable_seq)
        if not queue.count:
            return
        # An answer may be published to this very stream: that one's waits in another queue.
        meanwhile = self.waiting = AckQueue()
        frame.reply = NULL
        frame.reply_size = 0
        frame.size_text = frame.headers_text = NULL
        frame.size_text_size = frame.headers_text_size = 0
        while queue.count:
            memcpy(&head, queue.data + queue.start, sizeof(Waiting))
            if head.seq > self.durable_seq:
                break
            frame.subject = queue.data + queue.start + sizeof(Waiting)
            frame.subject_size = head.reply_size
            frame.payload = frame.subject + head.reply_size
            frame.payload_size = head.payload_size
            frame.headers_size = head.headers_size
            queue.start += sizeof(Waiting) + head.reply_size + head.payload_size
            queue.count -= 1
            route(self.hub, self.sublist, None, &frame)
        if meanwhile.count:
            memcpy(queue.reserve(meanwhile.end), meanwhile.data, meanwhile.end)
            queue.end += meanwhile.end
            queue.count += meanwhile.count
        self.waiting = queue
        if not queue.count:
            queue.start = queue.end = 0
            if queue.room > ROOM_KEPT:
                free(queue.data)
                queue.data = NULL
                queue.room = 0


cdef int64_t _number(const Value* digits) noexcept:
    # A member's number, or -1.
    cdef int64_t number = 0
    cdef size_t at
    if digits.size > 9:
        return -1
    for at in range(digits.size):
        if not 48 <= digits.start[at] <= 57:
            return -1
        number = number * 10 + digits.start[at] - 48
    return number


cdef inline bint _is_fast_batch(const Frame* frame) noexcept:
    # The reply of a message of a fast batch ends with `.$FI`.
    return frame.reply_size > 4 and memcmp(frame.reply + frame.reply_size - 4, b".$FI", 4) == 0


cdef inline Kind _kind_of(const Frame* frame, Value* message_id) noexcept:
    if frame.headers_size > HEADERS_MAX:
        return SPECIAL
    if frame.headers_size:
        return classify(frame.payload, frame.headers_size, message_id)
    return ORDINARY
