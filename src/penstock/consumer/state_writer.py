"""The states of consumers on their way to disk.

A consumer whose progress has changed is marked. Marked consumers are written together some time
later by a thread: each state as a whole, the newest only. A caller that must know when a change is
on stable storage leaves a callback.

All else that is done to consumers' folders is done by the same thread (`run`), one after another.

Invariants: states of one consumer are written one after another, in order, and none before the
consumer's document is on stable storage. A callback is called on the event loop after its state, or
a later one, was written, or with the reason why it was not.

Thread: the event loop's; only `_write` and what `run` is given run in the writer's own.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.folder import ConsumerFolder
from penstock.consumer.pending import unpacked
from penstock.errors import PenstockError
from penstock.format.state.consumer import (
    ConsumerState,
    DeadLetter,
    PendingDelivery,
    SequencePair,
)
from penstock.limits import (
    CONSUMER_STATE_INTERVAL_S,
    CONSUMER_STATE_INTERVAL_S_MAX,
    CONSUMER_STATE_WRITES_APART,
)
from penstock.stream.changes import Change, Done
from penstock.text.times import Instant

R = TypeVar("R")


class SavedConsumer(Protocol):
    """A consumer, as far as its state is written."""

    @property
    def folder(self) -> ConsumerFolder | None:
        """The consumer's folder; None if it is forgotten with the process."""
        ...

    @property
    def created(self) -> Instant:
        """When the consumer was created."""
        ...

    @property
    def config(self) -> ConsumerConfig:
        """The configuration in force."""
        ...

    def document(self, config: ConsumerConfig) -> bytes:
        """Return the content of the document that has this configuration. Thread: any."""
        ...

    def snapshot(self) -> Snapshot:
        """Return all that must be remembered, as it is now."""
        ...


class Snapshot:
    """The state of a consumer, packed; the writing thread unpacks it."""

    __slots__ = ("ahead_ns", "delivered", "floor", "held", "letters", "packed", "redelivered")

    def __init__(
        self,
        delivered: tuple[int, int],
        floor: tuple[int, int],
        packed: bytes,
        redelivered: dict[int, int],
        *,
        ahead_ns: int,
        held: Set[int],
        letters: Mapping[int, DeadLetter],
    ) -> None:
        """`delivered` and `floor` are (consumer, stream) sequences, `packed` is `Pending.packed()`.

        `ahead_ns` is how far the wall clock is ahead of the times in it.
        """
        self.ahead_ns = ahead_ns
        self.delivered = delivered
        self.floor = floor
        self.packed = packed
        self.redelivered = redelivered
        self.held = held
        self.letters = letters

    def state(self) -> ConsumerState:
        """Return the state as it is written."""
        consumer_floor, stream_floor = self.floor
        consumer_top, stream_top = self.delivered
        pending = {
            stream_seq: PendingDelivery(consumer_seq, time_ns + self.ahead_ns)
            for stream_seq, consumer_seq, time_ns in unpacked(self.packed)
            if stream_floor < stream_seq <= stream_top and consumer_seq <= consumer_top
        }
        # An ack for all up to a message may name a later delivery of it; first deliveries of other
        # pending messages may then lie below.
        lowest = min((each.consumer_seq for each in pending.values()), default=consumer_top + 1)
        return ConsumerState(
            SequencePair(*self.delivered),
            SequencePair(min(consumer_floor, lowest - 1), stream_floor),
            pending,
            {seq: count for seq, count in self.redelivered.items() if 0 < seq <= stream_top},
            # The consumer comes again to messages above this after a restart.
            {seq for seq in self.held if stream_floor < seq <= stream_top},
            {seq: letter for seq, letter in self.letters.items() if seq in pending},
        )


_Work = list[tuple[SavedConsumer, ConsumerFolder, Snapshot, list[Done]]]


