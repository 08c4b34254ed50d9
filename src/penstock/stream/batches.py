"""Atomic batches: messages that are stored together or not at all.

Each message of a batch has the batch's id and a number; the last one says that the batch is to be
committed. Until then they wait in memory, and their publishers get empty answers. With the commit
all are judged, one after the other, and then stored in one go.

What always holds: a batch is appended under the store's lock, so one commit has all of it. A crash
in the middle of that commit may leave the first of its messages on the disk, never acknowledged:
the last message of a stream is then one of a batch without its end, and opening the stream removes
what there is of it.

One thread: the event loop's.
"""

from __future__ import annotations

from penstock import error_codes
from penstock.errors import ApiError, StoreError
from penstock.protocol.quoting import quoted
from penstock.stream.batch_room import ID_BYTES_MAX
from penstock.stream.config import DiscardPolicy
from penstock.stream.headers import value_of, with_added
from penstock.stream.ingest import Members
from penstock.stream.messages import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQ,
    EXPECTED_LAST_ID,
    STREAM_SOURCE,
    Entry,
    Message,
    as_message,
)
from penstock.stream.open_batches import INCOMPLETE, LARGE, OpenBatch, OpenBatches
from penstock.stream.staging import Staged

COMMIT = b"1"
COMMIT_WITHOUT = b"eob"
"""The message that commits is no part of the batch: it is the end of it."""


class _Batch(OpenBatch):
    """What there is of a batch that is not committed."""

    members: Members


