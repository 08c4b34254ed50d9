"""Restoring a stream from a snapshot: its messages keep their sequences and times.

    restore = StreamRestore(account, config)
    restore.feed(piece)            once per piece, in any thread
    stream = restore.finish()      all is there; then `keep`, or `abandon`

Reads both kinds of snapshot: the archive, and the packed folder that the reference server wrote
before version 2.15. The configuration is the requested one, not the snapshot's.

Invariants: until `keep`, a restart removes what there is of the stream. Of a packed folder only
known file names are unpacked. A snapshot that is larger, unpacked, than what the server has left is
refused, and one that needs more memory than all restores together may have (`restore_memory`).

Thread: any, one at a time; `keep` only on the event loop's. Imported by the first restore, since it
loads `tarfile` and the reader of Go's directories.
"""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from typing import BinaryIO, Final, Protocol

from penstock import error_codes
from penstock.clock import SystemClock
from penstock.errors import ApiError, FormatError, InvalidDocument, RecordNotFound
from penstock.format.golang.archive import (
    MAGIC,
    STATE_NAME,
    ArchiveEntry,
    ArchiveParser,
    S2Unpacker,
)
from penstock.limits import GO_STREAM_FILES_MAX, RESTORE_UNSYNCED_BYTES_MAX
from penstock.protocol.headers import value_of
from penstock.store.filestore import FileStore
from penstock.store.imports.from_go import import_go_stream
from penstock.store.interface import NEVER_NS, StoreConfig
from penstock.store.vfs import OsFileSystem, remove_tree
from penstock.stream.account import AccountStreams
from penstock.stream.config.config import StorageType, StreamConfig
from penstock.stream.info import StreamState
from penstock.stream.publish.message import TTL
from penstock.stream.publish.ttl import parse_ttl
from penstock.stream.stream import Stream
from penstock.text.json.codec import decode
from penstock.text.times import SECOND_NS

_GO_FILES: Final = re.compile(
    r"(?:meta\.(?:inf|sum|key)|msgs/[A-Za-z0-9._-]{1,64}|obs/[^/\0]{1,255}/[a-z._]{1,32})"
)


class _Source(Protocol):
    """One kind of snapshot, with its consumers."""

    consumers: list[ArchiveEntry]

    @property
    def held_bytes(self) -> int:
        """The bytes that are kept in memory."""
        ...

    def feed(self, plain: bytes) -> None:
        """Take unpacked bytes."""
        ...

    def finish(self) -> None:
        """Put the rest into the stream; raise FormatError if the snapshot is not complete."""
        ...

    def close(self) -> None:
        """Remove temporary files."""
        ...


class StreamRestore:
    """One stream that is being restored; see the module."""

    def __init__(self, account: AccountStreams, config: StreamConfig) -> None:
        self._account = account
        self._config = config
        self._unpacker = S2Unpacker()
        self._start = b""
        self._bytes = 0
        self._held_bytes = 0
        self._unsynced_bytes = 0
        self._source: _Source | None = None
        self._stream: Stream | None = None

    def feed(self, piece: bytes) -> None:
        """Take a piece; raise FormatError and what storing raises."""
        for plain in self._unpacker.feed(piece):
            self._feed_plain(plain)
            self._hold()
        self._hold()

    def _hold(self) -> None:
        """Count what is in memory; raise ApiError if all restores together hold too much."""
        held_bytes = self._unpacker.held_bytes + len(self._start)
        if self._source is not None:
            held_bytes += self._source.held_bytes
        self._account.host.restore_memory.change(held_bytes - self._held_bytes)
        self._held_bytes = held_bytes

    def _release(self) -> None:
        self._account.host.restore_memory.change(-self._held_bytes)
        self._held_bytes = 0

    def _feed_plain(self, plain: bytes) -> None:
        self._bytes += len(plain)
        if self._bytes > self._account.host.bytes_left(self._config.storage):
            raise ApiError(
                error_codes.STORAGE_RESOURCES_EXCEEDED
                if self._config.storage is StorageType.FILE
                else error_codes.MEMORY_RESOURCES_EXCEEDED
            )
        if self._source is None:
            self._start += plain
            if len(self._start) < len(MAGIC):
                return
            plain, self._start = self._start, b""
            stream = self._stream = self._account.prepare(self._config)
            is_archive = plain.startswith(MAGIC)
            self._source = _Archive(stream) if is_archive else _PackedFolder(stream)
        self._source.feed(plain)
        self._unsynced_bytes += len(plain)
        if self._unsynced_bytes >= RESTORE_UNSYNCED_BYTES_MAX:
            assert self._stream is not None, "it is made with the source"
            self._stream.store.flush()
            self._unsynced_bytes = 0

    @property
    def consumers(self) -> list[ArchiveEntry]:
        """The consumers in the snapshot, as far as it was read."""
        return self._source.consumers if self._source is not None else []

    def finish(self) -> Stream:
        """Return the complete stream; raise FormatError if the snapshot is not complete."""
        if self._source is None or self._stream is None or not self._unpacker.is_between_chunks:
            raise FormatError("backup was truncated")
        self._source.finish()
        self._source.close()
        self._stream.store.flush()
        return self._stream

    def keep(self) -> None:
        """Make it a stream that a restart finds."""
        assert self._stream is not None, "it is finished"
        self._account.settle(self._stream)
        self._stream = None
        self._release()

    def abandon(self) -> None:
        """Remove everything, unless the stream was kept."""
        self._release()
        if self._source is not None:
            self._source.close()
        if self._stream is not None:
            self._account.abandon(self._stream)
            self._stream = None


