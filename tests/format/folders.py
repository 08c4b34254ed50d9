"""Stores for reading tests: directories that a FileStore wrote, on disk and in memory."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

from penstock.format.columns import MessageRow
from penstock.format.files import LocalFolder, ReadableFile
from penstock.format.reader import Selection, StreamReader
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.vfs import FileSystem
from penstock.testing.clock import FakeClock

SMALL_BLOCKS = 4096


class StoreFolder:
    """A folder of any store file system, seen as readers see folders."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = path
        self._files = files

    def list_names(self) -> list[str]:
        return self._files.list_names(self.path)

    def open(self, name: str) -> ReadableFile:
        return self._files.open(os.path.join(self.path, name), "read")


class WatchedFolder(LocalFolder):
    """A local folder that remembers which files were opened, and can answer with an old list."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.opened: list[str] = []
        self.old_lists: list[list[str]] = []

    def list_names(self) -> list[str]:
        return self.old_lists.pop(0) if self.old_lists else super().list_names()

    def open(self, name: str) -> ReadableFile:
        self.opened.append(name)
        return super().open(name)


def open_store(path: Path | str, **changes: object) -> FileStore:
    """Open a store with small blocks that does nothing by itself: no thread, a clock by hand."""
    arguments: dict[str, object] = {
        "config": StoreConfig(name="ORDERS", block_bytes=SMALL_BLOCKS),
        "clock": FakeClock(),
        "random_bytes": random.Random(11).randbytes,
        "threaded": False,
        **changes,
    }
    return FileStore.open(str(path), **arguments)  # type: ignore[arg-type]  # named by the caller


def fill(store: FileStore, count: int, *, start: int = 0) -> None:
    """Store messages of seven subjects, with headers on every third, a second apart."""
    clock = store.engine.settings.clock
    assert isinstance(clock, FakeClock)
    source = random.Random(start)
    for place in range(start, start + count):
        headers = b"NATS/1.0\r\nPlace: %d\r\n\r\n" % place if place % 3 == 0 else b""
        store.store(b"orders.%d" % (place % 7), headers, source.randbytes(source.randint(0, 200)))
        clock.advance_ns(1_000_000_000)
    store.flush()


def contents(store: FileStore) -> list[MessageRow]:
    """Return every live message of an open store; places in files are left out."""
    found = []
    state = store.state()
    gone = store.deleted()
    for seq in range(state.first_seq, state.last_seq + 1):
        if seq not in gone:
            message = store.load(seq)
            found.append(
                MessageRow(
                    seq,
                    message.timestamp_ns,
                    message.subject,
                    message.headers,
                    message.payload,
                )
            )
    return found


def read(reader: StreamReader, wanted: Selection | None = None) -> list[MessageRow]:
    """Return the wanted messages of a directory; places in files are left out."""
    return list(without_places(reader, wanted))


def without_places(reader: StreamReader, wanted: Selection | None) -> Iterator[MessageRow]:
    for batch in reader.batches(wanted):
        for message in batch.messages():
            yield MessageRow(
                message.seq,
                message.timestamp_ns,
                message.subject,
                message.headers,
                message.payload,
            )


def fingerprints(path: Path) -> dict[str, str]:
    """Return the hash of every file below a folder."""
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
