"""The streams of one account: making, finding, changing and removing them.

What always holds: no two streams take the same message; a stream that cannot be opened stays
offline with its reason, and the others are not disturbed.

One thread: the event loop's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock import error_codes
from penstock.documents.times import Instant
from penstock.errors import ApiError, PenstockError
from penstock.routing.sublist import Sublist
from penstock.stream.allowances import AccountLimits, ServerLimits
from penstock.stream.config import StorageType, StreamConfig, StreamConfigRequest
from penstock.stream.creation import checked_creation
from penstock.stream.folders import StreamFolder
from penstock.stream.stream import Stream, StreamHost
from penstock.stream.updates import checked_update

STREAMS_NAME = "streams"


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

        self._path = os.path.join(path, STREAMS_NAME)

    def _folder(self, name: str) -> StreamFolder:
        return StreamFolder(
            self.host.files, os.path.join(self._path, name), lambda: os.urandom(8).hex()
        )

    @property
    def configs(self) -> list[StreamConfig]:
        """The configurations of all streams."""
        return [stream.config for stream in self.streams.values()]

    def recover(self) -> Iterator[Stream]:
        """Open every stream on disk, giving each; those that cannot be opened stay offline."""
        files = self.host.files
        if not files.is_dir(self._path):
            return
        for name in files.list_names(self._path):
            folder = self._folder(name)
            if not files.is_dir(folder.path):
                continue
            try:
                document = folder.read()
                created = document.created or Instant(0)
                stream = Stream(self.host, self.sublist, folder, document.config, created)
            except (PenstockError, OSError) as error:
                self.offline[name] = str(error)
                continue
            self.streams[name] = stream
            stream.start()
            yield stream

    def find(self, name: str) -> Stream:
        """Give a stream; raises ApiError."""
        stream = self.streams.get(name)
        if stream is None:
            raise ApiError(error_codes.STREAM_NOT_FOUND)
        return stream

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
            raise ApiError(error_codes.STREAM_CREATE, err=str(error)) from error
        if config.first_seq > 1:
            stream.store.compact(config.first_seq)
        self.streams[name] = stream
        stream.start()
        return stream, True

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
        return stream

    def delete(self, name: str) -> None:
        """Remove a stream and everything in it."""
        stream = self.find(name)
        del self.streams[name]
        stream.delete()

    def stop(self) -> None:
        """Make everything durable and take no more."""
        for stream in self.streams.values():
            stream.stop()
