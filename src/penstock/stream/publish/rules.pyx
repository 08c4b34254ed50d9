"""The publish rules of one stream: compiled from its configuration, and run for every message.

A rule looks at a message, the configuration and, where it must, at what the stream holds. It
returns 0 or the code of the error for which the message is refused; `refusals` has the words. The
order for a single message is `judge_one`, and it is the reference server's: a message that breaks
two rules is refused for the first. The order for messages of a batch is in `judge`.

`Ingest` calls the rules for messages as they come in, without a Python object. Everybody else has
an `IncomingMessage`, and `message_rules` calls the same rules for it. What is rare is decided by
Python in between: schedules, counters of many digits, patterns for subjects.

Invariants: a rule changes nothing but the message. Sequences are compared with what is stored,
durable or not, since the next message comes behind all of it.

Thread: the event loop's.
"""

from functools import partial
from random import randrange

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from penstock import error_codes, limits
from penstock.store.interface import NEVER_NS
from penstock.stream.config.config import RetentionPolicy, StorageType
from penstock.stream.publish import counters
from penstock.stream.publish.message import transform_of
from penstock.stream.schedule import schedules
from penstock.subjects import SubjectFilter
from penstock.text.quoting import quoted_bytes
from penstock.text.times import SECOND_NS

from penstock.protocol.headers cimport (
    COUNTER_SOURCES, EXPECTED_LAST_ID, EXPECTED_LAST_SEQ, EXPECTED_STREAM, EXPECTED_SUBJECT,
    EXPECTED_SUBJECT_SEQ, INCREMENT, MESSAGE_ID, ROLLUP, SCHEDULE, STREAM_SOURCE, TTL, Value,
    bit_of, bytes_in, read_stream_headers, size_in,
)
from penstock.store.log.fast_append cimport Appender
from penstock.stream.publish.message_ids cimport MessageIds
from penstock.stream.publish.totals cimport Totals, hash_of, is_number, read_number
from penstock.stream.publish.ttl cimport FOR_EVER, TTL_MALFORMED, read_ttl
from penstock.subjects cimport is_literal_raw, is_valid_raw

cdef int64_t RECORD_MAX = limits.GO_RECORD_BYTES_MAX
cdef size_t HEADERS_MAX = limits.MESSAGE_HEADERS_BYTES_MAX
cdef int64_t SECOND = SECOND_NS
cdef int64_t NEVER = NEVER_NS
# Above it a counter's value is left to Python: the sum of two has room in 64 bits.
cdef int64_t TOTAL_MAX = 10 ** 18 - 1

cdef int STORE_FAILED = error_codes.STREAM_STORE_FAILED.err_code
cdef int SEALED = error_codes.STREAM_SEALED.err_code
cdef int TOO_LARGE = error_codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code
cdef int HEADERS_TOO_LARGE = error_codes.STREAM_HEADER_EXCEEDS_MAXIMUM.err_code
cdef int INCREMENT_INVALID = error_codes.MESSAGE_INCR_INVALID.err_code
cdef int INCREMENT_DISABLED = error_codes.MESSAGE_INCR_DISABLED.err_code
cdef int INCREMENT_WITH_BODY = error_codes.MESSAGE_INCR_PAYLOAD.err_code
cdef int INCREMENT_MISSING = error_codes.MESSAGE_INCR_MISSING.err_code
cdef int OTHER_STREAM = error_codes.STREAM_NOT_MATCH.err_code
cdef int TTL_DISABLED = error_codes.MESSAGE_TTL_DISABLED.err_code
cdef int TTL_INVALID = error_codes.MESSAGE_TTL_INVALID.err_code
cdef int SUBJECT_SEQ_MISSING = (
    error_codes.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID.err_code
)
cdef int WRONG_SEQ = error_codes.STREAM_WRONG_LAST_SEQUENCE.err_code
cdef int WRONG_ID = error_codes.STREAM_WRONG_LAST_MSG_ID.err_code
cdef int IS_MARKED = error_codes.MESSAGE_SOURCE_HDR_NOT_ALLOWED.err_code
cdef int ROLLUP_FAILED = error_codes.STREAM_ROLLUP_FAILED.err_code


cdef uint64_t wrapped(const Value* digits) noexcept nogil:
    # An unsigned number as the reference server reads it: text that is no number is the highest
    # one, a number above 64 bits loses the upper ones.
    cdef uint64_t number = 0
    cdef size_t place
    for place in range(digits.size):
        if not 48 <= digits.start[place] <= 57:
            return <uint64_t>-1
        number = number * 10 + (digits.start[place] - 48)
    return number


cdef bint _is_word(const Value* text, const char* word) noexcept nogil:
    # Whether a text is a word of three small letters, in either case.
    cdef size_t place
    if text.size != 3:
        return False
    for place in range(3):
        if text.start[place] | 0x20 != <uint8_t>word[place]:
            return False
    return True


