"""The streams of one account: create, find, update and delete them.

Invariants: no two streams capture the same message. A stream that cannot be opened stays offline
with its reason, and the others are not disturbed. A stream is changed by one request at a time;
while that waits for the disk, other streams go on. Watchers of the account's streams are called
before the client is answered.

Thread: the event loop's. Other threads write to the disk, and open stores while a server starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from enum import StrEnum
from typing import Any
from weakref import WeakValueDictionary

from penstock import error_codes
from penstock.errors import ApiError, PenstockError, StreamOffline
from penstock.routing.sublist import Sublist
from penstock.stream.changes import Change
from penstock.stream.config.config import StorageType, StreamConfig, StreamConfigRequest
from penstock.stream.config.known import KnownStreams
from penstock.stream.config.requests import checked_creation, checked_update
from penstock.stream.config.subjects import is_name
from penstock.stream.quota import UNBOUNDED, AccountLimits, ServerLimits, StorageQuota
from penstock.stream.replication.replication import Replication
from penstock.stream.settling import Settling
from penstock.stream.storage import StreamFolder
from penstock.stream.stream import Stream, StreamHost
from penstock.text.times import Instant

STREAMS_NAME = "streams"


class StreamAction(StrEnum):
    """What happened to a stream; `open` is for one found at start, the others are the wire's."""

    OPEN = "open"
    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"


_ADVISED = {
    StreamAction.CREATE: "CREATED",
    StreamAction.MODIFY: "UPDATED",
    StreamAction.DELETE: "DELETED",
}

Watcher = Callable[[StreamAction, Stream], None]


