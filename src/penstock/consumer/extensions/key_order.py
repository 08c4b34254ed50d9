"""Messages of one key, one after another; messages of different keys, side by side.

The key of a message is a token of its subject; messages without such a token share one key. A
message is delivered for the first time when no other of its key is out unacknowledged. Until then
it is *held*: the consumer goes on with what follows in the stream, and comes back to it when its
key is free.

Invariants:

- Of each key at most one message is pending, and the messages of a key are delivered in the order
  of the stream, also when they are delivered again.
- At most `max_ack_pending` keys are in flight; at most `HELD_MESSAGES_MAX` messages are held,
  beyond which the consumer waits.
- The ack floor stays below what is held.

`pump` asks it for the next message. Thread: the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from penstock.errors import CorruptStore, RecordNotFound
from penstock.limits import HELD_MESSAGES_MAX, KEY_ENTRIES_STALE_MAX, KEYS_HELD_AT_ONCE
from penstock.store.log.block import StoredMessage

if TYPE_CHECKING:
    from penstock.consumer.progress import Progress


class KeyOrder:
    """Which message of one consumer goes next, by key; see the module."""

    __slots__ = (
        "_deliveries",
        "_held",
        "_in_flight",
        "_keys",
        "_order",
        "_progress",
        "_ready",
        "_token",
        "_waiting",
        "upcoming",
    )

    def __init__(self, progress: Progress, token: int) -> None:
        """`token` is the position of the key in subjects, from 1 on."""
        self._progress = progress
        self._token = token
        self._in_flight: dict[bytes, int] = {}
        """The pending message of each key."""

        self._keys: dict[int, bytes] = {}
        """The keys of pending messages."""

        self._held: dict[int, bytes] = {}
        """The keys of held messages."""

        self._waiting: dict[bytes, deque[int]] = {}
        """The held messages of each key, in order."""

        self._ready: list[int] = []
        """A heap of held messages whose key is free; some entries are out of date."""

        self._order: deque[int] = deque()
        """All held messages, in order; some entries are out of date."""

        self._deliveries: list[tuple[int, int]] = []
        """A heap of (consumer sequence, stream sequence) of pending messages; some entries are out
        of date."""

        self.upcoming: StoredMessage | None = None
        """The message that may be delivered now, as of the last `advance`."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, stream_seq: int) -> bool:
        return stream_seq in self._held

    @property
    def held(self) -> frozenset[int]:
        """The messages that are held."""
        return frozenset(self._held)

    def _key_of(self, subject: bytes) -> bytes:
        tokens = subject.split(b".", self._token)
        return tokens[self._token - 1] if len(tokens) >= self._token else b""

    # Choosing

    def advance(self) -> int:
        """Find out which message is `upcoming`; return how many were held on the way.

        If some were, there may be more: call it again.
        """
        progress = self._progress
        store, position = progress.store, progress.position
        held = 0
        self.upcoming = self._first_ready()
        while (
            self.upcoming is None
            and len(self._held) < HELD_MESSAGES_MAX
            and held < KEYS_HELD_AT_ONCE
        ):
            durable_seq = store.durable_seq
            try:
                message = store.load_next(position.cursor, progress.subjects)
            except RecordNotFound:
                position.cursor = max(position.cursor, durable_seq + 1)
                break
            if message.seq > durable_seq:
                break
            key = self._key_of(message.subject)
            if key in self._in_flight or key in self._waiting:
                self._hold(message.seq, key)
                self._pass(message.seq)
                held += 1
            else:
                self.upcoming = message
        return held

    def _first_ready(self) -> StoredMessage | None:
        while self._ready:
            seq = self._ready[0]
            if seq in self._held:
                try:
                    return self._progress.store.load(seq)
                except (RecordNotFound, CorruptStore):
                    self.let_go(seq)
            if self._ready[0] == seq:
                heappop(self._ready)
        return None

    def _pass(self, stream_seq: int) -> None:
        progress = self._progress
        progress.position.cursor = stream_seq + 1
        progress.counting.delivered(1, stream_seq + 1)

    def _hold(self, stream_seq: int, key: bytes) -> None:
        self._held[stream_seq] = key
        self._waiting.setdefault(key, deque()).append(stream_seq)
        self._order.append(stream_seq)

    def sent(self, message: StoredMessage) -> None:
        """Note that the upcoming message was delivered, and is pending."""
        key = self._key_of(message.subject)
        if self._held.pop(message.seq, None) is None:
            self._pass(message.seq)
        else:
            self._waiting[key].popleft()
            self._tidy(key)
        self._fly(message.seq, key)

    def _fly(self, stream_seq: int, key: bytes) -> None:
        self._in_flight[key] = stream_seq
        self._keys[stream_seq] = key
        consumer_seq = self._progress.pending.consumer_seq_of(stream_seq)
        heappush(self._deliveries, (consumer_seq, stream_seq))

    # What becomes of messages

    def free(self, stream_seqs: Iterable[int]) -> bool:
        """Free the keys of messages that are done with; return True if others may be delivered."""
        was_full = len(self._held) >= HELD_MESSAGES_MAX
        for seq in stream_seqs:
            key = self._keys.pop(seq, None)
            if key is not None and self._in_flight.get(key) == seq:
                del self._in_flight[key]
                self._offer(key)
        self._settle_floor()
        return was_full or bool(self._ready)

    def let_go(self, stream_seq: int) -> None:
        """Drop a held message that is not in the stream, or not wanted, any more."""
        key = self._held.pop(stream_seq, None)
        if key is not None:
            self._waiting[key].remove(stream_seq)
            self._tidy(key)
            self._offer(key)

    def review(self) -> None:
        """Drop all held messages that are not in the stream, or not wanted, any more."""
        subjects = self._progress.subjects
        for seq in tuple(self._held):
            try:
                message = self._progress.store.load(seq)
            except (RecordNotFound, CorruptStore):
                self.let_go(seq)
                continue
            if subjects is not None and not subjects.matches(message.subject):
                self.let_go(seq)
        self.free([seq for seq in self._keys if seq not in self._progress.pending])

    def _offer(self, key: bytes) -> None:
        waiting = self._waiting.get(key)
        if waiting and key not in self._in_flight:
            heappush(self._ready, waiting[0])

    def _tidy(self, key: bytes) -> None:
        if not self._waiting[key]:
            del self._waiting[key]

    def _settle_floor(self) -> None:
        """Put the ack floor right below the first message that is pending or held."""
        pending = self._progress.pending
        deliveries = self._deliveries
        if len(deliveries) > 2 * len(pending) + KEY_ENTRIES_STALE_MAX:
            deliveries[:] = [(consumer_seq, seq) for seq, consumer_seq, _ in pending.entries()]
            heapify(deliveries)
        while deliveries and pending.consumer_seq_of(deliveries[0][1]) != deliveries[0][0]:
            heappop(deliveries)
        pending.floor_consumer_seq = (
            deliveries[0][0] - 1 if deliveries else pending.delivered_consumer_seq
        )
        order = self._order
        if len(order) > 2 * len(self._held) + KEY_ENTRIES_STALE_MAX:
            self._order = order = deque(sorted(self._held))
        while order and order[0] not in self._held:
            order.popleft()
        first = pending.first()
        below = [order[0]] if order else []
        below += [first[0]] if first is not None else []
        pending.floor_stream_seq = min(
            (min(below) - 1 if below else pending.delivered_stream_seq),
            pending.delivered_stream_seq,
        )

    # Beginning

    def forget(self) -> None:
        """Forget all keys: the consumer starts again."""
        for each in (self._in_flight, self._keys, self._held, self._waiting):
            each.clear()
        for heap in (self._ready, self._deliveries):
            heap.clear()
        self._order.clear()

    def recover(self, held: Iterable[int]) -> None:
        """Go on with what is pending and what was held before a restart."""
        store = self._progress.store
        for seq, _, _ in self._progress.pending.entries():
            try:
                self._fly(seq, self._key_of(store.load(seq).subject))
            except (RecordNotFound, CorruptStore):
                continue
        for seq in sorted(held):
            try:
                self._hold(seq, self._key_of(store.load(seq).subject))
            except (RecordNotFound, CorruptStore):
                continue
        for key in self._waiting:
            self._offer(key)
        self._settle_floor()
