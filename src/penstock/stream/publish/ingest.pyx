"""The compiled half of a stream's publish path: from a published message to its acknowledgement.

A message is judged by the stream's compiled `Rules`, goes straight into the store's active block,
and its acknowledgement waits here for its sequence. That costs no Python object, but for a message
id. A plain member of an atomic batch is added to the batch, which `Publishing` has opened and will
commit. What is rare goes to `Stream.take`: schedules, batches, a rollup of the whole stream, what
the store refuses. It is judged by the same rules, and its answer waits here too. `release` sends
what has become durable.

Invariant: no acknowledgement is sent before its message is durable, and none overtakes that of an
earlier message.

Thread: the event loop's.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from penstock.protocol.headers cimport (
    BATCH_ID, BATCH_SEQ, EXPECTED_LAST_ID, MESSAGE_ID, REQUEST_INFO, SCHEDULE, TTL, Value, bit_of,
    is_plain_start, read_stream_headers, size_in,
)
from penstock.protocol.lines cimport put_number
from penstock.routing.hub cimport Hub
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription
from penstock.store.log.fast_append cimport Appender
from penstock.stream.interest cimport Interest
from penstock.stream.publish.ack_queue cimport AckQueue, CopyText
from penstock.stream.publish.message_ids cimport MessageIds
from penstock.stream.publish.rules cimport (
    ACCEPTED, DUPLICATE, EVERYTHING, ITS_SUBJECT, NOTHING, UNDECIDED, Message, Rules,
)
from penstock.stream.publish.ttl cimport TTL_MALFORMED, read_ttl
from penstock.subjects cimport is_literal_raw

from penstock.errors import PenstockError
from penstock.store.interface import NEVER_NS

cdef int64_t NEVER = NEVER_NS

cdef enum:
    # JetStream's own bound of a message's headers.
    HEADERS_MAX = 65535
    # What a member counts for beside its texts.
    RECORD_OVERHEAD = 34
    # A larger member is judged in Python: it may be larger than a record may be.
    MEMBER_BYTES_MAX = 1048576
    # What stands before and behind the number in a counter's body.
    VALUE_START = 8
    VALUE_END = 2

cdef const char* VALUE = b',"val":"'


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
        self.interest = Interest()
        self.waiting = AckQueue()
        self.open_batches = {}

    def attach(self, Appender appender not None, Rules rules not None, uint64_t durable_seq):
        """Append to this store by these rules from now on; it is durable up to a sequence."""
        self.finish()
        self.appender = appender
        self.rules = rules
        self.copy_text = CopyText(rules.name)
        self.refused_for = ACCEPTED
        self.durable_seq = durable_seq

    @property
    def waiting_count(self):
        """How many acknowledgements wait."""
        return self.waiting.count

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        if self.careful or _is_fast_batch(frame) or not self._take(frame):
            self.stream.take(
                frame.subject[:frame.subject_size],
                frame.reply[:frame.reply_size] if frame.reply_size else None,
                frame.payload[:frame.headers_size],
                frame.payload[frame.headers_size:frame.payload_size],
            )
        return 1

    def take_traced(self, bytes subject not None, bytes reply, bytes headers not None,
                    bytes body not None, trace not None):
        """Take a traced message; the trace notes what becomes of it."""
        self.stream.take(subject, reply, headers, body, trace=trace)

    cdef bint _take(self, const Frame* frame) except -1:
        # Store or refuse a message, or find it stored already. False for one that Python has to
        # judge: nothing has changed then.
        cdef Message message
        cdef Rules rules = self.rules
        cdef int reason
        message.subject = frame.subject
        message.subject_size = frame.subject_size
        message.headers = frame.payload
        message.headers_size = frame.headers_size
        message.body = frame.payload + frame.headers_size
        message.body_size = frame.payload_size - frame.headers_size
        message.told.seen = 0
        message.is_sourced = False
        message.rollup = NOTHING
        if frame.headers_size:
            if not is_plain_start(frame.payload, frame.headers_size):
                return False
            read_stream_headers(frame.payload, frame.headers_size, &message.told)
            if message.told.seen & (bit_of(SCHEDULE) | bit_of(REQUEST_INFO)):
                return False
            if size_in(&message.told, BATCH_ID):
                return self._put_member(frame, &message)
            if not self.message_ids.is_ready and (
                size_in(&message.told, MESSAGE_ID) or size_in(&message.told, EXPECTED_LAST_ID)
            ):
                return False
        if not self._open_batch():
            return False
        message.now_ns = self.appender.stamp_ns
        rules.rename(&message)
        reason = rules.admit(&message) or rules.judge_one(&message, None)
        if reason == ACCEPTED:
            return self._store(&message, frame)
        if reason == UNDECIDED:
            return False
        if not frame.reply_size or self.silent:
            return True
        if reason == DUPLICATE:
            self.hold(
                rules.known_seq, frame.reply[:frame.reply_size],
                self.duplicate_ack(rules.known_seq),
            )
        else:
            self.hold(0, frame.reply[:frame.reply_size], self._refusal(reason))
        return True

    cdef bytes _refusal(self, int reason):
        # The answer to a publisher whose message breaks a rule; many in a row break the same one.
        cdef Rules rules = self.rules
        if reason != self.refused_for or rules.found_seq != self.refused_seq or (
            rules.found_text != self.refused_text
        ):
            self.refusal = self.stream.refusal(reason, rules.found_seq, rules.found_text)
            self.refused_for = reason
            self.refused_seq = rules.found_seq
            self.refused_text = rules.found_text
        return self.refusal

    cdef bint _store(self, Message* message, const Frame* frame) except -1:
        # Store a judged message. False if Python has to: nothing has changed then.
        cdef Rules rules = self.rules
        cdef int64_t size = rules.record_bytes(message), ttl_s, expires_ns = 0
        cdef uint64_t seq, last_seq = 0
        cdef bint is_copied = False
        if size > self.bytes_left:
            return False
        if rules.asks_interest and not self.interest.has(message.subject, message.subject_size):
            return self._skip(message, frame)
        if message.rollup == EVERYTHING or (
            message.rollup and not is_literal_raw(message.subject, message.subject_size)
        ):
            return False
        if size_in(&message.told, TTL):
            ttl_s = read_ttl(message.told.values[TTL].start, message.told.values[TTL].size)
            if ttl_s == TTL_MALFORMED or rules.lifetime_s(ttl_s) != ttl_s:
                return False
            expires_ns = rules.expiry_ns(ttl_s, message.now_ns)
        if rules.republish is not None and rules.find_copy(message):
            is_copied = True
            last_seq = rules.last_seq(message.subject, message.subject_size)
        seq = self.appender.put_with(
            message.subject, message.subject_size, message.headers, message.headers_size,
            message.body, message.body_size, expires_ns, 1 if message.rollup else 0,
        )
        if not seq:
            return False
        self.bytes_left -= size
        if message.told.seen:
            self._follow_up(message, seq, expires_ns)
        if is_copied:
            self.copy_text.put(
                self.waiting, seq, self.appender.ledger.last_time_ns, last_seq,
                rules.republish.renamed, rules.republish.renamed_size,
                message.subject, message.subject_size, message.headers, message.headers_size,
                message.body, message.body_size, rules.is_copy_empty,
            )
        if frame.reply_size and not self.silent:
            self._acknowledge(seq, frame)
        if message.rollup == ITS_SUBJECT and self.interest.is_any():
            # Last of all: it may publish, and to this very stream.
            self.stream.on_rolled_up(message.subject[:message.subject_size])
        return True

    cdef bint _skip(self, const Message* message, const Frame* frame) except -1:
        # Use up a sequence for a message that no consumer wants.
        cdef uint64_t seq
        if message.rollup:
            return False
        seq = self.appender.skip()
        if not seq:
            return False
        self.bytes_left -= self.rules.record_bytes(message)
        self.last_skip_ns = message.now_ns
        if message.told.seen:
            self._follow_up(message, seq, 0)
        if frame.reply_size and not self.silent:
            self._acknowledge(seq, frame)
        return True

    cdef int _follow_up(
        self, const Message* message, uint64_t seq, int64_t expires_ns
    ) except -1:
        # Note what follows from a stored message with headers.
        if size_in(&message.told, MESSAGE_ID):
            self.message_ids.remember(self.rules.message_id, seq, message.now_ns)
        if expires_ns and expires_ns != NEVER and not 0 < self.expires_ns <= expires_ns:
            self.expires_ns = expires_ns
        if self.rules.takes_counters:
            self.rules.totals.keep(seq, self.rules.total_place, self.rules.total)
        return 0

    cdef bint _put_member(self, const Frame* frame, const Message* message) except -1:
        # Adds the next member of a batch; False for a message that Python has to judge.
        cdef const Value* batch_id = &message.told.values[BATCH_ID]
        cdef Members members
        cdef int64_t size = <int64_t>(frame.subject_size + frame.payload_size)
        if (
            not self.open_batches or self.rules.is_sealed
            or message.told.seen != bit_of(BATCH_ID) | bit_of(BATCH_SEQ)
            or frame.reply_size or frame.headers_size > HEADERS_MAX or size > MEMBER_BYTES_MAX
            or size + RECORD_OVERHEAD > self.bytes_left
            or 0 <= self.rules.message_bytes_max < <int64_t>frame.payload_size
        ):
            return False
        members = self.open_batches.get(batch_id.start[:batch_id.size])
        if (
            members is None or len(members.entries) >= members.count_max
            or _number(&message.told.values[BATCH_SEQ]) != len(members.entries) + 1
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
        self.rules.begin()
        if self.rules.asks_interest or self.rules.rolls_up:
            self.interest = self.stream.consumers.wanted
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
            expires_ns, self.expires_ns = self.expires_ns, 0
            self.stream.on_stored(expires_ns)
        return 0

    def finish_batch(self):
        """Commit what was appended so far, before the end of the buffer."""
        self.finish()

    cdef int _acknowledge(self, uint64_t seq, const Frame* frame) except -1:
        # Answer a publisher when its message is durable; with the value, if it is a counter.
        cdef uint8_t[20] digits
        cdef size_t count = put_number(digits, seq)
        cdef size_t start_size = len(self.ack_start)
        cdef size_t size = start_size + count + 1, value_size = 0
        cdef uint8_t* out
        if self.rules.takes_counters:
            value_size = self.rules.totals.body_size - VALUE_START - VALUE_END
            size += VALUE_START + value_size + 1
        out = self.waiting.add(seq, frame.reply, frame.reply_size, 0, size)
        memcpy(out, <const char*>self.ack_start, start_size)
        memcpy(out + start_size, digits, count)
        out += start_size + count
        if value_size:
            memcpy(out, VALUE, VALUE_START)
            memcpy(out + VALUE_START, self.rules.totals.body + VALUE_START, value_size)
            out += VALUE_START + value_size
            out[0] = b'"'
            out += 1
        out[0] = b"}"
        return 0

    cpdef hold(self, uint64_t seq, bytes reply, bytes body, bytes headers=b""):
        """Publish `body` to `reply` when a sequence is durable, behind all that waits."""
        if seq <= self.durable_seq and not self.waiting.count:
            self.hub.publish(self.sublist, reply, None, headers, body)
        else:
            self.waiting.put(seq, reply, headers, body)

    def hold_copy(self, uint64_t seq, int64_t time_ns, bytes target not None, message not None,
                  uint64_t last_seq):
        """Publish a stored message again to `target` when it is durable, behind all that waits.

        `last_seq` is the sequence of the message before it with its subject, 0 for none.
        """
        cdef bytes subject = message.subject, headers = message.headers, body = message.body
        self.copy_text.put(
            self.waiting, seq, time_ns, last_seq, target, len(target), subject, len(subject),
            headers, len(headers), body, len(body), self.rules.is_copy_empty,
        )

    def ack(self, uint64_t seq, bytes more=b""):
        """Return the acknowledgement of a message, with more fields."""
        return b"%b%d%b}" % (self.ack_start, seq, more)

    cpdef bytes duplicate_ack(self, uint64_t seq):
        """Return the acknowledgement of a message that was stored before."""
        return b'%b%d,"duplicate": true}' % (self.ack_start, seq)

    def release(self, uint64_t durable_seq):
        """Send the acknowledgements of all messages up to a durable sequence."""
        cdef AckQueue queue = self.waiting
        self.durable_seq = max(self.durable_seq, durable_seq)
        if not queue.count:
            return
        # An answer may be published to this very stream: that one's waits in another queue.
        self.waiting = AckQueue()
        queue.send(self.durable_seq, self.hub, self.sublist)
        queue.take_over(self.waiting)
        queue.shrink()
        self.waiting = queue

    def refuse(self, uint64_t durable_seq, bytes body not None):
        """Answer what waits for more than a durable sequence with `body`: it will not be stored."""
        cdef AckQueue queue
        self.finish()
        self.release(durable_seq)
        queue, self.waiting = self.waiting, AckQueue()
        queue.refuse(body, self.hub, self.sublist)


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
