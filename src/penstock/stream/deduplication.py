"""The message ids from before a restart: those of the messages that are within the window.

They are read when they are first needed, a slice at a time, so that a long window does not keep
other streams waiting. Until all are known, what is published to the stream waits in its order.

What always holds: no message is judged by ids that are not all known; none overtakes another; what
waits is bounded: when there is too much of it, the rest of the ids is read at once.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import RecordNotFound, StoreError
from penstock.limits import HELD_MESSAGES_BYTES_MAX, MESSAGE_IDS_READ_AT_ONCE
from penstock.store.block_files import StoredMessage
from penstock.store.filestore import FileStore
from penstock.stream.headers import value_of
from penstock.stream.message_ids import collect
from penstock.stream.messages import EXPECTED_LAST_ID, MESSAGE_ID, Message

if TYPE_CHECKING:
    from penstock.stream.publishing import Publishing

_LOAD_COST = 20
"""A message that must be loaded by itself, as an encrypted one, costs as much as these many."""

_TAKE_COST = 40
"""As above, of a message that waited and is judged."""

_HELD_OVERHEAD_BYTES = 256
"""What a message that waits takes beside its own bytes."""


class Recollection:
    """How one stream comes to know its message ids; see the module."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._held: deque[tuple[Message, bytes | None]] = deque()
        self._held_bytes = 0
        self._next_seq = 0
        """What is read next; 0 before it is begun."""

        self._last_seq = 0
        self._turn: asyncio.Handle | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether what is published waits."""
        return self._turn is not None

    def holds(self, message: Message, reply: bytes | None) -> bool:
        """Keep a message back that cannot be judged yet; tell whether it was."""
        if self._turn is None:
            if self._publishing.message_ids.is_ready or not _asks_for_ids(message):
                return False
            if self._reads_all(MESSAGE_IDS_READ_AT_ONCE):
                return False
            self._plan()
            self._publishing.stream.ingest.careful = True
        self._held.append((message, reply))
        size = len(message.subject) + len(message.headers) + len(message.body)
        self._held_bytes += size + _HELD_OVERHEAD_BYTES
        if self._held_bytes > HELD_MESSAGES_BYTES_MAX:
            self.read_all()
            self._take_held(len(self._held))
        return True

    def read_all(self) -> None:
        """Know every id, however long it takes."""
        while not self._reads_all(MESSAGE_IDS_READ_AT_ONCE):
            pass

    def stop(self) -> None:
        """Let what waits go unanswered."""
        self._held.clear()
        if self._turn is not None:
            self._turn.cancel()

    def _plan(self) -> None:
        self._turn = self._publishing.stream.host.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        publishing = self._publishing
        is_ready = self._reads_all(MESSAGE_IDS_READ_AT_ONCE)
        if is_ready:
            self._take_held(max(MESSAGE_IDS_READ_AT_ONCE // _TAKE_COST, 1))
        if self._held or not is_ready:
            self._plan()
        else:
            self._turn = None
            publishing.stream.ingest.careful = publishing.is_careful
        publishing.stream.host.hub.flush()

    def _take_held(self, count: int) -> None:
        for _ in range(min(count, len(self._held))):
            self._publishing.take_now(*self._held.popleft())
        if not self._held:
            self._held_bytes = 0

    def _reads_all(self, budget: int) -> bool:
        """Read some of what is still to be read; tell whether all was."""
        message_ids, store = self._publishing.message_ids, self._publishing.stream.store
        if message_ids.is_ready:
            return True
        if not self._next_seq:
            now_ns = self._publishing.stream.host.clock.now_ns()
            self._last_seq = store.last_seq if message_ids.window_ns > 0 else 0
            self._next_seq = max(store.seq_from_time(now_ns - message_ids.window_ns), 1)
        outtake = store.outtake()
        while self._next_seq <= self._last_seq and budget > 0:
            self._next_seq, cost, is_unread = collect(
                message_ids, outtake, self._next_seq, self._last_seq, budget
            )
            budget -= cost
            if is_unread:
                self._load()
                budget -= _LOAD_COST
        message_ids.is_ready = self._next_seq > self._last_seq
        return message_ids.is_ready

    def _load(self) -> None:
        message = _message_from(self._publishing.stream.store, self._next_seq)
        if message is None:
            self._next_seq = self._last_seq + 1
            return
        message_id = value_of(message.headers, MESSAGE_ID) if message.headers else None
        if message_id:
            self._publishing.message_ids.remember(message_id, message.seq, message.timestamp_ns)
        self._next_seq = message.seq + 1


def _asks_for_ids(message: Message) -> bool:
    return bool(message.value(MESSAGE_ID) or message.value(EXPECTED_LAST_ID))


def _message_from(store: FileStore, seq: int) -> StoredMessage | None:
    """Give the first whole message from a sequence on; most sequences have one."""
    try:
        return store.load(seq)
    except StoreError:
        try:
            return store.load_next(seq)
        except RecordNotFound:
            return None