class AtomicBatches(OpenBatches[_Batch]):
    """The batches of one stream; see the module."""

    def take(self, batch_id: bytes, message: Message, reply: bytes | None) -> None:
        """Take a message of a batch, and answer its publisher."""
        try:
            number = self._check(batch_id, message)
            if message.is_only_traced:
                self._publishing.tell_accepted(message)
                return
            body, seq = self._taken(batch_id, number, message)
        except ApiError as error:
            self._publishing.refuse(reply, error, message)
            return
        self._publishing.tell_accepted(message)
        self._publishing.answer(reply, seq, body)
        if seq:
            self._publishing.stream.on_stored()

    def _taken(self, batch_id: bytes, seq: int, message: Message) -> tuple[bytes, int]:
        """Give the answer, and the sequence that must be durable before it is given."""
        commit = value_of(message.headers, BATCH_COMMIT)
        batch = self._batches.get(batch_id) or self._opened(batch_id, seq, commit)
        if commit not in (None, COMMIT, COMMIT_WITHOUT):
            self._drop(batch_id)
            raise ApiError(error_codes.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT)
        self._check_level(batch_id, message)
        batch.touched_ns = self._now_ns()
        ends_without = commit == COMMIT_WITHOUT
        if seq != len(batch.members.entries) + 1 or (seq == 1 and ends_without):
            self._abandon(batch_id, INCOMPLETE)
            raise ApiError(error_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH)
        if seq - ends_without > self._room.messages_max:
            self._abandon(batch_id, LARGE)
            raise self._too_large()
        if not ends_without:
            self._keep(batch_id, batch, message)
        if commit is None:
            return b"", 0
        self._drop(batch_id)
        return self._commit(batch_id, batch, ends_without=ends_without)

    def _check(self, batch_id: bytes, message: Message) -> int:
        """Refuse what is no part of any batch; give its number."""
        self._check_message(message)
        if not self._publishing.stream.config.allow_atomic:
            raise ApiError(error_codes.ATOMIC_PUBLISH_DISABLED)
        if len(batch_id) > ID_BYTES_MAX:
            raise ApiError(error_codes.ATOMIC_PUBLISH_INVALID_BATCH_ID)
        digits = message.value(BATCH_SEQ)
        if not digits.isdigit() or int(digits[:21]) >= 2**64:
            raise ApiError(error_codes.ATOMIC_PUBLISH_MISSING_SEQ)
        return int(digits)

    def _opened(self, batch_id: bytes, seq: int, commit: bytes | None) -> _Batch:
        room = self._room
        if seq != 1:
            if seq - (commit == COMMIT_WITHOUT) > room.messages_max:
                raise self._too_large()
            raise ApiError(error_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH)
        if len(self._batches) >= room.per_stream_max or room.total >= room.total_max:
            raise ApiError(error_codes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT)
        room.total += 1
        batch = _Batch(self._now_ns(), Members(room))
        self._batches[batch_id] = batch
        if self._takes_plain():
            self._publishing.stream.ingest.open_batches[batch_id] = batch.members
        self._publishing.timer.plan()
        return batch

    def _keep(self, batch_id: bytes, batch: _Batch, message: Message) -> None:
        size = len(message.subject) + len(message.headers) + len(message.body)
        if not batch.members.add(message, size):
            self._abandon(batch_id, LARGE)
            raise ApiError(error_codes.INSUFFICIENT_RESOURCES)

    def _takes_plain(self) -> bool:
        """Tell whether members that say nothing else need no closer look.

        They are as single messages that the stream stores without one, and limits that refuse
        what is new count them one by one.
        """
        publishing = self._publishing
        config = publishing.stream.config
        return not publishing.is_careful and config.discard is not DiscardPolicy.NEW

    def touch(self) -> None:
        """Members came in that nobody here has seen."""
        now_ns = self._now_ns()
        for batch in self._batches.values():
            if batch.members.is_touched:
                batch.members.is_touched = False
                batch.touched_ns = now_ns

    def _too_large(self) -> ApiError:
        size = self._room.messages_max
        return ApiError(error_codes.ATOMIC_PUBLISH_TOO_LARGE_BATCH, size=size)

    def _commit(self, batch_id: bytes, batch: _Batch, *, ends_without: bool) -> tuple[bytes, int]:
        entries = batch.members.entries
        if not self._takes_plain():
            entries = [as_message(each) for each in entries]
        elif ends_without:
            entries[-1] = as_message(entries[-1])
        self._judge(entries)
        if ends_without:
            last = entries[-1]
            last.headers = with_added(last.headers, BATCH_COMMIT, COMMIT)
        seq = self._store(entries)
        stream = self._publishing.stream
        return stream.ingest.ack(seq, ack_part(batch_id, len(entries))), seq

    def _judge(self, entries: list[Entry]) -> None:
        publishing = self._publishing
        staged = Staged(publishing)
        plain: list[bytes] = []
        for each in entries:
            if not isinstance(each, Message):
                plain.append(each[0])
                continue
            if plain:
                staged.pass_plain(plain)
                plain = []
            publishing.transform(each)
            if each.value(EXPECTED_LAST_ID):
                header = EXPECTED_LAST_ID.decode()
                raise ApiError(error_codes.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH, header=header)
            staged.add(each)

    def _store(self, entries: list[Entry]) -> int:
        publishing = self._publishing
        messages = [each for each in entries if isinstance(each, Message)]
        if len(messages) < len(entries):
            return publishing.store_members(entries, messages)
        if all(map(publishing.is_wanted, messages)):
            return publishing.store(messages)
        seq = 0
        for message in messages:
            # Of what nobody wants there is nothing to be kept together.
            seq = publishing.keep(message)
        return seq

    # Coming to nothing

    def _drop(self, batch_id: bytes) -> None:
        batch = self._batches.pop(batch_id)
        self._publishing.stream.ingest.open_batches.pop(batch_id, None)
        self._room.total -= 1
        self._room.bytes -= batch.members.bytes

    def _abandon(self, batch_id: bytes, reason: str) -> None:
        self._drop(batch_id)
        self._publishing.advise_abandoned(batch_id, reason)

    def undo_torn(self) -> None:
        """Remove what a crash has left of a batch whose commit it cut short."""
        stream = self._publishing.stream
        store = stream.store
        # A store that was stopped in good order has nothing to scan when it is opened.
        if not store.report.scanned_blocks or stream.config.mirror is not None:
            return
        try:
            last = Message(b"", store.load(store.last_seq).headers, b"")
        except StoreError:
            return
        is_member = bool(last.value(BATCH_ID)) and not last.value(STREAM_SOURCE)
        digits = last.value(BATCH_SEQ)
        if not is_member or not digits.isdigit() or value_of(last.headers, BATCH_COMMIT):
            return
        first_seq = store.last_seq - min(int(digits[:20]), store.last_seq) + 1
        removed = sum(store.remove(seq) for seq in range(first_seq, store.last_seq + 1))
        text = f"{removed} messages of a batch that was cut short were removed"
        stream.host.log("WRN", f"JetStream stream {stream.name!r}: {text}")


def ack_part(batch_id: bytes, count: int) -> bytes:
    """Give what an acknowledgement tells of a batch."""
    return b',"batch":%b,"count":%d' % (quoted(batch_id).encode(), count)
