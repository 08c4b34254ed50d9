"""A host for streams without a server around it: a hub, an account's subscriptions, a loop."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from penstock.clock import Clock, SystemClock
from penstock.routing.hub import Hub, Service
from penstock.routing.sublist import Sublist, Subscription
from penstock.store.vfs import FileSystem, OsFileSystem
from penstock.stream.config.config import StorageType, StreamConfig, StreamConfigRequest
from penstock.stream.config.known import KnownStreams
from penstock.stream.config.requests import checked_creation, checked_update
from penstock.stream.publish.batches import BatchQuota
from penstock.stream.quota import UNBOUNDED, AccountLimits, ServerLimits
from penstock.stream.restore_memory import RestoreMemory
from penstock.stream.storage import StoragePolicy, StreamFolder
from penstock.stream.stream import Stream
from penstock.subjects import SubjectFilter
from penstock.text.json.codec import decode_request
from penstock.text.times import Instant


class Answer(NamedTuple):
    """A published message."""

    subject: str
    headers: bytes
    body: bytes


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        return self._clock.monotonic_ns() / 1e9


class StreamHouse:
    """The host; see the module."""

    def __init__(
        self,
        path: Path,
        clock: Clock | None = None,
        *,
        domain: str = "",
        files: FileSystem | None = None,
    ) -> None:
        self.path = path
        self.clock = clock or SystemClock()
        self.files = files or OsFileSystem()
        self.domain = domain
        self.payload_bytes_max = 2**20
        self.policy = StoragePolicy()
        self.batch_quota = BatchQuota()
        self.restore_memory = RestoreMemory()
        self.hub = Hub(1)
        self.sublist = Sublist()
        self.loop = _Loop(self.clock)
        self.streams: dict[str, Stream] = {}
        self.advisories: list[tuple[str, Mapping[str, Any]]] = []
        self.log_lines: list[str] = []
        self.full: list[str] = []
        self._answers: list[Answer] = []
        self.listen("_IN.>")

    def bytes_left(self, storage: StorageType) -> int:
        del storage
        return UNBOUNDED

    def log(self, level: str, text: str) -> None:
        self.log_lines.append(f"{level} {text}")

    def advise(self, sublist: Sublist, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        assert sublist is self.sublist
        self.advisories.append((subject, dict(fields) | {"type": kind}))

    def out_of_storage(self, stream: str) -> None:
        self.full.append(stream)

    def has_storage(self, stream: str) -> None:
        if stream in self.full:
            self.full.remove(stream)

    def listen(self, subject: str) -> None:
        """Collect what is published to a subject."""

        def take(subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
            del reply
            self._answers.append(Answer(subject.decode(), headers, body))

        self.sublist.insert(Subscription(Service(take), subject.encode(), b"1"))

    def create(self, **fields: Any) -> Stream:
        """Create a stream as a client would."""
        body = json.dumps(fields).encode()
        request = decode_request(StreamConfigRequest, body, strict=True)
        config = checked_creation(
            request,
            name=fields["name"],
            server=ServerLimits(),
            account=AccountLimits(),
            existing=KnownStreams(),
        )
        return self.open(config)

    def update(self, stream: Stream, **fields: Any) -> None:
        """Change a stream as a client would."""
        self.loop.run_until_complete(self.updating(stream, **fields))

    async def updating(self, stream: Stream, **fields: Any) -> None:
        """Change a stream in the course of other things."""
        body = json.dumps({"name": stream.name} | fields).encode()
        config = checked_update(
            decode_request(StreamConfigRequest, body, strict=True),
            name=stream.name,
            server=ServerLimits(),
            account=AccountLimits(),
            existing=KnownStreams(each.config for each in self.streams.values()),
            consumers={},
        )
        await stream.update(config)

    def purge(self, stream: Stream, subjects: SubjectFilter | None = None) -> int:
        """Purge a stream as a client would."""
        return self.loop.run_until_complete(stream.purge(subjects))

    def open(self, config: StreamConfig) -> Stream:
        """Open a stream, which may exist."""
        folder = StreamFolder(self.files, str(self.path / config.name), lambda: os.urandom(8).hex())
        folder.write(config, Instant(0))
        stream = Stream(self, self.sublist, folder, config, Instant(0))
        stream.start()
        self.streams[config.name] = stream
        return stream

    def reopen(self, stream: Stream) -> Stream:
        """Stop a stream and open it again, as a restart does."""
        stream.stop()
        return self.open(stream.config)

    def publish(
        self, subject: str, body: bytes = b"", *, headers: bytes = b"", reply: str = ""
    ) -> None:
        """Publish as a client does."""
        self.hub.publish(
            self.sublist, subject.encode(), reply.encode() if reply else None, headers, body
        )

    def settle(self) -> None:
        """Make everything durable and run what is due."""
        self.hub.flush()
        for stream in self.streams.values():
            if not stream.is_stopped:
                stream.store.flush()
        # What is due now, and what becomes due by that.
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def answers(self) -> list[Answer]:
        """Return what was published so far, and forget it."""
        self.settle()
        found, self._answers = self._answers, []
        return found

    def __enter__(self) -> StreamHouse:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in self.streams.values():
            stream.stop()
        self.loop.close()
