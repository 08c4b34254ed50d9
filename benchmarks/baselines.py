"""What Penstock is measured against: plain files, SQLite, and the xxhash library.

Each does the same work on the same bytes as its counterpart, in the fastest plain way: SQLite with
prepared statements and no index but its primary key, files in one piece.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import xxhash

from benchmarks.measure import Message

HASHED_CHUNK_BYTES = 1024 * 1024

SqliteRow = tuple[int, bytes, bytes, bytes, int]


def write_raw(path: Path, chunks: Sequence[bytes]) -> float:
    """Write chunks to one new file, with a data sync after each; return the seconds."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        started = time.perf_counter()
        for chunk in chunks:
            os.write(fd, chunk)
            os.fdatasync(fd)
        return time.perf_counter() - started
    finally:
        os.close(fd)


def write_raw_latencies(fd: int, record: bytes, count: int) -> list[float]:
    """Append one record after another, each with a data sync; return each one's seconds."""
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        os.write(fd, record)
        os.fdatasync(fd)
        taken.append(time.perf_counter() - started)
    return taken


def hash_files(paths: Iterable[Path]) -> float:
    """Read and hash whole files, in large pieces; return the seconds."""
    buffer = bytearray(HASHED_CHUNK_BYTES)
    view = memoryview(buffer)
    started = time.perf_counter()
    for path in paths:
        digest = xxhash.xxh64()
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                digest.update(view[:size])
        digest.intdigest()
    return time.perf_counter() - started


def sqlite_rows(batches: Sequence[Sequence[Message]]) -> list[list[SqliteRow]]:
    """Return batches of messages as rows."""
    seq = 0
    rows = []
    for batch in batches:
        rows.append(
            [
                (seq + place, subject, headers, payload, seq + place)
                for place, (subject, headers, payload) in enumerate(batch, 1)
            ]
        )
        seq += len(batch)
    return rows


class SqliteMessages:
    """A table of messages by sequence."""

    def __init__(self, path: Path, *, cache_kib: int = 0) -> None:
        """Open or make it; `cache_kib` of 0 leaves SQLite its default of 2 MB."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        if cache_kib:
            self._connection.execute(f"PRAGMA cache_size=-{cache_kib}")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS messages (seq INTEGER PRIMARY KEY, subject BLOB,"
            " headers BLOB, payload BLOB, time INTEGER)"
        )

    def append(self, batches: Sequence[Sequence[SqliteRow]]) -> float:
        """Insert rows, a transaction a batch; return the seconds."""
        execute = self._connection.execute
        started = time.perf_counter()
        for batch in batches:
            execute("BEGIN")
            self._connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", batch)
            execute("COMMIT")
        return time.perf_counter() - started

    def load(self, seqs: Sequence[int]) -> float:
        """Fetch the payload of each row; return the seconds."""
        execute = self._connection.execute
        started = time.perf_counter()
        for seq in seqs:
            execute("SELECT payload FROM messages WHERE seq = ?", (seq,)).fetchone()[0]
        return time.perf_counter() - started

    def close(self) -> None:
        """Close."""
        self._connection.close()
