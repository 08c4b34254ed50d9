"""The publish rules for messages that are Python objects: of batches, feeds, traces and schedules.

They are the compiled rules of `rules`, and here they raise what they refuse a message for. `judge`
is the order for a single message; `judge.BatchJudge` has the one for members of a batch, and calls
the rules one by one.

Thread: the event loop's.
"""

from random import randrange

from libc.stdint cimport int64_t

from penstock.protocol.headers import with_added, without
from penstock.stream.publish.refusals import AlreadyStored, refusal
from penstock.stream.publish.ttl import parse_ttl

from penstock.protocol.headers cimport (
    EXPECTED_LAST_SEQ, EXPECTED_SUBJECT, EXPECTED_SUBJECT_SEQ, MESSAGE_ID, REQUEST_INFO, bit_of,
    bytes_in, size_in,
)
from penstock.stream.publish.rules cimport ACCEPTED, DUPLICATE, NOTHING, Message, Rules, wrapped

cdef tuple ROLLUPS = ("", "sub", "all")


cdef class MessageRules(Rules):
    """The rules of one stream, for `IncomingMessage`; see the module."""

    def judge(self, message not None, int64_t now_ns):
        """Check a single message at a time, and note in it what was found; raise ApiError.

        Raise AlreadyStored if the stream has a message with its id.
        """
        cdef Message raw
        cdef int reason
        self._fill(&raw, message)
        raw.now_ns = now_ns
        raw.rollup = NOTHING
        reason = self.admit(&raw)
        if reason == ACCEPTED:
            if raw.told.seen & bit_of(REQUEST_INFO):
                message.headers = without(message.headers, b"Nats-Request-Info")
                self._fill(&raw, message)
            reason = self.judge_one(&raw, message)
        if raw.told.seen:
            message.message_id = bytes_in(&raw.told, MESSAGE_ID)
            message.rollup = ROLLUPS[raw.rollup]
        if reason == DUPLICATE:
            raise AlreadyStored(self.known_seq)
        self._refuse(reason)

    def _refuse(self, int reason):
        if reason:
            raise refusal(reason, seq=self.found_seq, text=self.found_text)

    # What becomes of a message

    def renamed(self, bytes subject not None):
        """Return the subject under which a message is stored."""
        found = None if self.transform is None else self.transform.find(subject, randrange)
        return subject if found is None else found

    def copied_to(self, bytes subject not None):
        """Return the subject under which a stored message is published again, or None."""
        cdef Message message
        message.subject = subject
        message.subject_size = len(subject)
        if not self.find_copy(&message):
            return None
        return self.republish.renamed[:self.republish.renamed_size]

    def record_size(self, message not None):
        """Return what a message counts for in its stream's bytes."""
        cdef Message raw
        raw.subject_size = len(message.subject)
        raw.headers_size = len(message.headers)
        raw.body_size = len(message.body)
        return self.record_bytes(&raw)

    def settle_ttl(self, message not None, int64_t now_ns):
        """Note in a message how many seconds it lives: 0 as long as others, -1 for ever.

        Return when it expires if it is stored at a time, 0 if only the stream's limits count. Its
        header says the same from here on. Raise ApiError if it is malformed.
        """
        cdef int64_t ttl_s = parse_ttl(message.value(b"Nats-TTL"))
        message.ttl_s = self.lifetime_s(ttl_s)
        if message.ttl_s != ttl_s:
            headers = without(message.headers, b"Nats-TTL")
            message.headers = with_added(headers, b"Nats-TTL", b"%d" % message.ttl_s)
        return self.expiry_ns(message.ttl_s, now_ns)

    @property
    def may_roll_up(self):
        """Whether messages may roll others up."""
        return self.rolls_up

    # What a publisher expects

    def last_seq_of(self, bytes subject not None):
        """Return the last sequence of a subject or of all subjects of a pattern; 0 for none."""
        return self.last_seq(subject, len(subject))

    def expected_last_seq(self, message not None):
        """Return the sequence that the stream is expected to end with, or None."""
        cdef Message raw
        self._fill(&raw, message)
        if not size_in(&raw.told, EXPECTED_LAST_SEQ):
            return None
        return wrapped(&raw.told.values[EXPECTED_LAST_SEQ])

    def expected_subject_seq(self, message not None):
        """Return the subject that is expected to end with a sequence, and the sequence (0: none).

        Return None if the message expects nothing of a subject. Raise ApiError if it names a
        subject alone.
        """
        cdef Message raw
        self._fill(&raw, message)
        self._refuse(self._check_subject_alone(&raw))
        if not size_in(&raw.told, EXPECTED_SUBJECT_SEQ):
            return None
        subject = bytes_in(&raw.told, EXPECTED_SUBJECT) or message.subject
        return subject, wrapped(&raw.told.values[EXPECTED_SUBJECT_SEQ])

    # Rules one by one, for messages of a batch: their order is in `judge`

    def check_sealed(self):
        """Raise ApiError if the stream takes no messages."""
        self._refuse(self._check_sealed())

    def check_record(self, message not None):
        """Raise ApiError for a message whose record would be larger than a block can hold."""
        cdef Message raw
        self._fill(&raw, message)
        self._refuse(self._check_record(&raw))

    def check_member(self, message not None):
        """Raise ApiError for headers of a member that the stream does not take."""
        cdef Message raw
        self._fill(&raw, message)
        self._refuse(
            self._check_headers_size(&raw) or self._check_increment(&raw)
            or self._check_stream(&raw) or self._check_ttl(&raw)
        )

    def note_id(self, message not None, int64_t now_ns):
        """Note a message's id in it; return the sequence of the stored message with it, or 0."""
        cdef Message raw
        self._fill(&raw, message)
        raw.now_ns = now_ns
        reason = self._check_id(&raw)
        message.message_id = self.message_id
        return self.known_seq if reason == DUPLICATE else 0

    def check_not_marked(self, message not None):
        """Raise ApiError for the header that only a sourcing stream may set."""
        cdef Message raw
        self._fill(&raw, message)
        self._refuse(self._check_not_marked(&raw))

    def check_present(self, message not None):
        """Raise ApiError for a message without an increment in a stream of counters."""
        cdef Message raw
        self._fill(&raw, message)
        self._refuse(self._check_present(&raw))

    def check_counted(self, message not None):
        """Raise ApiError for a counter whose new value is larger than a message may be."""
        cdef Message raw
        self.begin()
        self._fill(&raw, message)
        self._refuse(self._check_counted(&raw))

    def check_rollup(self, message not None):
        """Note in a message what it rolls up; raise ApiError if that is not allowed."""
        cdef Message raw
        self._fill(&raw, message)
        raw.rollup = NOTHING
        self._refuse(self._check_rollup(&raw))
        message.rollup = ROLLUPS[raw.rollup]

    def check_last_id(self, message not None):
        """Raise ApiError if the stream's last message has another id than expected, or none."""
        cdef Message raw
        self._fill(&raw, message)
        self._refuse(self._check_last_id(&raw, self.appender.ledger.last_seq))
