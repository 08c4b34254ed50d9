"""Loading single messages by sequence, in random order, beside SQLite's primary key."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

from benchmarks.baselines import SqliteMessages, sqlite_rows
from benchmarks.measure import (
    PAYLOAD_BYTES,
    Row,
    Sizes,
    at_least,
    batches,
    folder_in,
    messages,
    ratio,
    si,
    take_turns,
)
from penstock.store.filestore import FileStore

CACHE_KIB = 64 * 1024


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with folder_in(folder, "load") as place:
        _build(place, sizes.loaded_from)
        chance = random.Random(sizes.loads)
        default = SqliteMessages(place / "sqlite")
        cached = SqliteMessages(place / "sqlite", cache_kib=CACHE_KIB)
        with FileStore.open(str(place / "store")) as store:
            # The block that is still written to answers from memory: leave it out.
            sealed = max(store.engine.log.ledger.blocks[-1].base_seq - 1, 1)
            seqs = [chance.randint(1, sealed) for _ in range(sizes.loads)]
            ours, sqlite, with_cache = (
                [sizes.loads / seconds for seconds in taken]
                for taken in take_turns(
                    sizes.rounds,
                    lambda: _load(store, seqs),
                    lambda: default.load(seqs),
                    lambda: cached.load(seqs),
                )
            )
        default.close()
        cached.close()
    what = f"random load by sequence, {PAYLOAD_BYTES} B messages"
    our_rate = si(statistics.median(ours), "msg/s")
    return [
        Row(
            "load",
            f"{what}: of SQLite",
            ratio(ours, sqlite),
            "x",
            at_least(3),
            f"{our_rate}; SQLite {si(statistics.median(sqlite), 'msg/s')}",
            {"penstock": ours, "sqlite": sqlite},
        ),
        Row(
            "load",
            f"{what}: of SQLite with a 64 MB cache",
            ratio(ours, with_cache),
            "x",
            None,
            f"{our_rate}; SQLite {si(statistics.median(with_cache), 'msg/s')}",
            {"penstock": ours, "sqlite": with_cache},
        ),
    ]


def _build(place: Path, count: int) -> None:
    """Store the same messages in both, a part at a time."""
    prepared = batches(messages(min(count, 10_000)))
    table = SqliteMessages(place / "sqlite")
    with FileStore.open(str(place / "store")) as store:
        seq = 0
        while seq < count:
            rows = [[(seq + row[0], *row[1:]) for row in batch] for batch in sqlite_rows(prepared)]
            table.append([[row for batch in rows for row in batch]])
            for batch in prepared:
                _, seq = store.store_batch(batch)
    table.close()


def _load(store: FileStore, seqs: list[int]) -> float:
    load = store.load
    started = time.perf_counter()
    for seq in seqs:
        _ = load(seq).payload
    return time.perf_counter() - started
