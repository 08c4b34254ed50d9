"""How far a stream has come in its sources, over a restart: `sources.json` in its folder.

The newest mark of a source tells it, but marks go with their messages: they expire, are consumed
and purged. So the positions are written down now and then, together with the stream's own last
sequence at that time, and after a restart only what was stored since is searched for marks.

What always holds: a position that is written down counts nothing that is not durable in the stream.

One thread: the event loop's, or the one that starts a server.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.documents.decoding import decode
from penstock.documents.encoding import encode
from penstock.documents.shapes import Int, Uint64
from penstock.errors import InvalidDocument, RecordNotFound
from penstock.limits import SOURCE_POSITIONS_BYTES_MAX, SOURCE_POSITIONS_INTERVAL_S
from penstock.store.vfs import write_atomically
from penstock.stream.config import StorageType
from penstock.stream.headers import value_of
from penstock.stream.messages import STREAM_SOURCE
from penstock.stream.source_marks import SourceName, read_mark
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


class Positions(msgspec.Struct, frozen=True):
    """What `sources.json` says; `through_seq` was the stream's last sequence then."""

    version: Int = 0
    through_seq: Uint64 = 0
    sources: tuple[Position, ...] = ()


class PositionKeeper:
    """Finds the positions of a stream's sources, and writes them down; see the module."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._sources: Sequence[Source] = ()
        self._path = os.path.join(stream.folder.path, DOCUMENT_NAME)
        self._written = Positions()
        self._next: Positions | None = None
        """What is written when the stream is durable up to there."""

        self._timer: asyncio.TimerHandle | None = None
        stream.on_durable.append(self._on_durable)

    def follow(self, sources: Sequence[Source]) -> None:
        """Write down the positions of these from now on."""
        self._sources = sources

    def find(self, sources: Sequence[Source]) -> None:
        """Give each its position, as far as it can be known."""
        known = self._read()
        wanted = {source.name: source for source in sources}
        self._find_marks(wanted, known.through_seq)
        for each in known.sources:
            source = wanted.get(SourceName(each.place, each.patterns, each.destinations))
            if source is not None:
                source.position, source.identity = each.seq, each.identity

    def _find_marks(self, wanted: dict[SourceName, Source], through_seq: int) -> None:
        """Take the newest mark of each, looking back to `through_seq`; take out what was found."""
        store = self._stream.store
        seq = store.last_seq
        while wanted and seq > through_seq:
            try:
                message = store.load_previous(seq)
            except RecordNotFound:
                return
            value = value_of(message.headers, STREAM_SOURCE) if message.headers else None
            mark = read_mark(value) if value else None
            if mark is not None and message.seq > through_seq and mark.name in wanted:
                source = wanted.pop(mark.name)
                source.position, source.identity = mark.seq, mark.identity
            seq = message.seq - 1

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
        return Positions(
            DOCUMENT_VERSION,
            self._stream.store.last_seq,
            tuple(
                Position(
                    source.name.place,
                    source.name.patterns,
                    source.name.destinations,
                    source.position,
                    source.identity,
                )
                for source in self._sources
            ),
        )

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
        if self._is_kept and self._sources and not is_deleted:
            self._stream.store.flush()
            self._write(self._current())