class AccountStreams:
    """One account's streams; see the module."""

    def __init__(
        self,
        host: StreamHost,
        name: str,
        sublist: Sublist,
        path: str,
        limits: AccountLimits,
    ) -> None:
        """`path` is the account's folder."""
        self.host = host
        self.name = name
        self.sublist = sublist
        self.limits = limits
        self.streams: dict[str, Stream] = {}
        self.configs = KnownStreams()
        """The configurations of all streams; a change that is being written counts already."""

        self.offline: dict[str, str] = {}
        """Streams on disk that cannot be served, and why."""

        self.replication = Replication(host, sublist, self.streams)
        self.watchers: list[Watcher] = []
        self.on_forgotten: list[Callable[[], None]] = []
        """Called when the account's folder was removed with all that was in it."""

        self.api_total = 0
        """Requests that were answered; `api_errors` are those answered with an error."""

        self.api_errors = 0
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._prepared: set[str] = set()
        """Names of streams that are being created or removed."""

        self._is_stopped = False
        self.path = path
        self._path = os.path.join(path, STREAMS_NAME)
        self._has_place = False
        self._settling = Settling(host, self._path)

    def _folder(self, name: str) -> StreamFolder:
        return StreamFolder(
            self.host.files,
            os.path.join(self._path, name),
            lambda: os.urandom(8).hex(),
            self.host.policy.document_keys,
        )

    # Queries

    @property
    def consumer_count(self) -> int:
        """How many consumers all streams have."""
        return sum(stream.consumers.total for stream in self.streams.values())

    def bytes_used(self, storage: StorageType) -> int:
        """Return the bytes of the messages in all streams of a kind of storage."""
        streams = (each for each in self.streams.values() if each.config.storage is storage)
        return sum(each.store.state().bytes for each in streams)

    def bytes_reserved(self, storage: StorageType) -> int:
        """Return the sum of `max_bytes` of all streams of a kind of storage."""
        return self.configs.reserved_bytes(storage)

    def find(self, name: str) -> Stream:
        """Return a stream; raise ApiError if there is none or it is offline."""
        stream = self.streams.get(name)
        if stream is not None:
            return stream
        if name in self.offline:
            raise ApiError(error_codes.STREAM_OFFLINE_REASON, err=self.offline[name])
        raise ApiError(error_codes.STREAM_NOT_FOUND)

    # Start

    def recover(self, threads: Executor) -> Iterator[Stream]:
        """Open every stream on disk and yield each; one that cannot be opened stays offline."""
        files = self.host.files
        if not files.is_dir(self._path):
            return
        folders = [self._folder(name) for name in sorted(files.list_names(self._path))]
        for name, opened in threads.map(self._open, folders):
            if isinstance(opened, str):
                self.offline[name] = opened
            elif opened is not None:
                self._begin(opened)
                self._tell(StreamAction.OPEN, opened)
                # What was read to start would only take memory in streams that are not used.
                opened.store.forget_sealed()
                yield opened

    def _open(self, folder: StreamFolder) -> tuple[str, Stream | str | None]:
        """Open a stream in a thread; return its name with the stream.

        With the reason instead if it cannot be served, with None if the folder is not a stream.
        """
        name = os.path.basename(folder.path)
        try:
            if not self.host.files.is_dir(folder.path) or folder.finish_removal():
                return name, None
            if not is_name(name):
                # No stream has this name: it is somebody's own folder.
                return name, None
            document = folder.read()
            return name, self._opened(folder, document.config, document.created or Instant(0))
        except StreamOffline as error:
            return name, error.reason
        except (PenstockError, OSError) as error:
            return name, str(error)

    # Changes

    def turn(self, name: str) -> asyncio.Lock:
        """Return the lock to hold while a stream, or anything that belongs to it, is changed."""
        return self._turns.setdefault(name, asyncio.Lock())

    def is_changing(self, name: str) -> bool:
        """Return True while the turn of a stream is taken."""
        lock = self._turns.get(name)
        return lock is not None and lock.locked()

    async def create(
        self, request: StreamConfigRequest, *, name: str, server: ServerLimits
    ) -> tuple[Stream, Change | None]:
        """Create a stream, or return the one with the same configuration; raise ApiError.

        It takes messages from now on. Returned is also what to wait for before a client hears of
        it; None if it is on stable storage, or shall not be. If that fails it is removed again.
        """
        async with self.turn(name):
            config = checked_creation(
                request, name=name, server=server, account=self.limits, existing=self.configs
            )
            if name in self.streams:
                return self.streams[name], self.streams[name].unsettled
            if name in self.offline:
                raise ApiError(error_codes.STREAM_OFFLINE_REASON, err=self.offline[name])
            try:
                with self._planning(config):
                    stream = await self._made(config)
            except ApiError:
                raise
            except (PenstockError, OSError) as error:
                self.host.log("WRN", f"Stream create failed for '{self.name} > {name}': {error}")
                reason = "error creating store for stream"
                raise ApiError(error_codes.STREAM_CREATE, err=reason) from error
            if self._is_stopped:
                stream.stop()
                raise ApiError(error_codes.NOT_ENABLED_FOR_ACCOUNT)
            change = None
            if config.storage is StorageType.FILE:
                change = self._settling.add(stream)
                change.on_failure(lambda error: self._undo(stream, error))
            self.add(stream)
            return stream, change

    def _undo(self, stream: Stream, error: OSError) -> None:
        """Remove a new stream that could not be put on stable storage."""
        self.host.log("ERR", f"JetStream stream '{self.name} > {stream.name}': {error}")
        if self.streams.get(stream.name) is not stream:
            return
        self._take_out(stream)
        self._prepared.add(stream.name)
        removal = self.host.loop.run_in_executor(None, stream.remove)
        removal.add_done_callback(lambda done: self._prepared.discard(stream.name))

    @contextlib.contextmanager
    def _planning(self, config: StreamConfig) -> Iterator[None]:
        """Have a configuration count as if it were in force; if it fails, the one before does."""
        before = self.configs.get(config.name)
        self.configs.put(config)
        try:
            yield
        except BaseException:
            if before is None:
                self.configs.drop(config.name)
            else:
                self.configs.put(before)
            raise

    async def _made(self, config: StreamConfig) -> Stream:
        if config.storage is StorageType.MEMORY:
            return self._make(config)
        return await self.host.loop.run_in_executor(None, self._make, config)

    def _make(self, config: StreamConfig) -> Stream:
        """Create a stream that is not yet part of the account. Thread: any."""
        with self._claiming(config.name):
            folder, created = self._folder(config.name), Instant(self.host.clock.now_ns())
            if config.storage is StorageType.FILE:
                self._make_place()
                folder.make(config, created)
            try:
                return self._opened(folder, config, created)
            except BaseException:
                with contextlib.suppress(OSError):
                    folder.remove()
                raise

    def _opened(self, folder: StreamFolder, config: StreamConfig, created: Instant) -> Stream:
        stream = Stream(self.host, self.sublist, folder, config, created)
        if config.first_seq > 1 and not stream.store.last_seq:
            stream.store.compact(config.first_seq)
        return stream

    @contextlib.contextmanager
    def _claiming(self, name: str) -> Iterator[None]:
        """Reserve a name for one creation; raise ApiError if another has it."""
        self._claim(name)
        try:
            yield
        finally:
            self._prepared.discard(name)

    def _claim(self, name: str) -> None:
        if name in self._prepared:
            raise ApiError(error_codes.STREAM_NAME_EXIST)
        self._prepared.add(name)

    def prepare(self, config: StreamConfig) -> Stream:
        """Create a stream of which a restart leaves nothing until it is settled. Thread: any.

        Raise ApiError if another of this name is being created, and what opening a store raises.
        """
        self._claim(config.name)
        try:
            folder = self._folder(config.name)
            if config.storage is StorageType.FILE:
                self._make_place()
                folder.reserve()
            created = Instant(self.host.clock.now_ns())
            return Stream(self.host, self.sublist, folder, config, created)
        except BaseException:
            self._prepared.discard(config.name)
            raise

    def _make_place(self) -> None:
        """Create the streams' folder once, with all its parents durable."""
        if self._has_place and self.host.files.is_dir(self._path):
            return
        self.host.files.make_dirs(self._path)
        place = self._path
        # Its own entry, the account's and JetStream's: their creator may not have synced them.
        for _ in range(3):
            place = os.path.dirname(place)
            self.host.files.sync_dir(place)
        self._has_place = True

    def settle(self, stream: Stream) -> None:
        """Make a prepared stream permanent: a restart finds it from now on. Raise OSError."""
        if stream.config.storage is StorageType.FILE:
            stream.folder.write(stream.config, stream.created)
            stream.folder.end_reservation()
        self._prepared.discard(stream.name)

    def abandon(self, stream: Stream) -> None:
        """Remove all that is left of a prepared stream. Thread: any."""
        try:
            stream.leave()
            stream.remove()
        finally:
            self._prepared.discard(stream.name)

    def add(self, stream: Stream) -> None:
        """Add a created stream to the account; it stores messages from now on."""
        self._begin(stream)
        self._tell(StreamAction.CREATE, stream)

    def _begin(self, stream: Stream) -> None:
        self.streams[stream.name] = stream
        if self.configs.get(stream.name) is not stream.config:
            self.configs.put(stream.config)
        stream.limit_by(lambda: self._quota_of(stream))
        stream.on_reopened.append(lambda: self._feed_again(stream))
        stream.start()

    def _feed_again(self, stream: Stream) -> None:
        """Have feeds to and from a stream begin where its store, which was opened again, ends."""
        self.replication.closed(stream)
        self.replication.opened(stream)

    def _quota_of(self, stream: Stream) -> StorageQuota:
        """Return what account and server have left for a stream."""
        storage = stream.config.storage
        found = self.limits.find(stream.config.num_replicas)
        bytes_max = -1 if found is None else found[1].bytes_max(storage)
        account_bytes = bytes_max - self.bytes_used(storage) if bytes_max >= 0 else UNBOUNDED
        return StorageQuota(self.host.bytes_left(storage), account_bytes, len(self.streams))

    async def update(
        self, request: StreamConfigRequest, *, name: str, server: ServerLimits
    ) -> Stream:
        """Change a stream's configuration; raise ApiError and OSError."""
        async with self.turn(name):
            old = self.streams.get(name)
            config = checked_update(
                request,
                name=name,
                server=server,
                account=self.limits,
                existing=self.configs,
                consumers={} if old is None else old.consumers.bounds,
            )
            stream = self.find(name)
            await self._settled(stream)
            with self._planning(config):
                if config.storage is StorageType.FILE:
                    write, created = stream.folder.write, stream.created
                    await self.host.loop.run_in_executor(None, write, config, created)
            if not self._is_stopped:
                await stream.update(config)
                self._tell(StreamAction.MODIFY, stream)
            return stream

    async def delete(self, name: str) -> None:
        """Remove a stream and everything in it; raise ApiError and OSError."""
        async with self.turn(name):
            stream = self.find(name)
            await self._settled(stream)
            self._take_out(stream)
            # Clients that wait for messages were told; send that before the disk is done.
            self.host.hub.flush()
            with self._claiming(name):
                await self.host.loop.run_in_executor(None, stream.remove)
            self._advise_of(StreamAction.DELETE, stream)

    async def _settled(self, stream: Stream) -> None:
        """Wait until a new stream is on stable storage; raise ApiError if it cannot be."""
        if stream.unsettled is not None:
            with contextlib.suppress(OSError):
                await stream.unsettled.wait()
        if self.streams.get(stream.name) is not stream:
            raise ApiError(error_codes.STREAM_NOT_FOUND)

    def _take_out(self, stream: Stream) -> None:
        """Have a stream take no more messages: it is to be removed."""
        del self.streams[stream.name]
        self.configs.drop(stream.name)
        stream.leave()
        self._pass_on(StreamAction.DELETE, stream)

    def stop(self) -> None:
        """Stop all streams; everything is durable when this returns."""
        self._is_stopped = True
        self.replication.stop()
        for stream in self.streams.values():
            stream.stop()

    def forget(self) -> None:
        """Note that the account's folder was removed with all that was in it."""
        self.offline.clear()
        for each in self.on_forgotten:
            each()

    # Watchers and advisories

    def _tell(self, action: StreamAction, stream: Stream) -> None:
        self._pass_on(action, stream)
        self._advise_of(action, stream)

    def _pass_on(self, action: StreamAction, stream: Stream) -> None:
        if action is StreamAction.DELETE:
            self.replication.closed(stream)
        elif action is StreamAction.MODIFY:
            self.replication.changed(stream)
        else:
            self.replication.opened(stream)
        for watcher in self.watchers:
            watcher(action, stream)

    def _advise_of(self, action: StreamAction, stream: Stream) -> None:
        if action in _ADVISED:
            subject = f"STREAM.{_ADVISED[action]}.{stream.name}"
            self.advise(subject, "stream_action", {"stream": stream.name, "action": str(action)})

    def advise(self, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Publish an advisory in the account, on `$JS.EVENT.ADVISORY.<subject>`."""
        self.host.advise(self.sublist, f"ADVISORY.{subject}", f"advisory.v1.{kind}", fields)
