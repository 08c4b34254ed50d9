"""What a batch would do to a stream: the rules for each message, given those before it.

Messages of a batch are judged before any of it is stored, so each sees the stream as it was, and
beside it what the batch itself will have changed by then. The order of the checks is the reference
server's, and is not that of single messages.

Called on the event loop's thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock import error_codes
from penstock.errors import ApiError
from penstock.limits import MESSAGE_HEADERS_BYTES_MAX
from penstock.stream import counters, expectations, lifetimes, rollups, schedules
from penstock.stream.config import DiscardPolicy
from penstock.stream.counters import Total
from penstock.stream.messages import (
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    STREAM_SOURCE,
    Message,
    record_size,
)
from penstock.subjects import SubjectFilter

if TYPE_CHECKING:
    from penstock.stream.publishing import Publishing


class AlreadyThere(ApiError):
    """A message with the same id is in the stream, under `seq`, or before it in the batch."""

    def __init__(self, seq: int) -> None:
        super().__init__(error_codes.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE)
        self.seq = seq


class Staged:
    """A stream with a batch half-way in; see the module."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._stream = publishing.stream
        self._message_ids: set[bytes] = set()
        self._totals: dict[bytes, Total] = {}
        self._counts: Counter[bytes] = Counter()
        self._schedules: dict[bytes, bool] = {}
        """Whether the last message of a subject is a schedule."""

        self._expected: dict[bytes, int] = {}
        """The last sequences of subjects that were compared."""

        self._bytes = 0
        self._last_seq = self._stream.store.last_seq

    def add(self, message: Message) -> None:
        """Judge the next message, which may be changed by that; raise ApiError."""
        config = self._stream.config
        self._publishing.check_record(message)
        if message.headers:
            self._check_headers(message)
        counters.check_present(message, config)
        if message.increment is not None and config.allow_msg_counter:
            self._count(message)
        is_schedule = False
        if message.headers:
            self._check_sequences(message)
            now_ns = self._stream.host.clock.now_ns()
            is_schedule = schedules.check(message, config, now_ns, self._may_be_schedule)
            self._check_rollup(message)
        self._counts[message.subject] += 1
        self._schedules[message.subject] = is_schedule
        self._bytes += record_size(message, config.storage)
        self._check_room(message)
        self._last_seq += 1

    def pass_plain(self, subjects: Sequence[bytes]) -> None:
        """Count messages that no rule looks at, by their subjects."""
        self._counts.update(subjects)
        self._last_seq += len(subjects)

    def _check_headers(self, message: Message) -> None:
        config = self._stream.config
        if len(message.headers) > MESSAGE_HEADERS_BYTES_MAX:
            raise ApiError(error_codes.STREAM_HEADER_EXCEEDS_MAXIMUM)
        counters.check(message, config)
        expectations.check_stream(message, config)
        lifetimes.check_strictly(message, config)
        known_seq = self._publishing.known_seq(message)
        if known_seq or message.message_id in self._message_ids:
            raise AlreadyThere(known_seq)
        if message.message_id:
            self._message_ids.add(message.message_id)
        if message.value(STREAM_SOURCE):
            raise ApiError(error_codes.MESSAGE_SOURCE_HDR_NOT_ALLOWED)

    def _count(self, message: Message) -> None:
        total = self._totals.get(message.subject)
        if total is None:
            total = counters.total_of(self._stream.store, message.subject)
        counters.apply(message, total)
        self._publishing.check_counted(message)
        self._totals[message.subject] = total

    def _check_sequences(self, message: Message) -> None:
        expectations.check_last_seq(message, self._last_seq)
        if self._counts and expectations.expected_last_seq(message) is not None:
            # Only the first can know it.
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        expected = expectations.expected_subject_seq(message)
        if expected is None:
            return
        subject, seq = expected
        if subject in self._counts:
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        if subject not in self._expected:
            self._expected[subject] = expectations.last_seq_of(self._stream.store, subject)
        if self._expected[subject] != seq:
            last_seq = self._expected[subject]
            raise ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=last_seq)

    def _may_be_schedule(self, subject: bytes) -> bool:
        if subject in self._schedules:
            return self._schedules[subject]
        return schedules.may_be_schedule(self._stream.store, subject)

    def _check_rollup(self, message: Message) -> None:
        rollups.check(message, self._stream.config)
        if message.rollup == ROLLUP_SUBJECT and message.subject in self._counts:
            raise rollups.refusal("batch rollup sub invalid")
        if message.rollup == ROLLUP_ALL and self._counts:
            raise rollups.refusal("batch rollup all invalid")

    def _check_room(self, message: Message) -> None:
        config, store = self._stream.config, self._stream.store
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
