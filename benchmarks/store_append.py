"""Appending with a sync every thousand messages, beside raw writes and SQLite."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.baselines import SqliteMessages, sqlite_rows, write_raw
from benchmarks.measure import (
    BATCH_MESSAGES,
    PAYLOAD_BYTES,
    Message,
    Row,
    Sizes,
    at_least,
    batches,
    block_files,
    folder_in,
    messages,
    ratio,
    si,
    timed,
)
from penstock.store.filestore import FileStore


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    prepared = batches(messages(sizes.appended))
    rows = sqlite_rows(prepared)
    ours: list[float] = []
    raw: list[float] = []
    sqlite: list[float] = []
    for turn in range(sizes.rounds):
        with folder_in(folder, f"append-{turn}") as place:
            ours.append(sizes.appended / _append(place / "store", prepared))
            chunks = _written(place / "store", len(prepared))
            raw.append(sizes.appended / write_raw(place / "raw", chunks))
            table = SqliteMessages(place / "sqlite")
            sqlite.append(sizes.appended / table.append(rows))
            table.close()
    what = f"append {PAYLOAD_BYTES} B messages, fdatasync every {BATCH_MESSAGES:,}"
    our_rate = si(statistics.median(ours), "msg/s")
    samples = {"penstock": ours, "raw": raw, "sqlite": sqlite}
    return [
        Row(
            "append",
            f"{what}: of raw write + fdatasync",
            ratio(ours, raw),
            "x",
            at_least(0.5),
            f"{our_rate}; raw {si(statistics.median(raw), 'msg/s')}",
            samples,
        ),
        Row(
            "append",
            f"{what}: of SQLite (WAL, FULL)",
            ratio(ours, sqlite),
            "x",
            at_least(5),
            f"{our_rate}; SQLite {si(statistics.median(sqlite), 'msg/s')}",
            samples,
        ),
    ]


def _append(path: Path, prepared: list[list[Message]]) -> float:
    with FileStore.open(str(path)) as store:

        def append() -> None:
            for batch in prepared:
                store.store_batch(batch, durable=True)

        return timed(append)


def _written(path: Path, parts: int) -> list[bytes]:
    """Return the very bytes of the block files, in as many pieces as there were syncs."""
    data = b"".join(file.read_bytes() for file in block_files(path))
    size = -(-len(data) // parts)
    return [data[start : start + size] for start in range(0, len(data), size)]
