"""Atomic batches: messages that are stored together or not at all.

Each message of a batch has the batch's id and a number; the last one says that the batch is to be
committed. Until then the messages are kept in memory, and their publisher gets empty answers. With
the commit all are judged in order, and then stored in one go.

Here is only which batches are open and what they hold. `Publishing` judges and stores a batch that
is returned as committed. The compiled path adds plain members by itself (`Members`).

Invariant: a batch is appended under the store's lock, so one commit has all of it. A crash in the
middle of that commit may leave the first of its messages on the disk, never acknowledged. The last
message of the stream then belongs to a batch without its end: see `torn_batch`.

Thread: the event loop's.
"""

from __future__ import annotations

import msgspec

from penstock import error_codes
from penstock.clock import Clock
from penstock.errors import ApiError, StoreError
from penstock.limits import BATCH_ID_BYTES_MAX
from penstock.protocol.headers import value_of, with_added
from penstock.store.filestore import FileStore
from penstock.stream.publish.batches import (
    INCOMPLETE,
    LARGE,
    BatchAbandoned,
    BatchQuota,
    OpenBatch,
    OpenBatches,
)
from penstock.stream.publish.facts import StreamFacts
from penstock.stream.publish.ingest import Members
from penstock.stream.publish.judge import BatchJudge
from penstock.stream.publish.message import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQ,
    EXPECTED_LAST_ID,
    STREAM_SOURCE,
    Entry,
    IncomingMessage,
    as_message,
)

COMMIT = b"1"
COMMIT_WITHOUT = b"eob"
"""The message that commits is not part of the batch; the one before it is the last."""


class _Batch(OpenBatch):
    """An open batch and its members."""

    members: Members


class CommittedBatch(msgspec.Struct):
    """A batch that is to be judged and stored."""

    batch_id: bytes
    entries: list[Entry]
    ends_without: bool
    """The message that committed it is not one of `entries`."""

    def begin(self, *, takes_plain: bool) -> None:
        """Turn entries into messages, as far as rules must see them."""
        if not takes_plain:
            self.entries = [as_message(each) for each in self.entries]
        elif self.ends_without:
            self.entries[-1] = as_message(self.entries[-1])

    def judge(self, judge: BatchJudge) -> None:
        """Check all messages in order; raise ApiError."""
        plain: list[bytes] = []
        for each in self.entries:
            if not isinstance(each, IncomingMessage):
                plain.append(each[0])
                continue
            if plain:
                judge.add_plain(plain)
                plain = []
            if each.value(EXPECTED_LAST_ID):
                header = EXPECTED_LAST_ID.decode()
                raise ApiError(error_codes.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH, header=header)
            judge.add(each)

    def mark_end(self) -> None:
        """Have the last message say that it ends the batch, if the one that did is not stored."""
        last = self.entries[-1]
        if self.ends_without and isinstance(last, IncomingMessage):
            last.headers = with_added(last.headers, BATCH_COMMIT, COMMIT)


