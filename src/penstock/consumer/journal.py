"""The journal of an account's consumers: one sync for all that are created, changed and removed.

A change is a frame (`format.state.journal`) at the end of a file in the account's folder. All that
came while the last commit was under way is written and synced together by a thread; then everyone
who waits is called. The consumers' own folders follow a little later (`state_writer`), without a
sync. When nothing has changed for a while the journal is *settled*: the folders are synced, and the
files of the journal that they stand for are removed. After a crash the journal is read first, and
what it says of a consumer counts more than the consumer's folder.

Invariants: frames are written in the order of the changes. Nobody is told of a change before it is
on stable storage. Nothing is written to a file again after a write or a sync of it has failed; the
next change begins another one. A file is removed when all that it says is on stable storage
elsewhere, and the oldest first.

Thread: the event loop's; `_write` runs in another.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor, Future

from penstock.errors import FormatError, UnsupportedVersion
from penstock.format.state.journal import (
    HEAD_BYTES,
    JOURNAL_NAME,
    JournalEntry,
    decode_journal,
    encode_frame,
    encode_head,
)
from penstock.limits import CONSUMER_JOURNAL_FILE_BYTES_MAX
from penstock.store.threads import COMMITS
from penstock.store.vfs import File, write_all
from penstock.stream.changes import Change
from penstock.stream.stream import StreamHost

Recovered = dict[str, bytes | None]
"""The documents of a stream's consumers by their names; None of one that was removed."""


class _Batch(Change):
    """The changes that are written together."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[JournalEntry] = []


class ConsumerJournal:
    """The journal of one account; see the module."""

    def __init__(self, host: StreamHost, folder: str, *, threads: Executor = COMMITS) -> None:
        """`folder` is the account's; `threads` write and sync."""
        self._host = host
        self._folder = folder
        self._threads = threads
        self._open = _Batch()
        self._under_way: _Batch | None = None
        self._writing: Future[OSError | None] | None = None
        self._is_due = False
        self._number = 0
        self._file: File | None = None
        self._size = 0
        self._salt = 0
        self.paths: list[str] = []
        """The files of the journal, the oldest first."""

    # Start

    def recover(self) -> dict[tuple[str, int], Recovered]:
        """Read what the journal says, by the stream's name and its time of creation."""
        found: dict[tuple[str, int], Recovered] = {}
        if not self._host.files.is_dir(self._folder):
            return found
        numbered = [
            (int(match[1]), name)
            for name in self._host.files.list_names(self._folder)
            if (match := JOURNAL_NAME.match(name))
        ]
        for number, name in sorted(numbered):
            self._number = number
            path = os.path.join(self._folder, name)
            for stream, stream_ns, consumer, document in self._read(path):
                found.setdefault((stream, stream_ns), {})[consumer] = document
        return found

    def _read(self, path: str) -> list[JournalEntry]:
        try:
            file = self._host.files.open(path, "read")
            try:
                data = file.read_at(0, file.size())
            finally:
                file.close()
            content = decode_journal(data, path=path)
        except (FormatError, UnsupportedVersion, OSError) as error:
            # It stays as it is, and where it is.
            self._host.log("ERR", f"JetStream journal {path}: {error}")
            return []
        if content.end < len(data):
            left = len(data) - content.end
            self._host.log("WRN", f"JetStream journal {path}: {left} bytes of an unfinished change")
        self.paths.append(path)
        return content.entries

    # Changes

    @property
    def is_busy(self) -> bool:
        """True while a change is not on stable storage."""
        return self._under_way is not None or bool(self._open.entries)

    def append(self, entry: JournalEntry) -> Change:
        """Write a change soon; return the batch that it is part of."""
        batch = self._open
        batch.entries.append(entry)
        if not self._is_due and self._under_way is None:
            self._is_due = True
            self._host.loop.call_soon(self._begin)
        return batch

    def latest(self) -> Change | None:
        """Return what to wait for until all changes so far are on stable storage."""
        return self._open if self._open.entries else self._under_way

    def _begin(self) -> None:
        self._is_due = False
        batch = self._open
        if self._under_way is not None or not batch.entries:
            return
        self._open, self._under_way = _Batch(), batch
        loop = self._host.loop
        self._writing = self._threads.submit(self._write, batch.entries)
        self._writing.add_done_callback(
            lambda done: loop.call_soon_threadsafe(self._end, batch, done.result())
        )

    def _end(self, batch: _Batch, error: OSError | None) -> None:
        if self._under_way is not batch:
            return
        self._under_way = self._writing = None
        # What is written next need not wait for what those do who wait.
        self._begin()
        batch.entries.clear()
        if error is not None:
            self._host.log("ERR", f"JetStream journal: {error}")
        batch.end(error)

    def finish(self) -> None:
        """Have all changes on stable storage before returning, and close the file."""
        while self.is_busy:
            self._begin()
            under_way, writing = self._under_way, self._writing
            assert under_way is not None, "it was begun"
            assert writing is not None, "it was begun"
            self._end(under_way, writing.result())
        self._close()

    def cut(self) -> list[str]:
        """Begin another file with the next change; return the files that there are.

        Nothing may be on its way to the disk.
        """
        assert not self.is_busy, "a file is closed by who writes it"
        self._close()
        return list(self.paths)

    def remove(self, paths: list[str]) -> None:
        """Remove files that `cut` has returned, the oldest first; raise OSError. Thread: any."""
        for path in paths:
            self._host.files.unlink(path)
            self.paths.remove(path)
        # An older file must not come back when a later one, which corrects it, is gone.
        self._host.files.sync_dir(self._folder)

    def forget(self) -> None:
        """Know of no file any more: the account's folder was removed."""
        self.finish()
        self.paths.clear()

    def _write(self, entries: list[JournalEntry]) -> OSError | None:
        """Write and sync changes; return why that failed. Thread: the journal's."""
        try:
            if self._file is None or self._size >= CONSUMER_JOURNAL_FILE_BYTES_MAX:
                self._start_file()
            file = self._file
            assert file is not None, "it was just made"
            frames = bytearray()
            for entry in entries:
                place = self._size + len(frames)
                frames += encode_frame(entry, salt=self._salt, place=place)
            write_all(file, self._size, frames)
            file.sync_data()
            self._size += len(frames)
        except OSError as error:
            self._close()
            return error
        return None

    def _start_file(self) -> None:
        self._close()
        self._number += 1
        path = os.path.join(self._folder, f"consumers.{self._number}.journal")
        self._host.files.make_dirs(self._folder)
        file = self._host.files.open(path, "create")
        self.paths.append(path)
        self._file = file
        self._salt = int.from_bytes(os.urandom(8), "little")
        write_all(file, 0, encode_head(self._salt))
        self._size = HEAD_BYTES
        self._host.files.sync_dir(self._folder)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
