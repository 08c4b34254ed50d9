"""One message at a time: how long until it is durable, and the rate without waiting."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from benchmarks.baselines import write_raw_latencies
from benchmarks.measure import (
    PAYLOAD_BYTES,
    Message,
    Row,
    Sizes,
    batches,
    block_files,
    folder_in,
    messages,
    percentile,
    si,
    timed,
)
from penstock.store.filestore import FileStore


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    return [*_latency(sizes, folder), *_without_waiting(sizes, folder)]


def _latency(sizes: Sizes, folder: Path) -> list[Row]:
    prepared = messages(sizes.latencies)
    ours: list[float] = []
    inline: list[float] = []
    raw: list[float] = []
    with folder_in(folder, "latency") as place:
        fd = os.open(place / "raw", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with (
            FileStore.open(str(place / "store")) as store,
            FileStore.open(str(place / "inline"), threaded=False) as unthreaded,
        ):
            for _ in range(sizes.rounds):
                ours += _commit_each(store, prepared)
                record = block_files(place / "store")[0].read_bytes()[-(PAYLOAD_BYTES + 48) :]
                raw += write_raw_latencies(fd, record, sizes.latencies)
                inline += _commit_each(unthreaded, prepared)
        os.close(fd)
    return [
        Row(
            "latency",
            f"store + flush of one message: p{percent}, of raw write + fdatasync",
            percentile(ours, percent) / percentile(raw, percent),
            "x",
            None,
            f"{percentile(ours, percent) * 1e6:.0f} µs (without threads"
            f" {percentile(inline, percent) * 1e6:.0f} µs); raw"
            f" {percentile(raw, percent) * 1e6:.0f} µs",
        )
        for percent in (50, 99)
    ]


def _commit_each(store: FileStore, prepared: list[Message]) -> list[float]:
    taken = []
    for subject, headers, payload in prepared:
        started = time.perf_counter()
        store.store(subject, headers, payload)
        store.flush()
        taken.append(time.perf_counter() - started)
    return taken


def _without_waiting(sizes: Sizes, folder: Path) -> list[Row]:
    prepared = messages(min(sizes.worked, 200_000))
    single: list[float] = []
    batched: list[float] = []
    for turn in range(sizes.rounds):
        for name, rates, store_all in (
            ("single", single, _store_each),
            ("batched", batched, _store_batches),
        ):
            with (
                folder_in(folder, f"unwaited-{name}-{turn}") as place,
                FileStore.open(str(place)) as store,
            ):
                rates.append(len(prepared) / timed(store_all, store, prepared))
    detail = f"{si(len(prepared), 'messages')}, one flush at the end"
    return [
        Row(
            "latency",
            f"store, {name}, committed by the disk's threads",
            statistics.median(rates),
            "msg/s",
            None,
            detail,
            {"messages_per_second": rates},
        )
        for name, rates in (("one message a call", single), ("batches of 1,000", batched))
    ]


def _store_each(store: FileStore, prepared: list[Message]) -> None:
    for subject, headers, payload in prepared:
        store.store(subject, headers, payload)
    store.flush()


def _store_batches(store: FileStore, prepared: list[Message]) -> None:
    for batch in batches(prepared):
        store.store_batch(batch)
    store.flush()
