"""The order of the publish rules for the messages of a batch.

The order is the reference server's: a message that breaks two rules is refused for the first. The
rules themselves are in `rules`, `counters` and `schedule.schedules`; so is the order for a single
message.

Messages of a batch are judged before any of it is stored. So each sees the stream as it was, and
beside it what the batch itself will have changed by then.

Invariant: judging changes the message alone, and takes room for it from the account's quota.

Thread: the event loop's. `Publishing` calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock import error_codes
from penstock.errors import ApiError
from penstock.stream.config.config import DiscardPolicy
from penstock.stream.publish import counters
from penstock.stream.publish.counters import Total
from penstock.stream.publish.facts import StreamFacts
from penstock.stream.publish.message import ROLLUP_ALL, ROLLUP_SUBJECT, IncomingMessage
from penstock.stream.publish.refusals import AlreadyStored
from penstock.stream.schedule import schedules
from penstock.subjects import SubjectFilter


def judge(message: IncomingMessage, facts: StreamFacts) -> None:
    """Check a single message; raise ApiError if it may not be stored.

    Raise AlreadyStored if the stream has a message with its id.
    """
    facts.rules.judge(message, facts.now_ns())
    check_room(message, facts)


def check_room(message: IncomingMessage, facts: StreamFacts) -> None:
    """Take room for a message; raise ApiError if account or server have none left."""
    facts.reserve(facts.rules.record_size(message))


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
        config, rules = self._facts.config, self._facts.rules
        rules.check_record(message)
        if message.headers:
            self._check_headers(message)
        rules.check_present(message)
        if config.allow_msg_counter:
            self._count(message)
        is_schedule = False
        if message.headers:
            self._check_sequences(message)
            now_ns = self._facts.now_ns()
            is_schedule = schedules.check(message, config, now_ns, self._may_be_schedule)
            self._check_rollup(message)
        self._counts[message.subject] += 1
        self._schedules[message.subject] = is_schedule
        self._bytes += rules.record_size(message)
        self._check_limits(message)
        self._last_seq += 1

    def add_plain(self, subjects: Sequence[bytes]) -> None:
        """Count messages that no rule concerns, by their subjects."""
        self._counts.update(subjects)
        self._last_seq += len(subjects)

    def _check_headers(self, message: IncomingMessage) -> None:
        rules = self._facts.rules
        rules.check_member(message)
        known_seq = rules.note_id(message, self._facts.now_ns())
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
        self._facts.rules.check_counted(message)
        self._totals[message.subject] = total

    def _check_sequences(self, message: IncomingMessage) -> None:
        rules = self._facts.rules
        last_seq = rules.expected_last_seq(message)
        if last_seq is not None and last_seq != self._last_seq:
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=self._last_seq)
        if self._counts and last_seq is not None:
            # Only the first message of a batch can expect a sequence of the stream.
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        expected = rules.expected_subject_seq(message)
        if expected is None:
            return
        subject, seq = expected
        if subject in self._counts:
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        if subject not in self._expected:
            self._expected[subject] = rules.last_seq_of(subject)
        if self._expected[subject] != seq:
            last_seq = self._expected[subject]
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=last_seq)

    def _may_be_schedule(self, subject: bytes) -> bool:
        if subject in self._schedules:
            return self._schedules[subject]
        return schedules.may_be_schedule(self._facts.store, subject)

    def _check_rollup(self, message: IncomingMessage) -> None:
        self._facts.rules.check_rollup(message)
        if message.rollup == ROLLUP_SUBJECT and message.subject in self._counts:
            raise _rollup_refusal("batch rollup sub invalid")
        if message.rollup == ROLLUP_ALL and self._counts:
            raise _rollup_refusal("batch rollup all invalid")

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


def _rollup_refusal(reason: str) -> ApiError:
    return ApiError(error_codes.STREAM_ROLLUP_FAILED, err=reason)
