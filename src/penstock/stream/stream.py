"""A stream: a configuration, a store, and the subscriptions that feed it.

Messages come in through `Ingest`: the plain ones straight into the store, the others by way of
`Publishing`, which knows the rules for headers. Their acknowledgements wait until the store says
that they are durable. What a stream is asked for and how it is changed is here; which streams there
are is the account's business.

What always holds: an acknowledgement is sent after its message is durable; a configuration is on
stable storage before anybody is told that it is in force.

One thread: the event loop's. The store's commits are on the disk meanwhile, and end in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from penstock.clock import Clock
from penstock.documents.encoding import to_json
from penstock.documents.times import Instant
from penstock.errors import StoreError
from penstock.format.damage import Damage
from penstock.routing.hub import Hub
from penstock.routing.sublist import Sublist, Subscription
from penstock.store.filestore import FileStore
from penstock.store.vfs import FileSystem
from penstock.stream.audience import Audience, NoAudience, Taker
from penstock.stream.batch_room import BatchRoom
from penstock.stream.config import StorageType, StreamConfig
from penstock.stream.folders import StreamFolder
from penstock.stream.headers import without_status
from penstock.stream.ingest import Ingest
from penstock.stream.messages import Message
from penstock.stream.publishing import Publishing
from penstock.stream.storage import StoragePolicy, open_store, store_config
from penstock.stream.storage_room import StorageRoom
from penstock.stream.tracing import StreamTrace
from penstock.subjects import SubjectFilter

R = TypeVar("R")


class StreamHost(Protocol):
    """What a stream needs of the server that it is part of."""

    hub: Hub
    clock: Clock
    files: FileSystem
    domain: str
    policy: StoragePolicy
    batch_room: BatchRoom

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that owns every stream."""
        ...

    @property
    def payload_bytes_max(self) -> int:
        """The largest message that clients may publish."""
        ...

    def bytes_left(self, storage: StorageType) -> int:
        """Tell how much more all streams of a kind may store."""
        ...

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        ...

    def advise(self, sublist: Sublist, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Tell whoever listens on `$JS.EVENT.<subject>`; `kind` is the type behind its prefix."""
        ...

    def out_of_storage(self, stream: str) -> None:
        """Tell whoever watches the server that its disk is full: a stream takes no more."""
        ...


class Stream:
    """One stream; see the module."""

    def __init__(
        self,
        host: StreamHost,
        sublist: Sublist,
        folder: StreamFolder,
        config: StreamConfig,
        created: Instant,
    ) -> None:
        """Open the store; raises what opening a store raises."""
        self.host = host
        self.sublist = sublist
        self.folder = folder
        self.config = config
        self.created = created
        self.publishing = Publishing(self)
        self.is_stopped = False
        self.on_message: list[Callable[[], None]] = []
        """Called when something was stored: whoever delivers from the stream."""

        self.on_durable: list[Callable[[], None]] = []
        """Called when something has become durable, behind the acknowledgements of it."""

        self.consumers: Audience = NoAudience()
        self.room: Callable[[], StorageRoom] = StorageRoom
        """Tells what account and server have left for it."""

        self.takers: list[Taker] = []
        self.tells_first_seq = config.first_seq > 0
        """Whether it tells its first sequence even before it has had a message."""

        self.last_skip_ns = 0
        """When a message last came that nobody wanted, since the stream was opened."""

        self.is_caught_up = True
        """False for a mirror until it has had all that its origin has, once since it was opened."""

        self.on_caught_up: list[Callable[[], None]] = []

        self._durable_seq = 0
        self._is_release_due = False
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_ns = 0
        self._subscriptions: list[Subscription] = []
        domain = b'"domain":%b,' % to_json(host.domain) if host.domain else b""
        start = b'{"stream":%b,%b"seq":' % (to_json(config.name), domain)
        self.ingest = Ingest(host.hub, sublist, self, start, self.publishing.message_ids)
        self.store = self._open()
        self._attach()

    def _open(self) -> FileStore:
        return open_store(
            self.config,
            self.folder.messages_path,
            self.host.policy,
            files=self.host.files,
            clock=self.host.clock,
            on_durable=self._committed,
            on_damage=self._damaged,
        )

    def _attach(self) -> None:
        self.ingest.attach(self.store.intake(), self.store.state().last_seq)
        self.ingest.careful = self.publishing.is_careful
        self.ingest.silent = self.config.no_ack

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.config.name

    @property
    def consumer_count(self) -> int:
        """How many consumers it has."""
        return self.consumers.count

    # Coming and going

    def start(self) -> None:
        """Take messages from now on."""
        self.publishing.start()
        self._subscribe()
        self.plan_expiry()

    def _subscribe(self) -> None:
        for subject in self.config.subjects:
            sid = b"%d" % (len(self._subscriptions) + 1)
            subscription = Subscription(self.ingest, subject.encode(), sid)
            self.sublist.insert(subscription)
            self._subscriptions.append(subscription)

    def _unsubscribe(self) -> None:
        for subscription in self._subscriptions:
            self.sublist.remove(subscription)
        self._subscriptions.clear()

    def stop(self) -> None:
        """Take no more messages; all that was taken is durable when this returns."""
        if self.is_stopped:
            return
        self._leave()
        self.consumers.stop()
        self.store.stop()
        self.ingest.release(self.store.durable_seq)

    def leave(self) -> None:
        """Take no more messages, and have no consumers any more: the stream is to be removed."""
        self._leave()
        self.consumers.remove()

    def remove(self) -> None:
        """Remove what is on the disk of a stream that was left. Any thread."""
        if self.config.storage is StorageType.FILE:
            # From here on a restart would go on with the removal.
            self.folder.begin_removal()
        self.store.delete()
        self.folder.remove()

    def _leave(self) -> None:
        self.is_stopped = True
        self._unsubscribe()
        self.publishing.stop()
        self.ingest.finish_batch()
        if self._expiry is not None:
            self._expiry.cancel()

    def update(self, config: StreamConfig) -> None:
        """Go over to another configuration, which was checked and is on the disk."""
        subjects_differ = config.subjects != self.config.subjects
        self.config = config
        self.store.update_config(store_config(config, self.host.policy))
        self.publishing.refresh()
        self._attach()
        if subjects_differ:
            self._unsubscribe()
            self._subscribe()
        self.plan_expiry()

    # Messages

    def take(
        self,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
        *,
        trace: StreamTrace | None = None,
    ) -> None:
        """Judge and store a message that wants a closer look; the compiled half calls this."""
        if trace is not None:
            trace.begin(self.name)
        message = Message(subject, without_status(headers), body, trace=trace)
        self.publishing.take(message, reply)

    def on_members(self) -> None:
        """Members of atomic batches came in by the compiled path."""
        self.publishing.atomic_batches.touch()

    def on_stored(self) -> None:
        """Messages came in; the compiled half calls this at the end of a buffer."""
        if self._expiry is None and self.config.max_age > 0:
            self.plan_expiry()
        self.publishing.on_stored()
        for each in self.on_message:
            each()

    def purge(self, subjects: SubjectFilter | None, *, seq: int = 0, keep: int = 0) -> int:
        """Remove the wanted messages below `seq` (0: all) but the newest `keep`; give how many.

        Where all are wanted, the stream goes on with `seq` even if that is still to come. They may
        come back after a power cut, until `make_durable` was waited for.
        """
        self.ingest.finish_batch()
        if seq > 1 and (subjects is None or subjects.everything):
            purged = self.store.compact(seq, durable=False)
        else:
            purged = self.store.purge(subjects, seq=seq, keep=keep, durable=False)
        if (subjects is None or subjects.everything) and not seq and not keep:
            self.tells_first_seq = True
        self.consumers.on_purged(subjects)
        return purged

    async def make_durable(self) -> None:
        """All that was changed so far is on stable storage when this returns."""
        await self._off_loop(self.store.flush)

    async def remove_message(self, seq: int, *, erase: bool) -> bool:
        """Remove a message, and overwrite its bytes if so asked; False where there is none."""
        self.ingest.finish_batch()
        if erase:
            removed = await self._off_loop(lambda: self.store.erase(seq))
        else:
            removed = self.store.remove(seq)
        self.consumers.on_removed(seq)
        return removed

    async def _off_loop(self, work: Callable[[], R]) -> R:
        """Have something done that waits for the disk, while the loop goes on."""
        if self.config.storage is StorageType.MEMORY:
            return work()
        return await self.host.loop.run_in_executor(None, work)

    def _committed(self, durable_seq: int) -> None:
        # In the loop's thread as a rule; in another's that commits or waits for a commit.
        self._durable_seq = durable_seq
        if not self._is_release_due:
            self._is_release_due = True
            loop = self.host.loop
            if asyncio._get_running_loop() is loop:
                loop.call_soon(self._release)
            else:
                loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self._is_release_due = False
        self.ingest.release(self._durable_seq)
        for each in tuple(self.on_durable):
            each()
        self.host.hub.flush()

    def _damaged(self, damage: Damage) -> None:
        self.host.log("ERR", f"JetStream stream {self.name!r}: {damage}")

    # Time

    def expires_by(self, expires_ns: int) -> None:
        """A message was stored that expires then, which may be before anything else does."""
        if self._expiry is None or expires_ns < self._expiry_ns:
            self.plan_expiry()

    def plan_expiry(self) -> None:
        """Look again when something may have outlived its time."""
        due_ns = self.store.next_expiry_ns()
        self._expiry_ns = due_ns or 0
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if due_ns is None or self.is_stopped:
            return
        delay_s = max((due_ns - self.host.clock.now_ns()) / 1e9, 0.0)
        # A timer a day at the most: the wall clock may be set meanwhile.
        self._expiry = self.host.loop.call_later(min(delay_s, 86_400.0), self._expire)

    def _expire(self) -> None:
        self._expiry = None
        try:
            if self.config.subject_delete_marker_ttl > 0:
                self.publishing.expire()
                self.host.hub.flush()
            else:
                self.store.expire()
        except StoreError as error:
            self.host.log("ERR", f"JetStream stream {self.name!r}: {error}")
            return
        self.plan_expiry()
