"""How far a stream has come in its sources, over a restart: `sources.json` in its folder.

The newest mark of a source tells it, but marks go with their messages: they expire, are consumed
and purged. So the positions are written down now and then, together with the stream's own last
sequence at that time, and after a restart only what was stored since is searched for marks. A
source that was taken out and comes back goes on where it was, as long as its last message is there.

What always holds: a position that is written down counts nothing that is not durable in the stream.

One thread: the event loop's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec.structs import replace

from penstock.documents.decoding import decode
from penstock.documents.encoding import encode
from penstock.documents.shapes import Int, Uint64
from penstock.errors import CorruptStore, InvalidDocument, RecordNotFound
from penstock.limits import (
    FORMER_SOURCES_MAX,
    SOURCE_POSITIONS_BYTES_MAX,
    SOURCE_POSITIONS_INTERVAL_S,
)
from penstock.store.block_files import StoredMessage
from penstock.store.vfs import write_atomically
from penstock.stream.config import StorageType
from penstock.stream.headers import value_of
from penstock.stream.messages import STREAM_SOURCE
from penstock.stream.source_marks import Mark, SourceName, read_mark
from penstock.stream.sources import Source

if TYPE_CHECKING:
    import asyncio

    from penstock.stream.stream import Stream

DOCUMENT_NAME: Final = "sources.json"
DOCUMENT_VERSION: Final = 1


class Position(msgspec.Struct, frozen=True):
    """One source: what tells it from others, how far the stream has come, in which stream."""

    place: str = ""
    patterns: str = ""
    destinations: str = ""
    seq: Uint64 = 0
    identity: str = ""
    stored_seq: Uint64 = 0
    """The stream's own sequence of the last message from there; 0 for none."""

    is_former: bool = False
    """The stream takes no more from there."""

    @property
    def name(self) -> SourceName:
        """The source's name."""
        return SourceName(self.place, self.patterns, self.destinations)

    @classmethod
    def of(cls, source: Source) -> Self:
        """Make it of a source."""
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
        """Let a source go on here."""
        source.position, source.identity = self.seq, self.identity
        source.stored_seq = self.stored_seq


class Positions(msgspec.Struct, frozen=True):
    """What `sources.json` says; `through_seq` was the stream's last sequence then."""

    version: Int = 0
    through_seq: Uint64 = 0
    sources: tuple[Position, ...] = ()


class PositionKeeper:
    """Finds the positions of a stream's sources, and writes them down; see the module."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._sources: dict[SourceName, Source] = {}
        self._former: dict[SourceName, Position] = {}
        self._path = os.path.join(stream.folder.path, DOCUMENT_NAME)
        self._written = Positions()
        self._next: Positions | None = None
        """What is written when the stream is durable up to there."""

        self._timer: asyncio.TimerHandle | None = None
        stream.on_durable.append(self._on_durable)

    def recover(self, sources: Sequence[Source]) -> None:
        """Give a stream's first sources their positions, as far as they can be known."""
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
        """Take the newest mark of each, looking back to `through_seq`; take out what was found."""
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
        """Go over to other sources; those that come back go on where they were."""
        before = self._sources
        self._sources = {source.name: source for source in sources}
        for name, source in before.items():
            if name not in self._sources:
                self._leave(Position.of(source))
        for name, source in self._sources.items():
            former = self._former.pop(name, None)
            if name not in before and former is not None and self._has(former):
                former.give(source)
        self.note()

    def _leave(self, position: Position) -> None:
        if len(self._former) < FORMER_SOURCES_MAX:
            self._former[position.name] = replace(position, is_former=True)

    def _has(self, former: Position) -> bool:
        """Tell whether the last message of a former source is still there."""
        try:
            mark = _mark_of(self._stream.store.load(former.stored_seq))
        except (RecordNotFound, CorruptStore):
            return False
        return mark is not None and mark.name == former.name

    def _read(self) -> Positions:
        files = self._stream.host.files
        if not self._is_kept or not files.exists(self._path):
            return Positions()
        file = files.open(self._path, "read")
        try:
            data = file.read_at(0, min(file.size(), SOURCE_POSITIONS_BYTES_MAX))
        finally:
            file.close()
        try:
            known = decode(Positions, data, strict=False)
        except InvalidDocument as error:
            self._stream.host.log("WRN", f"{self._path}: {error.reason}: looking for marks")
            return Positions()
        # A newer server's is not ours to read, and a stream that was cut back has other messages.
        if known.version != DOCUMENT_VERSION or known.through_seq > self._stream.store.last_seq:
            return Positions()
        return known

    @property
    def _is_kept(self) -> bool:
        return self._stream.config.storage is StorageType.FILE

    # Writing

    def note(self) -> None:
        """Learn that a source has come further."""
        if self._timer is None and self._is_kept:
            loop = self._stream.host.loop
            self._timer = loop.call_later(SOURCE_POSITIONS_INTERVAL_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._next = self._current()
        self._on_durable()

    def _current(self) -> Positions:
        here = tuple(map(Position.of, self._sources.values()))
        last_seq = self._stream.store.last_seq
        return Positions(DOCUMENT_VERSION, last_seq, here + tuple(self._former.values()))

    def _on_durable(self) -> None:
        if self._next is not None and self._next.through_seq <= self._stream.store.durable_seq:
            self._write(self._next)
            self._next = None

    def _write(self, positions: Positions) -> None:
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
        """Write a last time, unless the stream is gone."""
        self._stream.on_durable.remove(self._on_durable)
        if self._timer is not None:
            self._timer.cancel()
        if self._is_kept and not is_deleted:
            self._stream.store.flush()
            self._write(self._current())


def _mark_of(message: StoredMessage) -> Mark | None:
    value = value_of(message.headers, STREAM_SOURCE) if message.headers else None
    return read_mark(value) if value else None