class AtomicBatches(OpenBatches[_Batch]):
    """The open atomic batches of one stream; see the module."""

    def __init__(
        self,
        facts: StreamFacts,
        quota: BatchQuota,
        clock: Clock,
        plain_members: dict[bytes, Members],
    ) -> None:
        """`plain_members` is the compiled path's table of batches that it may add to."""
        super().__init__(facts, quota, clock)
        self._plain_members = plain_members

    def check(self, batch_id: bytes, message: IncomingMessage) -> int:
        """Return the number of a message in its batch; raise ApiError if it cannot be in any."""
        self._check_message(message)
        if not self._facts.config.allow_atomic:
            raise ApiError(error_codes.ATOMIC_PUBLISH_DISABLED)
        if len(batch_id) > BATCH_ID_BYTES_MAX:
            raise ApiError(error_codes.ATOMIC_PUBLISH_INVALID_BATCH_ID)
        digits = message.value(BATCH_SEQ)
        if not digits.isdigit() or int(digits[:21]) >= 2**64:
            raise ApiError(error_codes.ATOMIC_PUBLISH_MISSING_SEQ)
        return int(digits)

    def add(
        self, batch_id: bytes, number: int, message: IncomingMessage, *, takes_plain: bool
    ) -> CommittedBatch | None:
        """Add a message to its batch; return the batch if it is committed by that, else None.

        `takes_plain` allows the compiled path to add plain members. Raise ApiError if the message
        is refused, BatchAbandoned if the batch ends by that.
        """
        commit = value_of(message.headers, BATCH_COMMIT)
        batch = self._batches.get(batch_id) or self._opened(
            batch_id, number, commit, takes_plain=takes_plain
        )
        if commit not in (None, COMMIT, COMMIT_WITHOUT):
            self._drop(batch_id)
            raise ApiError(error_codes.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT)
        self._check_level(batch_id, message)
        batch.touched_ns = self._now_ns()
        ends_without = commit == COMMIT_WITHOUT
        if number != len(batch.members.entries) + 1 or (number == 1 and ends_without):
            self._drop(batch_id)
            raise BatchAbandoned(error_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH, batch_id, INCOMPLETE)
        size_max = self._quota.messages_max
        if number - ends_without > size_max:
            self._drop(batch_id)
            entry = error_codes.ATOMIC_PUBLISH_TOO_LARGE_BATCH
            raise BatchAbandoned(entry, batch_id, LARGE, size=size_max)
        if not ends_without:
            self._keep(batch_id, batch, message)
        if commit is None:
            return None
        self._drop(batch_id)
        return CommittedBatch(batch_id, batch.members.entries, ends_without)

    def _opened(
        self, batch_id: bytes, number: int, commit: bytes | None, *, takes_plain: bool
    ) -> _Batch:
        quota = self._quota
        if number != 1:
            size_max = quota.messages_max
            if number - (commit == COMMIT_WITHOUT) > size_max:
                raise ApiError(error_codes.ATOMIC_PUBLISH_TOO_LARGE_BATCH, size=size_max)
            raise ApiError(error_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH)
        if len(self._batches) >= quota.per_stream_max or quota.total >= quota.total_max:
            raise ApiError(error_codes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT)
        quota.total += 1
        batch = _Batch(self._now_ns(), Members(quota))
        self._batches[batch_id] = batch
        if takes_plain:
            self._plain_members[batch_id] = batch.members
        return batch

    def _keep(self, batch_id: bytes, batch: _Batch, message: IncomingMessage) -> None:
        size = len(message.subject) + len(message.headers) + len(message.body)
        if not batch.members.add(message, size):
            self._drop(batch_id)
            raise BatchAbandoned(error_codes.INSUFFICIENT_RESOURCES, batch_id, LARGE)

    def touch(self) -> None:
        """Note the time of the members that the compiled path has added."""
        now_ns = self._now_ns()
        for batch in self._batches.values():
            if batch.members.is_touched:
                batch.members.is_touched = False
                batch.touched_ns = now_ns

    def _drop(self, batch_id: bytes) -> None:
        batch = self._batches.pop(batch_id)
        self._plain_members.pop(batch_id, None)
        self._quota.total -= 1
        self._quota.bytes -= batch.members.bytes


def torn_batch(store: FileStore) -> range:
    """Return the sequences of a batch at the stream's end whose commit a crash has cut short.

    Empty if there is none, which a store that was stopped in good order need not be read for.
    """
    nothing = range(0)
    if not store.report.scanned_blocks:
        return nothing
    try:
        last = IncomingMessage(b"", store.load(store.last_seq).headers, b"")
    except StoreError:
        return nothing
    is_member = bool(last.value(BATCH_ID)) and not last.value(STREAM_SOURCE)
    digits = last.value(BATCH_SEQ)
    if not is_member or not digits.isdigit() or value_of(last.headers, BATCH_COMMIT):
        return nothing
    first_seq = store.last_seq - min(int(digits[:20]), store.last_seq) + 1
    return range(first_seq, store.last_seq + 1)
