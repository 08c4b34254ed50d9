"""The positions of a stream in its sources, over a restart: `sources.json` in its folder.

The newest mark of a source has its position, but marks go with their messages: they expire, are
consumed and purged. So the positions are written from time to time, together with the stream's own
last sequence. After a restart only newer messages are searched for marks. A source that was removed
and comes back continues where it was, as long as its last message is there.

Invariant: a written position counts only what is durable in the stream.

Thread: the event loop's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec.structs import replace

from penstock.errors import CorruptStore, InvalidDocument, RecordNotFound
from penstock.limits import (
    FORMER_SOURCES_MAX,
    SOURCE_POSITIONS_BYTES_MAX,
    SOURCE_POSITIONS_INTERVAL_S,
)
from penstock.protocol.headers import value_of
from penstock.store.log.block import StoredMessage
from penstock.store.vfs import write_atomically
from penstock.stream.config.config import StorageType
from penstock.stream.publish.message import STREAM_SOURCE
from penstock.stream.replication.source import Mark, Source, SourceName, read_mark
from penstock.text.json.codec import decode, encode
from penstock.text.json.shapes import Int, Uint64

if TYPE_CHECKING:
    import asyncio

    from penstock.stream.stream import Stream

DOCUMENT_NAME: Final = "sources.json"
DOCUMENT_VERSION: Final = 1


class SourcePosition(msgspec.Struct, frozen=True):
    """One source: its name, the position in it, and the identity of that stream."""

    place: str = ""
    patterns: str = ""
    destinations: str = ""
    seq: Uint64 = 0
    identity: str = ""
    stored_seq: Uint64 = 0
    """The stream's own sequence of the last message from this source; 0 for none."""

    is_former: bool = False
    """Whether the source was removed from the configuration."""

    @property
    def name(self) -> SourceName:
        """The source's name."""
        return SourceName(self.place, self.patterns, self.destinations)

    @classmethod
    def of(cls, source: Source) -> Self:
        """Return the position of a source."""
        name = source.name
        return cls(
            name.place,
            name.patterns,
            name.destinations,
            source.position,
            source.identity,
            source.stored_seq,
        )

    def give(self, source: Source) -> None:
        """Set a source to this position."""
        source.position, source.identity = self.seq, self.identity
        source.stored_seq = self.stored_seq


class SourcePositionsDocument(msgspec.Struct, frozen=True):
    """The content of `sources.json`; `through_seq` was the stream's last sequence then."""

    version: Int = 0
    through_seq: Uint64 = 0
    sources: tuple[SourcePosition, ...] = ()


class SourcePositions:
    """Finds and writes the positions of a stream's sources; see the module."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._sources: dict[SourceName, Source] = {}
        self._former: dict[SourceName, SourcePosition] = {}
        self._path = os.path.join(stream.folder.path, DOCUMENT_NAME)
        self._written = SourcePositionsDocument()
        self._next: SourcePositionsDocument | None = None
        """What is written when the stream is durable up to its `through_seq`."""

        self._timer: asyncio.TimerHandle | None = None
        stream.on_durable.append(self._on_durable)

    def recover(self, sources: Sequence[Source]) -> None:
        """Set the positions of a stream's first sources, as far as they are known."""
        self._sources = {source.name: source for source in sources}
        known = self._read()
        wanted = dict(self._sources)
        self._find_marks(wanted, known.through_seq)
        for each in known.sources:
            source = wanted.get(each.name)
            if each.is_former:
                self._former[each.name] = each
            elif source is not None:
                each.give(source)
            elif each.name not in self._sources:
                self._leave(each)

    def _find_marks(self, wanted: dict[SourceName, Source], through_seq: int) -> None:
        """Set positions by marks behind `through_seq`; remove those sources from `wanted`."""
        store = self._stream.store
        seq = store.last_seq
        while wanted and seq > through_seq:
            try:
                message = store.load_previous(seq)
            except RecordNotFound:
                return
            mark = _mark_of(message)
            if mark is not None and message.seq > through_seq and mark.name in wanted:
                source = wanted.pop(mark.name)
                source.position, source.identity = mark.seq, mark.identity
                source.stored_seq = message.seq
            seq = message.seq - 1

    def follow(self, sources: Sequence[Source]) -> None:
        """Go over to other sources; a former one that comes back continues where it was."""
        before = self._sources
        self._sources = {source.name: source for source in sources}
        for name, source in before.items():
            if name not in self._sources:
                self._leave(SourcePosition.of(source))
        for name, source in self._sources.items():
            former = self._former.pop(name, None)
            if name not in before and former is not None and self._has(former):
                former.give(source)
        self.note()

    def _leave(self, position: SourcePosition) -> None:
        if len(self._former) < FORMER_SOURCES_MAX:
            self._former[position.name] = replace(position, is_former=True)

    def _has(self, former: SourcePosition) -> bool:
        """Return True if the last message of a former source is still there."""
        try:
            mark = _mark_of(self._stream.store.load(former.stored_seq))
        except (RecordNotFound, CorruptStore):
            return False
        return mark is not None and mark.name == former.name

    def _read(self) -> SourcePositionsDocument:
        files = self._stream.host.files
        if not self._is_kept or not files.exists(self._path):
            return SourcePositionsDocument()
        try:
            file = files.open(self._path, "read")
            try:
                data = file.read_at(0, min(file.size(), SOURCE_POSITIONS_BYTES_MAX))
            finally:
                file.close()
        except OSError as error:
            self._stream.host.log("ERR", f"{self._path}: {error}: looking for marks")
            return SourcePositionsDocument()
        try:
            known = decode(SourcePositionsDocument, data, strict=False)
        except InvalidDocument as error:
            self._stream.host.log("WRN", f"{self._path}: {error.reason}: looking for marks")
            return SourcePositionsDocument()
        # A newer version cannot be read, and a stream that was cut back has other messages.
        if known.version != DOCUMENT_VERSION or known.through_seq > self._stream.store.last_seq:
            return SourcePositionsDocument()
        return known

    @property
    def _is_kept(self) -> bool:
        return self._stream.config.storage is StorageType.FILE

    # Writing

    def note(self) -> None:
        """Note that a source's position has changed."""
        if self._timer is None and self._is_kept:
            loop = self._stream.host.loop
            self._timer = loop.call_later(SOURCE_POSITIONS_INTERVAL_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._next = self._current()
        self._on_durable()

    def _current(self) -> SourcePositionsDocument:
        here = tuple(map(SourcePosition.of, self._sources.values()))
        last_seq = self._stream.store.last_seq
        return SourcePositionsDocument(
            DOCUMENT_VERSION, last_seq, here + tuple(self._former.values())
        )

    def _on_durable(self) -> None:
        if self._next is not None and self._next.through_seq <= self._stream.store.durable_seq:
            self._write(self._next)
            self._next = None

    def _write(self, positions: SourcePositionsDocument) -> None:
        if positions == self._written:
            return
        folder = self._stream.folder
        try:
            write_atomically(folder.files, self._path, encode(positions), unique=folder.unique())
        except OSError as error:
            self._stream.host.log("ERR", f"{self._path}: {error}")
            return
        self._written = positions

    def stop(self, *, is_deleted: bool) -> None:
        """Write a last time, unless the stream is deleted."""
        self._stream.on_durable.remove(self._on_durable)
        if self._timer is not None:
            self._timer.cancel()
        if self._is_kept and not is_deleted:
            self._stream.store.flush()
            self._write(self._current())


def _mark_of(message: StoredMessage) -> Mark | None:
    value = value_of(message.headers, STREAM_SOURCE) if message.headers else None
    return read_mark(value) if value else None
