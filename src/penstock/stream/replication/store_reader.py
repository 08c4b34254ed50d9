"""Reading an origin that is a stream of this server: straight from its store, in batches.

Only durable messages are read, so that no stream has a message that its origin may lose. The reader
wakes when the origin has new messages, and gives other streams a turn between batches. An origin
that keeps messages only while they are needed may remove one when it is durable in this stream.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import RecordNotFound, StoreError
from penstock.limits import FEED_BYTES_MAX, FEED_MESSAGES_MAX, FEED_RETRY_S
from penstock.store.log.block import StoredMessage
from penstock.store.log.fast_copy import Copier
from penstock.stream.config.config import RetentionPolicy
from penstock.stream.replication.feed import Feed, Start
from penstock.stream.replication.source import identity_of

if TYPE_CHECKING:
    from penstock.stream.stream import Stream


class StoreReader:
    """Brings one stream's messages to a feed; see the module."""

    def __init__(self, feed: Feed, origin: Stream) -> None:
        self._feed = feed
        self._origin = origin
        self._loop = origin.host.loop
        self._is_due = False
        self._is_stopped = False
        self._pause: asyncio.TimerHandle | None = None
        self._gives_away = origin.config.retention is not RetentionPolicy.LIMITS
        self._given: deque[tuple[int, list[int]]] = deque()
        """Sequences the origin may remove, each list with the one that must be durable here."""

        feed.error = None
        feed.meet(identity_of(origin.created))
        feed.begin(self._resolve(feed.start()) - 1)
        self._done_seq = feed.position
        """Messages of the origin up to here are not needed any more."""

        origin.fed_streams.append(self)
        origin.on_durable.append(self._wake)
        feed.stream.on_durable.append(self._let_go)
        self._wake()

    def _resolve(self, start: Start) -> int:
        """Return the first sequence to read."""
        store = self._origin.store
        first_seq = max(store.state().first_seq, 1)
        if start.seq:
            return max(start.seq, first_seq)
        if start.time_ns is not None:
            return max(store.seq_from_time(start.time_ns), first_seq)
        return first_seq

    def lag(self) -> int:
        """Return how many messages are still to come."""
        feed = self._feed
        return self._origin.store.count_pending(feed.subjects, feed.position + 1)

    def active_ns(self) -> int:
        """Return 0: an origin on this server is always active."""
        return 0

    def stop(self) -> None:
        """Bring no more messages."""
        self._is_stopped = True
        self._origin.on_durable.remove(self._wake)
        self._origin.fed_streams.remove(self)
        self._feed.stream.on_durable.remove(self._let_go)
        if self._pause is not None:
            self._pause.cancel()

    def _wake(self) -> None:
        if not self._is_due and self._pause is None:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if self._is_stopped:
            return
        feed = self._feed
        try:
            if self._copy():
                self._wake()
                return
            messages = self._next_batch()
            is_all_taken = not messages or feed.take(messages)
        except StoreError as error:
            name, origin = feed.stream.name, self._origin.name
            feed.stream.host.log("ERR", f"JetStream stream {name!r} from {origin!r}: {error}")
            self._wait()
            return
        if self._gives_away:
            self._give(messages)
        if not is_all_taken:
            self._wait()
        elif messages:
            self._wake()
        else:
            feed.rest()

    def _copy(self) -> bool:
        """Copy by compiled code as far as possible; which messages were copied is not known."""
        store = self._origin.store
        if self._gives_away or self._feed.position >= store.durable_seq:
            return False
        copier = Copier(store.scanner(), self._feed.stream.store.appender())
        return self._feed.copy(copier, store.durable_seq)

    def _wait(self) -> None:
        self._pause = self._loop.call_later(FEED_RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._pause = None
        self._wake()

    def _next_batch(self) -> list[StoredMessage]:
        store, subjects = self._origin.store, self._feed.subjects
        durable_seq = store.durable_seq
        seq, size = self._feed.position + 1, 0
        batch: list[StoredMessage] = []
        while len(batch) < FEED_MESSAGES_MAX and size < FEED_BYTES_MAX and seq <= durable_seq:
            try:
                message = store.load_next(seq, subjects)
            except RecordNotFound:
                break
            if message.seq > durable_seq:
                break
            batch.append(message)
            size += len(message.payload)
            seq = message.seq + 1
        return batch

    def _give(self, messages: list[StoredMessage]) -> None:
        taken = [message.seq for message in messages if message.seq <= self._feed.position]
        if taken:
            self._given.append((self._feed.stream.store.state().last_seq, taken))
            self._let_go()

    def _let_go(self) -> None:
        """Release what is durable here, so that the origin may remove it."""
        durable_seq = self._feed.stream.store.durable_seq
        while self._given and self._given[0][0] <= durable_seq:
            _, seqs = self._given.popleft()
            self._done_seq = seqs[-1]
            self._origin.consumers.on_done(seqs)

    # For an origin that keeps messages only while they are needed

    def wants(self, subject: bytes) -> bool:
        """Return True if the stream takes messages of a subject."""
        return self._feed.subjects.matches(subject)

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Return True if the stream has not yet taken a message."""
        return stream_seq > self._done_seq and self.wants(subject)
