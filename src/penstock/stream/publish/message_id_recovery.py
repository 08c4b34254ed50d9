"""The message ids from before a restart: those of stored messages that are within the window.

They are read when they are first needed, a slice at a time, so that a long window does not keep
other streams waiting. Until all are known, messages published to the stream are held in order.
`Publishing` asks for one slice per turn of the loop and judges the messages that are returned.

Invariants: no message is judged by incomplete ids, and none overtakes another. What is held is
bounded: beyond the bound the rest of the ids is read at once.

Thread: the event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from penstock.clock import Clock
from penstock.errors import RecordNotFound, StoreError
from penstock.limits import HELD_MESSAGES_BYTES_MAX, MESSAGE_IDS_READ_AT_ONCE
from penstock.protocol.headers import value_of
from penstock.store.filestore import FileStore
from penstock.store.log.block import StoredMessage
from penstock.stream.publish.message import EXPECTED_LAST_ID, MESSAGE_ID, IncomingMessage
from penstock.stream.publish.message_ids import MessageIds, collect

_LOAD_COST = 20
"""A message that must be loaded by itself, as an encrypted one, costs as much as this many."""

_TAKE_COST = 40
"""The same of a message that was held and is judged."""

_HELD_OVERHEAD_BYTES = 256
"""What a held message takes beside its own bytes."""

Held: TypeAlias = tuple[IncomingMessage, bytes | None]
"""A message and its reply subject."""


class MessageIdRecovery:
    """Reads the message ids of one stream, and holds messages meanwhile; see the module."""

    def __init__(self, message_ids: MessageIds, store: FileStore, clock: Clock) -> None:
        self._message_ids = message_ids
        self._store = store
        self._clock = clock
        self._held: deque[Held] = deque()
        self._held_bytes = 0
        self._next_seq = 0
        """The sequence to read next; 0 before reading has begun."""

        self._last_seq = 0
        self.is_under_way = False
        """Whether published messages are held."""

    def holds(self, message: IncomingMessage, reply: bytes | None) -> bool:
        """Hold a message that cannot be judged yet; return False if it can."""
        if not self.is_under_way:
            if self._message_ids.is_ready or not _needs_ids(message):
                return False
            if self._reads_all(MESSAGE_IDS_READ_AT_ONCE):
                return False
            self.is_under_way = True
        self._held.append((message, reply))
        size = len(message.subject) + len(message.headers) + len(message.body)
        self._held_bytes += size + _HELD_OVERHEAD_BYTES
        return True

    @property
    def is_full(self) -> bool:
        """Whether more is held than may be: all of it is to be judged now."""
        return self._held_bytes > HELD_MESSAGES_BYTES_MAX

    def read_slice(self) -> Iterator[Held]:
        """Read the next ids; once all are known, yield some of the held messages to be judged.

        Recovery has ended when the last held message was yielded.
        """
        if not self._reads_all(MESSAGE_IDS_READ_AT_ONCE):
            return
        yield from self._released(max(MESSAGE_IDS_READ_AT_ONCE // _TAKE_COST, 1))
        if not self._held:
            self.is_under_way = False

    def read_rest(self) -> Iterator[Held]:
        """Read all ids at once; yield every held message to be judged."""
        self.read_all()
        yield from self._released(len(self._held))

    def _released(self, count: int) -> Iterator[Held]:
        while count and self._held:
            count -= 1
            yield self._held.popleft()
        if not self._held:
            self._held_bytes = 0

    def read_all(self) -> None:
        """Read every id, however long it takes."""
        while not self._reads_all(MESSAGE_IDS_READ_AT_ONCE):
            pass

    def begin_again(self) -> None:
        """Forget what is known: the store was reopened, and ends where it did not before."""
        self._message_ids.clear()
        self._message_ids.is_ready = False
        self._next_seq = 0

    def stop(self) -> None:
        """Forget the held messages; they are not answered."""
        self._held.clear()

    def _reads_all(self, budget: int) -> bool:
        """Read some of the ids that are left; return True if none is left."""
        message_ids, store = self._message_ids, self._store
        if message_ids.is_ready:
            return True
        if not self._next_seq:
            now_ns = self._clock.now_ns()
            self._last_seq = store.last_seq if message_ids.window_ns > 0 else 0
            self._next_seq = max(store.seq_from_time(now_ns - message_ids.window_ns), 1)
        scanner = store.scanner()
        while self._next_seq <= self._last_seq and budget > 0:
            self._next_seq, cost, is_unread = collect(
                message_ids, scanner, self._next_seq, self._last_seq, budget
            )
            budget -= cost
            if is_unread:
                self._load()
                budget -= _LOAD_COST
        message_ids.is_ready = self._next_seq > self._last_seq
        return message_ids.is_ready

    def _load(self) -> None:
        message = _message_from(self._store, self._next_seq)
        if message is None:
            self._next_seq = self._last_seq + 1
            return
        message_id = value_of(message.headers, MESSAGE_ID) if message.headers else None
        if message_id:
            self._message_ids.remember(message_id, message.seq, message.timestamp_ns)
        self._next_seq = message.seq + 1


def _needs_ids(message: IncomingMessage) -> bool:
    return bool(message.value(MESSAGE_ID) or message.value(EXPECTED_LAST_ID))


def _message_from(store: FileStore, seq: int) -> StoredMessage | None:
    """Return the first readable message from a sequence on, or None; most sequences have one."""
    try:
        return store.load(seq)
    except StoreError:
        try:
            return store.load_next(seq)
        except RecordNotFound:
            return None
