"""The order of the publish rules: for a single message, and for the messages of a batch.

Both orders are the reference server's: a message that breaks two rules is refused for the first.
The rules themselves are in `rules`, `counters` and `schedule.schedules`.

Messages of a batch are judged before any of it is stored. So each sees the stream as it was, and
beside it what the batch itself will have changed by then.

Invariant: judging changes the message alone, and takes room for it from the account's quota.

Thread: the event loop's. `Publishing` calls it, for clients, batches and feeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock import error_codes
from penstock.errors import ApiError
from penstock.limits import MESSAGE_HEADERS_BYTES_MAX
from penstock.protocol.headers import without
from penstock.stream.config.config import DiscardPolicy
from penstock.stream.publish import counters, rules
from penstock.stream.publish.counters import Total
from penstock.stream.publish.message import (
    MESSAGE_ID,
    REQUEST_INFO,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    IncomingMessage,
    record_size,
)
from penstock.stream.publish.rules import StreamFacts
from penstock.stream.schedule import schedules
from penstock.subjects import SubjectFilter


class AlreadyStored(ApiError):
    """A message with the same id is stored under `seq`, or came before in the same batch (0)."""

    def __init__(self, seq: int) -> None:
        super().__init__(error_codes.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE)
        self.seq = seq


def judge(message: IncomingMessage, facts: StreamFacts) -> None:
    """Check a single message; raise ApiError if it may not be stored.

    Raise AlreadyStored if the stream has a message with its id.
    """
    config, store = facts.config, facts.store
    rules.check_record(message, config)
    rules.check_sealed(config)
    message.headers = without(message.headers, REQUEST_INFO)
    rules.check_size(message, config)
    if message.headers:
        last_seq = store.last_seq
        counters.check(message, config)
        rules.check_stream(message, config)
        rules.check_ttl_allowed(message, config)
        rules.check_subject_seq(message, store)
        rules.check_last_seq(message, last_seq)
        if not message.is_sourced:
            schedules.check(
                message,
                config,
                facts.now_ns(),
                lambda subject: schedules.may_be_schedule(store, subject),
            )
            rules.check_not_marked(message)
        if known_seq := _known_seq(message, facts):
            raise AlreadyStored(known_seq)
        rules.check_last_id(message, facts, last_seq)
        rules.check_rollup(message, config)
    counters.check_present(message, config)
    if message.increment is not None and config.allow_msg_counter:
        counters.apply(message, counters.total_of(store, message.subject))
        rules.check_counted(message, facts)
    check_room(message, facts)


def check_room(message: IncomingMessage, facts: StreamFacts) -> None:
    """Take room for a message; raise ApiError if account or server have none left."""
    facts.reserve(record_size(message, facts.config.storage))


def _known_seq(message: IncomingMessage, facts: StreamFacts) -> int:
    """Note a message's id; return the sequence of the stored message with it, or 0."""
    message.message_id = message.value(MESSAGE_ID)
    # A mirror holds what its origin holds, duplicates included.
    if not message.message_id or facts.config.mirror is not None:
        return 0
    return facts.known_ids().find(message.message_id, facts.now_ns())


class BatchJudge:
    """Judges the messages of one batch, one after the other; see the module."""

    def __init__(self, facts: StreamFacts) -> None:
        self._facts = facts
        self._message_ids: set[bytes] = set()
        self._totals: dict[bytes, Total] = {}
        self._counts: Counter[bytes] = Counter()
        self._schedules: dict[bytes, bool] = {}
        """Whether the last message of a subject is a schedule."""

        self._expected: dict[bytes, int] = {}
        """The last sequences of subjects that were compared."""

        self._bytes = 0
        self._last_seq = facts.store.last_seq

    def add(self, message: IncomingMessage) -> None:
        """Check the next message; raise ApiError if it may not be stored."""
        config = self._facts.config
        rules.check_record(message, config)
        if message.headers:
            self._check_headers(message)
        counters.check_present(message, config)
        if message.increment is not None and config.allow_msg_counter:
            self._count(message)
        is_schedule = False
        if message.headers:
            self._check_sequences(message)
            now_ns = self._facts.now_ns()
            is_schedule = schedules.check(message, config, now_ns, self._may_be_schedule)
            self._check_rollup(message)
        self._counts[message.subject] += 1
        self._schedules[message.subject] = is_schedule
        self._bytes += record_size(message, config.storage)
        self._check_limits(message)
        self._last_seq += 1

    def add_plain(self, subjects: Sequence[bytes]) -> None:
        """Count messages that no rule concerns, by their subjects."""
        self._counts.update(subjects)
        self._last_seq += len(subjects)

    def _check_headers(self, message: IncomingMessage) -> None:
        config = self._facts.config
        if len(message.headers) > MESSAGE_HEADERS_BYTES_MAX:
            raise ApiError(error_codes.STREAM_HEADER_EXCEEDS_MAXIMUM)
        counters.check(message, config)
        rules.check_stream(message, config)
        rules.check_ttl(message, config)
        known_seq = _known_seq(message, self._facts)
        if known_seq or message.message_id in self._message_ids:
            raise AlreadyStored(known_seq)
        if message.message_id:
            self._message_ids.add(message.message_id)
        rules.check_not_marked(message)

    def _count(self, message: IncomingMessage) -> None:
        total = self._totals.get(message.subject)
        if total is None:
            total = counters.total_of(self._facts.store, message.subject)
        counters.apply(message, total)
        rules.check_counted(message, self._facts)
        self._totals[message.subject] = total

    def _check_sequences(self, message: IncomingMessage) -> None:
        rules.check_last_seq(message, self._last_seq)
        if self._counts and rules.expected_last_seq(message) is not None:
            # Only the first message of a batch can expect a sequence of the stream.
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        expected = rules.expected_subject_seq(message)
        if expected is None:
            return
        subject, seq = expected
        if subject in self._counts:
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        if subject not in self._expected:
            self._expected[subject] = rules.last_seq_of(self._facts.store, subject)
        if self._expected[subject] != seq:
            last_seq = self._expected[subject]
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=last_seq)

    def _may_be_schedule(self, subject: bytes) -> bool:
        if subject in self._schedules:
            return self._schedules[subject]
        return schedules.may_be_schedule(self._facts.store, subject)

    def _check_rollup(self, message: IncomingMessage) -> None:
        rules.check_rollup(message, self._facts.config)
        if message.rollup == ROLLUP_SUBJECT and message.subject in self._counts:
            raise rules.rollup_refusal("batch rollup sub invalid")
        if message.rollup == ROLLUP_ALL and self._counts:
            raise rules.rollup_refusal("batch rollup all invalid")

    def _check_limits(self, message: IncomingMessage) -> None:
        """Refuse a message beyond the stream's limits, if the stream discards new messages."""
        config, store = self._facts.config, self._facts.store
        if config.discard is not DiscardPolicy.NEW:
            return
        state = store.state()
        if 0 < config.max_msgs < state.messages + self._counts.total():
            raise _full("maximum messages")
        if 0 < config.max_bytes < state.bytes + self._bytes:
            raise _full("maximum bytes")
        if config.discard_new_per_subject and not message.rollup:
            stored = store.subjects_totals(SubjectFilter([message.subject]))
            count = stored.get(message.subject, 0) + self._counts[message.subject]
            if 0 < config.max_msgs_per_subject < count:
                raise _full("maximum messages per subject")


def _full(limit: str) -> ApiError:
    return ApiError(error_codes.STREAM_STORE_FAILED, err=f"{limit} exceeded")
