"""Messages of one key, one after another; messages of different keys, side by side.

The key of a message is a token of its subject; what has no such token shares one key. A message is
delivered for the first time when no other of its key is out unacknowledged. Until then it is
*held*: the consumer goes on with what follows in the stream, and comes back to it when its key is
free.

What always holds: of each key at most one message is pending, and the messages of a key are
delivered in the order of the stream; so are those that are delivered again, for nothing of their
key overtakes them. As many keys are in flight as messages are pending, at most `max_ack_pending`;
at most `HELD_MESSAGES_MAX` messages are held, beyond which the consumer waits. The ack floor stays
below what is held.

One thread: the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from penstock.consumer.extensions import key_token
from penstock.errors import CorruptStore, RecordNotFound
from penstock.limits import HELD_MESSAGES_MAX
from penstock.store.block_files import StoredMessage

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer


def new_keys(consumer: Consumer) -> KeyOrder | None:
    """Give a consumer what its metadata asks for."""
    position = key_token(consumer.config)
    return KeyOrder(consumer, position) if position else None


_HELD_AT_ONCE = 100
_STALE_MAX = 64
"""Entries that are out of date and kept, beside as many as are not."""


class KeyOrder:
    """Which message of one consumer goes next, by their keys; see the module."""

    __slots__ = (
        "_consumer",
        "_deliveries",
        "_held",
        "_in_flight",
        "_keys",
        "_order",
        "_position",
        "_ready",
        "_waiting",
        "upcoming",
    )

    def __init__(self, consumer: Consumer, position: int) -> None:
        """`position` is that of the key's token, from 1 on."""
        self._consumer = consumer
        self._position = position
        self._in_flight: dict[bytes, int] = {}
        """The pending message of each key."""

        self._keys: dict[int, bytes] = {}
        """The keys of pending messages."""

        self._held: dict[int, bytes] = {}
        """The keys of held messages."""

        self._waiting: dict[bytes, deque[int]] = {}
        """The held messages of each key, in order."""

        self._ready: list[int] = []
        """A heap of held messages whose key is free; some are out of date."""

        self._order: deque[int] = deque()
        """All that are held, in order, among some that no longer are."""

        self._deliveries: list[tuple[int, int]] = []
        """A heap of (consumer sequence, stream sequence) of what is pending, among some that no
        longer is."""

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
        tokens = subject.split(b".", self._position)
        return tokens[self._position - 1] if len(tokens) >= self._position else b""

    # Choosing

    def advance(self) -> int:
        """Find out which message is `upcoming`; give how many were held on the way.

        Where some were, there may be more: it is to be called again.
        """
        consumer = self._consumer
        store = consumer.stream.store
        held = 0
        self.upcoming = self._first_ready()
        while (
            self.upcoming is None and len(self._held) < HELD_MESSAGES_MAX and held < _HELD_AT_ONCE
        ):
            durable_seq = store.durable_seq
            try:
                message = store.load_next(consumer.cursor, consumer.subjects)
            except RecordNotFound:
                consumer.cursor = max(consumer.cursor, durable_seq + 1)
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
                    return self._consumer.stream.store.load(seq)
                except (RecordNotFound, CorruptStore):
                    self.let_go(seq)
            if self._ready[0] == seq:
                heappop(self._ready)
        return None

    def _pass(self, stream_seq: int) -> None:
        consumer = self._consumer
        consumer.cursor = stream_seq + 1
        consumer.counting.delivered(1, consumer.cursor)

    def _hold(self, stream_seq: int, key: bytes) -> None:
        self._held[stream_seq] = key
        self._waiting.setdefault(key, deque()).append(stream_seq)
        self._order.append(stream_seq)

    def sent(self, message: StoredMessage) -> None:
        """The upcoming message was delivered, and is pending."""
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
        consumer_seq = self._consumer.pending.consumer_seq_of(stream_seq)
        heappush(self._deliveries, (consumer_seq, stream_seq))

    # What becomes of messages

    def free(self, stream_seqs: Iterable[int]) -> bool:
        """Be done with messages, pending or not; tell whether others may be delivered for that."""
        was_full = len(self._held) >= HELD_MESSAGES_MAX
        for seq in stream_seqs:
            key = self._keys.pop(seq, None)
            if key is not None and self._in_flight.get(key) == seq:
                del self._in_flight[key]
                self._offer(key)
        self._settle_floor()
        return was_full or bool(self._ready)

    def let_go(self, stream_seq: int) -> None:
        """Hold a message no more that is not in the stream, or not wanted."""
        key = self._held.pop(stream_seq, None)
        if key is not None:
            self._waiting[key].remove(stream_seq)
            self._tidy(key)
            self._offer(key)

    def review(self) -> None:
        """Let go of all that is not in the stream, or not wanted, any more."""
        subjects = self._consumer.subjects
        for seq in tuple(self._held):
            try:
                message = self._consumer.stream.store.load(seq)
            except (RecordNotFound, CorruptStore):
                self.let_go(seq)
                continue
            if subjects is not None and not subjects.matches(message.subject):
                self.let_go(seq)
        self.free([seq for seq in self._keys if seq not in self._consumer.pending])

    def _offer(self, key: bytes) -> None:
        waiting = self._waiting.get(key)
        if waiting and key not in self._in_flight:
            heappush(self._ready, waiting[0])

    def _tidy(self, key: bytes) -> None:
        if not self._waiting[key]:
            del self._waiting[key]

    def _settle_floor(self) -> None:
        """Keep the ack floor below all that is pending or held, whatever was delivered first."""
        pending = self._consumer.pending
        deliveries = self._deliveries
        if len(deliveries) > 2 * len(pending) + _STALE_MAX:
            deliveries[:] = [(consumer_seq, seq) for seq, consumer_seq, _ in pending.entries()]
            heapify(deliveries)
        while deliveries and pending.consumer_seq_of(deliveries[0][1]) != deliveries[0][0]:
            heappop(deliveries)
        pending.floor_consumer_seq = (
            deliveries[0][0] - 1 if deliveries else pending.delivered_consumer_seq
        )
        order = self._order
        if len(order) > 2 * len(self._held) + _STALE_MAX:
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
        """Begin anew."""
        for each in (self._in_flight, self._keys, self._held, self._waiting):
            each.clear()
        for heap in (self._ready, self._deliveries):
            heap.clear()
        self._order.clear()

    def recover(self, held: Iterable[int]) -> None:
        """Go on with what is pending, and what was held."""
        store = self._consumer.stream.store
        for seq, _, _ in self._consumer.pending.entries():
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