class StateWriter:
    """Writes the states of all consumers of a server; see the module."""

    def __init__(
        self, loop: Callable[[], asyncio.AbstractEventLoop], log: Callable[[str, str], None]
    ) -> None:
        self._loop = loop
        self._log = log
        self._thread = ThreadPoolExecutor(1, "consumer-state")
        self._marked: dict[SavedConsumer, list[Done]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: Future[None] | None = None
        self._is_urgent = False
        self._began_s = 0.0
        self._pause_s = CONSUMER_STATE_INTERVAL_S
        """The pause between two writes without callbacks."""

    def mark(self, consumer: SavedConsumer, then: Callable[[], None] | None = None) -> None:
        """Have a consumer's state written later; call `then` when it is on stable storage."""
        if consumer.folder is None:
            if then is not None:
                then()
        elif then is not None:
            self._hurry(consumer, lambda error: then() if error is None else None)
        else:
            self._marked.setdefault(consumer, [])
            if self._timer is None:
                self._timer = self._loop().call_later(self._pause_s, self._begin)

    def save(self, consumer: SavedConsumer) -> Change | None:
        """Have a consumer's state written now; return what to wait for, None if nothing is kept."""
        if consumer.folder is None:
            return None
        change = Change()
        self._hurry(consumer, change.end)
        return change

    def _hurry(self, consumer: SavedConsumer, done: Done) -> None:
        self._marked.setdefault(consumer, []).append(done)
        if not self._is_urgent:
            self._is_urgent = True
            self._loop().call_soon(self._begin)

    def forget(self, consumer: SavedConsumer) -> None:
        """Write nothing more of a consumer that is being removed, but for a write under way."""
        for done in self._marked.pop(consumer, ()):
            done(OSError(errno.ENOENT, "the consumer was removed"))

    def run(self, work: Callable[[], R]) -> Future[R]:
        """Have something done to folders by the writer's thread, after what was begun before."""
        return self._thread.submit(work)

    def drain(self) -> None:
        """Wait until all that was begun is done. Thread: any but the writer's and the loop's."""
        self._thread.submit(lambda: None).result()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_urgent = False
        if self._writing is not None or not self._marked:
            return
        marked, self._marked = self._marked, {}
        work = [
            (consumer, folder, consumer.snapshot(), callbacks)
            for consumer, callbacks in marked.items()
            if (folder := consumer.folder) is not None
        ]
        loop = self._loop()
        self._began_s = loop.time()
        self._writing = self._thread.submit(self._write, work)
        self._writing.add_done_callback(lambda done: loop.call_soon_threadsafe(self._end, done))

    def _write(self, work: _Work) -> None:
        for consumer, folder, snapshot, callbacks in work:
            try:
                if not folder.is_kept:
                    folder.write(consumer.document(consumer.config), consumer.created)
                folder.write_state(snapshot.state())
                failure = None
            except (PenstockError, OSError) as error:
                self._log("ERR", f"JetStream consumer state {folder.path}: {error}")
                failure = error if isinstance(error, OSError) else OSError(str(error))
            for done in callbacks:
                self._loop().call_soon_threadsafe(done, failure)

    def _end(self, done: Future[None]) -> None:
        if self._writing is done:
            self._writing = None
            # Many pending messages take long to write: leave most of the time for delivering.
            took_s = self._loop().time() - self._began_s
            apart_s = min(took_s * CONSUMER_STATE_WRITES_APART, CONSUMER_STATE_INTERVAL_S_MAX)
            self._pause_s = max(CONSUMER_STATE_INTERVAL_S, apart_s, took_s * 4)
        if any(self._marked.values()):
            self._begin()
        elif self._marked and self._timer is None:
            self._timer = self._loop().call_later(self._pause_s, self._begin)

    def settle(self, consumer: SavedConsumer) -> None:
        """Write a consumer's state before returning, if it is marked."""
        callbacks = self._marked.pop(consumer, None)
        if callbacks is not None and consumer.folder is not None:
            work = [(consumer, consumer.folder, consumer.snapshot(), callbacks)]
            self._thread.submit(self._write, work).result()

    def stop(self) -> None:
        """End the writing thread."""
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown()
