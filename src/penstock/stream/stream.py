"""A stream: its configuration, its store, its subscriptions and its consumers.

Messages come in through `Ingest`, which applies the stream's rules: most go straight into the
store, rare ones by way of `Publishing`. Their acknowledgements wait until the store reports them
durable. Which streams there are is up to the account.

Invariants: an acknowledgement is sent after its message is durable. A configuration is durable
before a client is told that it is in force. Other modules read a stream's attributes and call its
methods; only `consumers` is set from outside, once, by the consumers' registry.

Thread: the event loop's. Commits are written by other threads and end in the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol, TypeVar

from penstock.clock import Clock
from penstock.errors import StoreError, StoreReadOnly
from penstock.format.damage import Damage
from penstock.limits import MARKERS_AT_ONCE, REMOVED_AT_ONCE, WORK_TURN_NS
from penstock.protocol.headers import without_status
from penstock.routing.hub import Hub
from penstock.routing.sublist import Sublist, Subscription
from penstock.store.filestore import FileStore
from penstock.store.vfs import FileSystem
from penstock.stream.changes import Change
from penstock.stream.config.config import StorageType, StreamConfig
from penstock.stream.consumers_port import ConsumersPort, FedStream, NoConsumers
from penstock.stream.healing import Healing
from penstock.stream.publish.batches import BatchQuota, refusal_body
from penstock.stream.publish.ingest import Ingest
from penstock.stream.publish.message import IncomingMessage, StreamTrace
from penstock.stream.publish.message_ids import MessageIds
from penstock.stream.publish.publishing import Publishing
from penstock.stream.publish.refusals import refusal, store_failed
from penstock.stream.quota import StorageQuota
from penstock.stream.restore_memory import RestoreMemory
from penstock.stream.storage import StoragePolicy, StreamFolder, open_store, store_config
from penstock.stream.timers import ExpiryTimer
from penstock.subjects import SubjectFilter
from penstock.text.json.codec import to_json
from penstock.text.times import Instant

R = TypeVar("R")


class StreamHost(Protocol):
    """What a stream needs of its server."""

    hub: Hub
    clock: Clock
    files: FileSystem
    domain: str
    policy: StoragePolicy
    batch_quota: BatchQuota
    restore_memory: RestoreMemory

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that owns every stream."""
        ...

    @property
    def payload_bytes_max(self) -> int:
        """The largest message that a client may publish."""
        ...

    def bytes_left(self, storage: StorageType) -> int:
        """Return how many more bytes all streams of a kind of storage may store."""
        ...

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        ...

    def advise(self, sublist: Sublist, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Publish an advisory on `$JS.EVENT.<subject>`; `kind` is its type behind the prefix."""
        ...

    def out_of_storage(self, stream: str) -> None:
        """Report that the disk is full: a stream takes no more."""
        ...

    def has_storage(self, stream: str) -> None:
        """Note that a stream takes messages again."""
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
        """Open the store; raise what opening a store raises."""
        self.host = host
        self.sublist = sublist
        self.folder = folder
        self.config = config
        self.created = created
        self.is_stopped = False
        self.on_durable: list[Callable[[], None]] = []
        """Called when messages have become durable, after their acknowledgements are sent."""

        self.unsettled: Change | None = None
        """What to wait for while a new stream is not on stable storage."""

        self.consumers: ConsumersPort = NoConsumers()
        self.fed_streams: list[FedStream] = []
        self.tells_first_seq = config.first_seq > 0
        """Whether the first sequence is shown even before the stream has had a message."""

        self.is_caught_up = True
        """False for a mirror until it has had all that its origin has, once since it was opened."""

        self.on_caught_up: list[Callable[[], None]] = []

        self.on_reopened: list[Callable[[], None]] = []
        """Called when the store was reopened after a failed write: it may end earlier."""

        self._quota: Callable[[], StorageQuota] = StorageQuota
        self._durable_seq = 0
        self._is_release_due = False
        self._subscriptions: list[Subscription] = []
        self.store = self._open()
        message_ids = MessageIds()
        domain = b'"domain":%b,' % to_json(host.domain) if host.domain else b""
        start = b'{"stream":%b,%b"seq":' % (to_json(config.name), domain)
        self.ingest = Ingest(host.hub, sublist, self, start, message_ids)
        self._expiry = ExpiryTimer(host, self.store, self._expire)
        self.healing = Healing(host, config.name, self.store, self._reopened)
        self.publishing = Publishing(
            host,
            sublist,
            config,
            self.store,
            self.ingest,
            message_ids,
            consumers=lambda: self.consumers,
            quota=lambda: self._quota(),
            expiry=self._expiry,
        )
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
            on_failure=self._failed,
        )

    def _attach(self) -> None:
        appender = self.store.appender()
        self.publishing.rules.attach(appender)
        self.ingest.attach(appender, self.publishing.rules, self.store.state().last_seq)
        self.ingest.careful = self.publishing.is_careful
        self.ingest.silent = self.config.no_ack

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.config.name

    @property
    def last_skip_ns(self) -> int:
        """When the last message came that no consumer wanted, since the stream was opened."""
        return self.ingest.last_skip_ns

    @property
    def consumer_count(self) -> int:
        """How many consumers clients see."""
        return self.consumers.count

    # Start and stop

    def limit_by(self, quota: Callable[[], StorageQuota]) -> None:
        """Ask `quota` from now on what account and server have left for the stream."""
        self._quota = quota

    def start(self) -> None:
        """Store messages from now on."""
        self.publishing.start()
        self._subscribe()
        self._expiry.plan()

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
        """Store no more messages; all that were stored are durable when this returns."""
        if self.is_stopped:
            return
        self._leave()
        self.consumers.stop()
        self.store.stop()
        if self.unsettled is None:
            self.ingest.release(self.store.durable_seq)

    def leave(self) -> None:
        """Store no more messages and remove the consumers: the stream is to be removed."""
        self._leave()
        self.consumers.remove()

    def remove(self) -> None:
        """Remove a stream that was left from the disk. Thread: any."""
        self.consumers.drain()
        if self.config.storage is StorageType.FILE:
            # From here on a restart would finish the removal.
            self.folder.begin_removal()
        self.store.delete()
        self.folder.remove()

    def _leave(self) -> None:
        self.is_stopped = True
        self._unsubscribe()
        self.healing.stop()
        self.publishing.stop()
        self.ingest.finish_batch()
        self._expiry.stop()

    async def update(self, config: StreamConfig) -> None:
        """Go over to another configuration, which was checked and is durable.

        It is in force at once; what is beyond its limits is gone when this returns.
        """
        subjects_differ = config.subjects != self.config.subjects
        self.config = config
        removing = self.store.in_slices.update_config(store_config(config, self.host.policy))
        self.publishing.update(config)
        self._attach()
        if subjects_differ:
            self._unsubscribe()
            self._subscribe()
        await self._in_turns(removing)
        self._expiry.plan()

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
        """Judge a message, and store or refuse it; the compiled path calls this for rare ones."""
        if trace is not None:
            trace.begin(self.name)
        message = IncomingMessage(subject, without_status(headers), body, trace=trace)
        self.publishing.take(message, reply)

    def refusal(self, err_code: int, seq: int, text: str | None) -> bytes:
        """Return the answer to a publisher whose message breaks a rule."""
        return refusal_body(refusal(err_code, seq=seq, text=text), self.name)

    def on_members(self) -> None:
        """Note that the compiled path has added members to atomic batches."""
        self.publishing.on_members()

    def on_rolled_up(self, subject: bytes) -> None:
        """Note that a message has replaced those before it with its subject."""
        self.consumers.on_purged(SubjectFilter([subject]))

    def on_stored(self, expires_ns: int = 0) -> None:
        """Note that messages were stored; the compiled path calls this at the end of a buffer.

        `expires_ns` is when the first of them expires that has a time for it, 0 for none.
        """
        self.publishing.on_stored(expires_ns)

    async def purge(self, subjects: SubjectFilter | None, *, seq: int = 0, keep: int = 0) -> int:
        """Remove matching messages below `seq` (0: all) but the newest `keep`; return how many.

        If all messages match, the stream continues at `seq` even if that is not reached yet. After
        a power cut messages may come back, until `make_durable` was awaited.
        """
        self.ingest.finish_batch()
        if seq > 1 and (subjects is None or subjects.everything):
            purged = await self._in_turns(self.store.in_slices.compact(seq))
        else:
            slices = self.store.in_slices.purge(subjects, seq=seq, keep=keep)
            purged = await self._in_turns(slices)
        if (subjects is None or subjects.everything) and not seq and not keep:
            self.tells_first_seq = True
        self.consumers.on_purged(subjects)
        return purged

    async def _in_turns(self, slices: Generator[None, None, R]) -> R:
        """Do work in slices, as many in a turn of the event loop as its share lasts for."""
        until_ns = self.host.clock.monotonic_ns() + WORK_TURN_NS
        while True:
            try:
                next(slices)
            except StopIteration as end:
                result: R = end.value
                return result
            if self.host.clock.monotonic_ns() >= until_ns:
                await asyncio.sleep(0)
                until_ns = self.host.clock.monotonic_ns() + WORK_TURN_NS

    async def make_durable(self) -> None:
        """Wait until all changes so far are durable."""
        await self._off_loop(self.store.flush)

    async def remove_message(self, seq: int, *, erase: bool) -> bool:
        """Remove a message, and overwrite its bytes if `erase`; return False if there is none."""
        return await self.healing.removing(lambda: self._remove_message(seq, erase=erase))

    async def _remove_message(self, seq: int, *, erase: bool) -> bool:
        self.ingest.finish_batch()
        if erase:
            removed = await self._off_loop(lambda: self.store.erase(seq))
        else:
            removed = self.store.remove(seq)
            await self.make_durable()
        self.consumers.on_removed(seq)
        return removed

    async def _off_loop(self, work: Callable[[], R]) -> R:
        """Do work that waits for the disk in another thread; the loop goes on."""
        if self.config.storage is StorageType.MEMORY:
            return work()
        return await self.host.loop.run_in_executor(None, work)

    def _committed(self, durable_seq: int) -> None:
        # Usually on the loop's thread; else on one that commits or waits for a commit.
        self._durable_seq = durable_seq
        if not self._is_release_due:
            self._is_release_due = True
            loop = self.host.loop
            if asyncio._get_running_loop() is loop:
                loop.call_soon(self._release)
            else:
                loop.call_soon_threadsafe(self._release)

    def settle(self) -> None:
        """Note that the new stream is on stable storage: its messages are from now on, too."""
        self.unsettled = None
        if self._durable_seq:
            self._release()

    def _release(self) -> None:
        self._is_release_due = False
        if self.unsettled is not None:
            return
        self.ingest.release(self._durable_seq)
        self.healing.on_durable()
        for each in tuple(self.on_durable):
            each()
        self.host.hub.flush()

    # A disk that fails

    def _failed(self, error: BaseException) -> None:
        # In any thread, with the store's lock.
        with contextlib.suppress(RuntimeError):
            # The loop is closed, and nobody waits for an answer any more.
            self.host.loop.call_soon_threadsafe(self._refuse_waiting, error)

    def _refuse_waiting(self, error: BaseException) -> None:
        if self.is_stopped or not self.healing.is_needed:
            return
        refused = store_failed(str(error))
        self.publishing.on_failed()
        durable_seq = 0 if self.unsettled is not None else self._durable_seq
        self.ingest.refuse(durable_seq, refusal_body(refused, self.name))
        self.healing.begin(error)
        self.host.hub.flush()

    def _reopened(self) -> None:
        self._durable_seq = self.store.durable_seq
        self._attach()
        self.publishing.on_reopened()
        self.consumers.on_reopened()
        self._expiry.plan()
        for each in tuple(self.on_reopened):
            each()
        self.host.hub.flush()

    def _damaged(self, damage: Damage) -> None:
        self.host.log("ERR", f"JetStream stream {self.name!r}: {damage}")

    # A mirror's origin

    def follow_origin(self) -> None:
        """Count as behind an origin until `catch_up`."""
        self.is_caught_up = False

    def catch_up(self) -> None:
        """Note that the stream has had all that its origin has; tell those that wait for it."""
        if not self.is_caught_up:
            self.is_caught_up = True
            for each in tuple(self.on_caught_up):
                each()
            self.on_caught_up.clear()

    # Time

    def _expire(self) -> None:
        clock = self.host.clock
        until_ns = clock.monotonic_ns() + WORK_TURN_NS
        try:
            while self._expire_some() and clock.monotonic_ns() < until_ns:
                pass
        except StoreReadOnly:
            # It is planned again when the store was reopened.
            return
        except StoreError as error:
            self.host.log("ERR", f"JetStream stream {self.name!r}: {error}")
            return
        finally:
            self.host.hub.flush()
        # What is left is due already, and goes on with the next turn.
        self._expiry.plan()

    def _expire_some(self) -> bool:
        """Remove some of what has expired; return True if there may be more."""
        if self.config.subject_delete_marker_ttl > 0:
            return self.publishing.expire(MARKERS_AT_ONCE)
        return self.store.expire(REMOVED_AT_ONCE) == REMOVED_AT_ONCE
