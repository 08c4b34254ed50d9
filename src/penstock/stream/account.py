"""The streams of one account: making, finding, changing and removing them.

What always holds: no two streams take the same message; a stream that cannot be opened stays
offline with its reason, and the others are not disturbed. Whoever watches the account's streams
hears of each that comes, changes or goes, before the client does.

One thread: the event loop's. While a server starts, stores are opened by several threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from enum import StrEnum
from typing import Any

from penstock import error_codes
from penstock.documents.times import Instant
from penstock.errors import ApiError, PenstockError, StreamOffline
from penstock.routing.sublist import Sublist
from penstock.stream.allowances import AccountLimits, ServerLimits
from penstock.stream.config import StorageType, StreamConfig, StreamConfigRequest
from penstock.stream.creation import checked_creation
from penstock.stream.feeding import Feeding
from penstock.stream.folders import StreamFolder
from penstock.stream.stream import Stream, StreamHost
from penstock.stream.updates import checked_update

STREAMS_NAME = "streams"


class StreamAction(StrEnum):
    """What became of a stream; the words are the wire's, but for a stream that was there before."""

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
        self.offline: dict[str, str] = {}
        """Streams on disk that cannot be served, and why."""

        self.feeding = Feeding(self.streams)
        self.watchers: list[Watcher] = []
        self.api_total = 0
        """Requests that were answered, and how many of them with an error."""

        self.api_errors = 0
        self._path = os.path.join(path, STREAMS_NAME)

    def _folder(self, name: str) -> StreamFolder:
        return StreamFolder(
            self.host.files, os.path.join(self._path, name), lambda: os.urandom(8).hex()
        )

    # What there is

    @property
    def configs(self) -> list[StreamConfig]:
        """The configurations of all streams."""
        return [stream.config for stream in self.streams.values()]

    @property
    def consumer_count(self) -> int:
        """How many consumers all streams have."""
        return sum(stream.consumer_count for stream in self.streams.values())

    def bytes_used(self, storage: StorageType) -> int:
        """Give what the messages of all streams of a kind take."""
        streams = (each for each in self.streams.values() if each.config.storage is storage)
        return sum(each.store.state().bytes for each in streams)

    def bytes_reserved(self, storage: StorageType) -> int:
        """Give what all streams of a kind may take at most, as far as they say."""
        streams = (each for each in self.configs if each.storage is storage)
        return sum(max(each.max_bytes, 0) for each in streams)

    def find(self, name: str) -> Stream:
        """Give a stream; raises ApiError."""
        stream = self.streams.get(name)
        if stream is not None:
            return stream
        if name in self.offline:
            raise ApiError(error_codes.STREAM_OFFLINE_REASON, err=self.offline[name])
        raise ApiError(error_codes.STREAM_NOT_FOUND)

    # Starting

    def recover(self, threads: Executor) -> Iterator[Stream]:
        """Open every stream on disk, giving each; those that cannot be opened stay offline."""
        files = self.host.files
        if not files.is_dir(self._path):
            return
        folders = [self._folder(name) for name in sorted(files.list_names(self._path))]
        for name, opened in threads.map(self._open, folders):
            if isinstance(opened, str):
                self.offline[name] = opened
            elif opened is not None:
                self.streams[name] = opened
                opened.start()
                self._tell(StreamAction.OPEN, opened)
                yield opened

    def _open(self, folder: StreamFolder) -> tuple[str, Stream | str | None]:
        """Open a stream in a thread; the reason where it cannot be served, None for no stream."""
        name = os.path.basename(folder.path)
        try:
            if not self.host.files.is_dir(folder.path) or folder.finish_removal():
                return name, None
            document = folder.read()
            created = document.created or Instant(0)
            return name, Stream(self.host, self.sublist, folder, document.config, created)
        except StreamOffline as error:
            return name, error.reason
        except (PenstockError, OSError) as error:
            return name, str(error)

    # Changing

    def create(
        self, request: StreamConfigRequest, *, name: str, server: ServerLimits
    ) -> tuple[Stream, bool]:
        """Make a stream, or give the one that is as asked for; and tell whether it is new."""
        config = checked_creation(
            request, name=name, server=server, account=self.limits, existing=self.configs
        )
        if name in self.streams:
            return self.streams[name], False
        if name in self.offline:
            raise ApiError(error_codes.STREAM_OFFLINE_REASON, err=self.offline[name])
        folder = self._folder(name)
        created = Instant(self.host.clock.now_ns())
        try:
            if config.storage is StorageType.FILE:
                folder.write(config, created)
            stream = Stream(self.host, self.sublist, folder, config, created)
        except (PenstockError, OSError) as error:
            self.host.log("WRN", f"Stream create failed for '{self.name} > {name}': {error}")
            reason = "error creating store for stream"
            raise ApiError(error_codes.STREAM_CREATE, err=reason) from error
        if config.first_seq > 1:
            stream.store.compact(config.first_seq)
        self.add(stream)
        return stream, True

    def add(self, stream: Stream) -> None:
        """Take in a stream that was made; it takes messages from now on."""
        self.streams[stream.name] = stream
        stream.start()
        self._tell(StreamAction.CREATE, stream)

    def update(self, request: StreamConfigRequest, *, name: str, server: ServerLimits) -> Stream:
        """Change a stream's configuration."""
        config = checked_update(
            request,
            name=name,
            server=server,
            account=self.limits,
            existing=self.configs,
            consumers={},
        )
        stream = self.find(name)
        stream.update(config)
        self._tell(StreamAction.MODIFY, stream)
        return stream

    def delete(self, name: str) -> None:
        """Remove a stream and everything in it."""
        stream = self.find(name)
        del self.streams[name]
        stream.delete()
        self._tell(StreamAction.DELETE, stream)

    def stop(self) -> None:
        """Make everything durable and take no more."""
        self.feeding.stop()
        for stream in self.streams.values():
            stream.stop()

    # Telling

    def _tell(self, action: StreamAction, stream: Stream) -> None:
        if action is StreamAction.DELETE:
            self.feeding.closed(stream)
        elif action is StreamAction.MODIFY:
            self.feeding.changed(stream)
        else:
            self.feeding.opened(stream)
        for watcher in self.watchers:
            watcher(action, stream)
        if action in _ADVISED:
            subject = f"STREAM.{_ADVISED[action]}.{stream.name}"
            self.advise(subject, "stream_action", {"stream": stream.name, "action": str(action)})

    def advise(self, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Tell whoever listens in the account on `$JS.EVENT.ADVISORY.<subject>`."""
        self.host.advise(
            self.sublist, f"ADVISORY.{subject}", f"advisory.v1.{kind}", fields
        )