cdef class Rules:
    """The rules of one stream; see the module."""

    def __init__(self, config not None, store not None, MessageIds message_ids not None, *,
                 read_ids, payload_bytes_max):
        """`read_ids()` reads the ids from before a restart, as far as they are not known yet.

        `payload_bytes_max()` returns the size of the largest message that a client may publish.
        """
        self.store = store
        self.message_ids = message_ids
        self.read_ids = read_ids
        self.payload_bytes_max = payload_bytes_max
        self.message_id = b""
        self.attach(store.appender())
        self.configure(config)

    def configure(self, config not None):
        """Go over to another configuration of the stream."""
        self.config = config
        self.name = config.name.encode()
        self.is_file = config.storage is StorageType.FILE
        self.is_sealed = config.sealed
        self.is_mirror = config.mirror is not None
        self.takes_ttl = config.allow_msg_ttl
        self.takes_counters = config.allow_msg_counter
        self.rolls_up = config.allow_rollup_hdrs and not config.deny_purge
        self.asks_interest = config.retention is RetentionPolicy.INTEREST
        self.keeps_one = config.max_msgs_per_subject == 1
        self.message_bytes_max = config.max_msg_size
        self.marker_s = config.subject_delete_marker_ttl // SECOND_NS
        self.transform = transform_of(config.subject_transform)
        self.republish = transform_of(config.republish)
        self.is_copy_empty = config.republish is not None and config.republish.headers_only
        self.totals = Totals() if config.allow_msg_counter else None

    def attach(self, Appender appender not None):
        """Look into this store from now on."""
        self.appender = appender

    cdef int begin(self) except -1:
        # Note what may change without another configuration, before messages are judged.
        self.payload_max = self.payload_bytes_max() if self.takes_counters else 0
        return 0

    # The order for a single message

    cdef int admit(self, const Message* message) noexcept:
        # What is checked of a message as it came.
        return self._check_record(message) or self._check_sealed()

    cdef int judge_one(self, Message* message, object whole) except -1:
        # Check an admitted message without `Nats-Request-Info`. Where Python takes part, `whole`
        # is the same message, and follows what changes; otherwise it is None.
        cdef int reason = self._check_size(message)
        if reason == ACCEPTED and message.told.seen:
            reason = self._judge_headers(message, whole)
        if reason == ACCEPTED and self.takes_counters:
            reason = self._check_present(message) or self._count(message, whole)
        return reason

    cdef int _judge_headers(self, Message* message, object whole) except -1:
        cdef uint64_t last_seq = self.appender.ledger.last_seq
        cdef int reason = (
            self._check_increment(message) or self._check_stream(message)
            or self._check_ttl_allowed(message) or self._check_subject_seq(message)
            or self._check_last_seq(message, last_seq)
        )
        if reason:
            return reason
        if not message.is_sourced:
            if message.told.seen & bit_of(SCHEDULE):
                self._check_schedule(message, whole)
            reason = self._check_not_marked(message)
        return (
            reason or self._check_id(message) or self._check_last_id(message, last_seq)
            or self._check_rollup(message)
        )

    cdef int _fill(self, Message* message, object whole) except -1:
        # The message keeps the memory; this must be repeated where its headers or body change.
        cdef bytes subject = whole.subject, headers = whole.headers, body = whole.body
        message.subject = subject
        message.subject_size = len(subject)
        message.headers = headers
        message.headers_size = len(headers)
        message.body = body
        message.body_size = len(body)
        message.is_sourced = whole.is_sourced
        read_stream_headers(message.headers, message.headers_size, &message.told)
        return 0

    # Subjects

    cdef int rename(self, Message* message) except -1:
        # Apply the stream's transform; the new subject stays where it is until the next message.
        if self.transform is not None and (
            self.transform.rename(message.subject, message.subject_size, randrange)
        ):
            message.subject = self.transform.renamed
            message.subject_size = self.transform.renamed_size
        return 0

    cdef bint find_copy(self, const Message* message) except -1:
        # Whether a message is published again; `republish` has the subject then.
        return (
            self.republish is not None
            and self.republish.rename(message.subject, message.subject_size, randrange)
            and is_valid_raw(self.republish.renamed, self.republish.renamed_size)
            and is_literal_raw(self.republish.renamed, self.republish.renamed_size)
        )

    # Sizes

    cdef int64_t record_bytes(self, const Message* message) noexcept:
        # What a message counts for in its stream's bytes, as the reference server counts.
        cdef int64_t size = message.subject_size + message.headers_size + message.body_size
        if not self.is_file:
            return size + 16
        return size + 30 + (4 if message.headers_size else 0)

    cdef int _check_record(self, const Message* message) noexcept:
        # A record must have room in a block of the reference server's.
        if self.is_file and self.record_bytes(message) > RECORD_MAX:
            self.found_text = "message too large"
            return STORE_FAILED
        return ACCEPTED

    cdef int _check_size(self, const Message* message) noexcept:
        if 0 <= self.message_bytes_max < <int64_t>(message.headers_size + message.body_size):
            return TOO_LARGE
        return self._check_headers_size(message)

    cdef int _check_headers_size(self, const Message* message) noexcept:
        return HEADERS_TOO_LARGE if message.headers_size > HEADERS_MAX else ACCEPTED

    cdef int _check_sealed(self) noexcept:
        return SEALED if self.is_sealed else ACCEPTED

    # What the publisher expects of the stream

    cdef int _check_stream(self, const Message* message) noexcept:
        cdef const Value* name = &message.told.values[EXPECTED_STREAM]
        if size_in(&message.told, EXPECTED_STREAM) and (
            name.size != <size_t>len(self.name)
            or memcmp(name.start, <const char*>self.name, name.size)
        ):
            return OTHER_STREAM
        return ACCEPTED

    cdef int _check_subject_seq(self, const Message* message) except -1:
        # The subject that the message names, or its own, must end with the expected sequence.
        cdef const uint8_t* subject = message.subject
        cdef size_t size = message.subject_size
        if not size_in(&message.told, EXPECTED_SUBJECT_SEQ):
            return self._check_subject_alone(message)
        if size_in(&message.told, EXPECTED_SUBJECT):
            subject = message.told.values[EXPECTED_SUBJECT].start
            size = message.told.values[EXPECTED_SUBJECT].size
        self.found_seq = self.last_seq(subject, size)
        if self.found_seq != wrapped(&message.told.values[EXPECTED_SUBJECT_SEQ]):
            return WRONG_SEQ
        return ACCEPTED

    cdef int _check_subject_alone(self, const Message* message) noexcept:
        # Who names a subject must say which sequence it ends with.
        cdef bint is_alone = not size_in(&message.told, EXPECTED_SUBJECT_SEQ)
        return SUBJECT_SEQ_MISSING if is_alone and size_in(
            &message.told, EXPECTED_SUBJECT
        ) else ACCEPTED

    cdef int _check_last_seq(self, const Message* message, uint64_t last_seq) noexcept:
        if size_in(&message.told, EXPECTED_LAST_SEQ) and (
            wrapped(&message.told.values[EXPECTED_LAST_SEQ]) != last_seq
        ):
            self.found_seq = last_seq
            return WRONG_SEQ
        return ACCEPTED

    cdef int _check_last_id(self, const Message* message, uint64_t last_seq) except -1:
        cdef bytes last_id
        if not size_in(&message.told, EXPECTED_LAST_ID):
            return ACCEPTED
        if not self.message_ids.is_ready:
            self.read_ids()
        last_id = self.message_ids.last(last_seq)
        if last_id == bytes_in(&message.told, EXPECTED_LAST_ID):
            return ACCEPTED
        self.found_text = last_id.decode("utf-8", "replace")
        return WRONG_ID

    cdef uint64_t last_seq(self, const uint8_t* subject, size_t size) except? 0xFFFFFFFFFFFFFFFF:
        if not is_valid_raw(subject, size):
            return 0
        if is_literal_raw(subject, size):
            return self.appender.last_seq_of(subject, size)
        found = self.store.multi_last(SubjectFilter([subject[:size]]))
        return found[-1] if found else 0

    # What a message may say of itself

    cdef int _check_not_marked(self, const Message* message) noexcept:
        # Only a sourcing stream may say where a message comes from.
        return IS_MARKED if size_in(&message.told, STREAM_SOURCE) else ACCEPTED

    cdef int _check_id(self, const Message* message) except -1:
        self.message_id = bytes_in(&message.told, MESSAGE_ID)
        # A mirror holds what its origin holds, duplicates included.
        if not self.message_id or self.is_mirror:
            return ACCEPTED
        if not self.message_ids.is_ready:
            self.read_ids()
        self.known_seq = self.message_ids.find(self.message_id, message.now_ns)
        return DUPLICATE if self.known_seq else ACCEPTED

    cdef int _check_schedule(self, Message* message, object whole) except -1:
        assert whole is not None, "Python judges what has to do with schedules"
        schedules.check(
            whole, self.config, message.now_ns, partial(schedules.may_be_schedule, self.store)
        )
        # A schedule rolls up its subject, and says so from here on.
        self._fill(message, whole)
        return 0

    cdef int _check_rollup(self, Message* message) except -1:
        cdef const Value* wanted = &message.told.values[ROLLUP]
        if not size_in(&message.told, ROLLUP):
            return ACCEPTED
        if not self.rolls_up and not message.is_sourced:
            self.found_text = "rollup not permitted"
            return ROLLUP_FAILED
        if _is_word(wanted, b"sub"):
            message.rollup = ITS_SUBJECT
        elif _is_word(wanted, b"all"):
            message.rollup = EVERYTHING
        else:
            lowered = bytes_in(&message.told, ROLLUP).decode("utf-8", "surrogateescape").lower()
            shown = quoted_bytes(lowered.encode("utf-8", "surrogateescape"))
            self.found_text = f"rollup value invalid: {shown}"
            return ROLLUP_FAILED
        return ACCEPTED

    # Time to live

    cdef int _check_ttl_allowed(self, const Message* message) except -1:
        # A malformed one is refused when the message is stored.
        cdef const Value* text = &message.told.values[TTL]
        cdef int64_t ttl_s
        if message.is_sourced or self.takes_ttl or not size_in(&message.told, TTL):
            return ACCEPTED
        ttl_s = read_ttl(text.start, text.size)
        return TTL_DISABLED if ttl_s and ttl_s != TTL_MALFORMED else ACCEPTED

    cdef int _check_ttl(self, const Message* message) except -1:
        # As `_check_ttl_allowed`, and a malformed one is refused, too.
        cdef const Value* text = &message.told.values[TTL]
        cdef int64_t ttl_s
        if not size_in(&message.told, TTL):
            return ACCEPTED
        ttl_s = read_ttl(text.start, text.size)
        if ttl_s and not self.takes_ttl:
            return TTL_DISABLED
        return TTL_INVALID if ttl_s == TTL_MALFORMED else ACCEPTED

    cdef int64_t lifetime_s(self, int64_t ttl_s) noexcept:
        # How long a message with a TTL lives: not shorter than a delete marker of its subject.
        return self.marker_s if 0 < ttl_s < self.marker_s and not self.keeps_one else ttl_s

    cdef int64_t expiry_ns(self, int64_t ttl_s, int64_t now_ns) noexcept:
        # When a message stored at a time expires; 0 if only the stream's limits count.
        if not self.takes_ttl or not ttl_s:
            return 0
        if ttl_s == FOR_EVER:
            return NEVER
        return now_ns + ttl_s * SECOND if ttl_s <= (NEVER - 1 - now_ns) // SECOND else NEVER - 1

    # Counters: see `counters`

    cdef int _check_increment(self, const Message* message) noexcept:
        cdef int name
        if not size_in(&message.told, INCREMENT):
            return ACCEPTED
        if not is_number(&message.told.values[INCREMENT]):
            return INCREMENT_INVALID
        if message.is_sourced:
            return ACCEPTED
        if not self.takes_counters:
            return INCREMENT_DISABLED
        if message.body_size:
            return INCREMENT_WITH_BODY
        for name in range(EXPECTED_STREAM, ROLLUP + 1):
            # Neither expectations nor rollups go with counters.
            if size_in(&message.told, name):
                return INCREMENT_INVALID
        return ACCEPTED

    cdef int _check_present(self, const Message* message) noexcept:
        # A stream of counters takes nothing else.
        return INCREMENT_MISSING if self.takes_counters and not size_in(
            &message.told, INCREMENT
        ) else ACCEPTED

    cdef int _count(self, Message* message, object whole) except -1:
        # Make the body the counter's new value.
        cdef const Value* text = &message.told.values[INCREMENT]
        cdef int64_t before = 0, increment
        cdef uint64_t last_seq
        if whole is not None:
            self.begin()
            counters.apply(whole, counters.total_of(self.store, whole.subject))
            self._fill(message, whole)
            return self._check_counted(message)
        if message.told.seen & (bit_of(COUNTER_SOURCES) | bit_of(STREAM_SOURCE)) or (
            not read_number(text.start, text.size, &increment)
            or not is_valid_raw(message.subject, message.subject_size)
            or not is_literal_raw(message.subject, message.subject_size)
        ):
            return UNDECIDED
        self.total_place = hash_of(message.subject, message.subject_size)
        last_seq = self.appender.last_seq_of(message.subject, message.subject_size)
        if last_seq and not self.totals.find(self.store, last_seq, self.total_place, &before):
            return UNDECIDED
        self.total = before + increment
        if not -TOTAL_MAX <= self.total <= TOTAL_MAX:
            return UNDECIDED
        self.totals.write(self.total)
        message.body = self.totals.body
        message.body_size = self.totals.body_size
        return self._check_counted(message)

    cdef int _check_counted(self, const Message* message) noexcept:
        # The new value may make the message larger than a message may be.
        if <int64_t>(message.headers_size + message.body_size) > self.payload_max:
            return TOO_LARGE
        return self._check_size(message)