class _Archive:
    """A snapshot in the archive format."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._parser = ArchiveParser()
        self._state: StreamState | None = None
        self.consumers: list[ArchiveEntry] = []
        self._consumers_bytes = 0
        self._consumers_left = 0
        self._last_seq = 0

    @property
    def held_bytes(self) -> int:
        return self._parser.held_bytes + self._consumers_bytes

    def feed(self, plain: bytes) -> None:
        for entry in self._parser.feed(plain):
            if self._state is None:
                self._take_state(entry)
            elif self._consumers_left:
                self._consumers_left -= 1
                self.consumers.append(entry)
                self._consumers_bytes += len(entry.name) + len(entry.payload)
            else:
                self._take_message(entry)

    def _take_state(self, entry: ArchiveEntry) -> None:
        if entry.name != STATE_NAME:
            raise FormatError("expected state.json first")
        try:
            state = decode(StreamState, entry.payload, strict=False)
        except InvalidDocument as error:
            raise FormatError(f"error in state.json: {error.reason}") from None
        self._state = state
        self._consumers_left = state.consumer_count
        self._last_seq = max(state.first_seq, 1) - 1
        if state.first_seq > 1:
            self._stream.store.compact(state.first_seq)

    def _take_message(self, entry: ArchiveEntry) -> None:
        if entry.seq <= self._last_seq:
            raise FormatError(f"message sequence {entry.seq} out of order")
        self._last_seq = entry.seq
        _store(
            self._stream,
            entry.name,
            entry.headers,
            entry.payload,
            seq=entry.seq,
            timestamp_ns=entry.timestamp_ns,
        )

    def finish(self) -> None:
        if self._state is None or not self._parser.is_complete:
            raise FormatError("backup was truncated")
        _skip_to(self._stream, self._state.last_seq)

    def close(self) -> None:
        """Nothing to remove."""


class _PackedFolder:
    """A snapshot of an older server: the packed folder of a stream."""

    # It is written to a file.
    held_bytes = 0

    def __init__(self, stream: Stream) -> None:
        self.consumers: list[ArchiveEntry] = []
        self._stream = stream
        # Beside the messages, where there is room; a restart removes it.
        is_file = stream.config.storage is StorageType.FILE
        where = stream.folder.path if is_file else None
        self._folder = tempfile.mkdtemp(prefix="restoring-", dir=where)
        self._packed: BinaryIO = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed by `close`

    def feed(self, plain: bytes) -> None:
        self._packed.write(plain)

    def finish(self) -> None:
        source = os.path.join(self._folder, "source")
        target = os.path.join(self._folder, "target")
        self._unpack(source)
        config = StoreConfig(name=self._stream.name)
        import_go_stream(source, target, config)
        store = FileStore.open(target, config, clock=SystemClock())
        try:
            self._copy(store)
        finally:
            store.stop()

    def _unpack(self, target: str) -> None:
        self._packed.seek(0)
        try:
            with tarfile.open(fileobj=self._packed, mode="r:") as packed:
                for count, member in enumerate(packed):
                    if not member.isreg() or not _GO_FILES.fullmatch(member.name):
                        raise FormatError("unexpected content")
                    if count >= GO_STREAM_FILES_MAX:
                        raise FormatError("too many files")
                    packed.extract(member, target, set_attrs=False, filter="data")
        except tarfile.TarError as error:
            raise FormatError(f"not a packed folder: {error}") from None

    def _copy(self, source: FileStore) -> None:
        state = source.state()
        if state.first_seq > 1:
            self._stream.store.compact(state.first_seq)
        seq = state.first_seq
        while seq <= state.last_seq:
            try:
                found = source.load_next(seq)
            except RecordNotFound:
                break
            _store(
                self._stream,
                found.subject,
                found.headers,
                found.payload,
                seq=found.seq,
                timestamp_ns=found.timestamp_ns,
            )
            seq = found.seq + 1
        _skip_to(self._stream, state.last_seq)

    def close(self) -> None:
        self._packed.close()
        if os.path.isdir(self._folder):
            remove_tree(OsFileSystem(), self._folder)


def _store(
    stream: Stream, subject: bytes, headers: bytes, payload: bytes, *, seq: int, timestamp_ns: int
) -> None:
    expires_ns = _expires_ns(stream.config, headers, timestamp_ns)
    if 0 < expires_ns <= stream.host.clock.now_ns():
        return
    stream.store.store_raw(
        subject, headers, payload, seq=seq, timestamp_ns=timestamp_ns, expires_ns=expires_ns
    )


def _expires_ns(config: StreamConfig, headers: bytes, timestamp_ns: int) -> int:
    text = value_of(headers, TTL) if config.allow_msg_ttl and headers else None
    if not text:
        return 0
    try:
        ttl_s = parse_ttl(text)
    except ApiError as error:
        raise FormatError(f"failed to parse message TTL: {error.description}") from None
    if ttl_s < 0:
        return NEVER_NS
    return min(timestamp_ns + ttl_s * SECOND_NS, NEVER_NS - 1) if ttl_s else 0


def _skip_to(stream: Stream, last_seq: int) -> None:
    missing = last_seq - stream.store.state().last_seq
    if missing > 0:
        stream.store.skip(missing)
