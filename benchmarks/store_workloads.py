"""What streams are used for: last values, filtered consumers, expiry, and memory."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import (
    Message,
    Row,
    Sizes,
    batches,
    block_bytes,
    folder_in,
    in_own_process,
    messages,
    si,
    timed,
)
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter
from penstock.testing.clock import FakeClock

KEYS = 10_000
SECOND_NS = 1_000_000_000


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    return [
        *_last_values(sizes, folder),
        *_filtered(sizes, folder),
        *_expiry(sizes, folder),
        *_in_memory(sizes),
    ]


def _row(what: str, unit: str, rates: list[float], detail: str) -> Row:
    return Row("workloads", what, statistics.median(rates), unit, None, detail, {unit: rates})


# Last values: one message a subject is kept


def _last_values(sizes: Sizes, folder: Path) -> list[Row]:
    updates = messages(min(sizes.worked, 200_000), subjects=min(KEYS, sizes.worked // 2))
    rows = []
    ways: tuple[tuple[str, Callable[[FileStore, list[Message]], None]], ...] = (
        ("one a call", _one_a_call),
        ("batches of 1,000", _in_batches),
    )
    for name, way in ways:
        rates = []
        detail = ""
        for turn in range(sizes.rounds):
            config = StoreConfig(max_msgs_per_subject=1)
            with folder_in(folder, f"values-{turn}") as place:
                with FileStore.open(str(place), config) as store:
                    rates.append(len(updates) / timed(way, store, updates))
                    state = store.state()
                detail = (
                    f"{state.messages:,} keys, {si(state.bytes, 'B')} live in blocks of"
                    f" {si(block_bytes(place), 'B')}"
                )
        rows.append(_row(f"last value per subject: updates, {name}", "msg/s", rates, detail))
    return rows


def _one_a_call(store: FileStore, updates: list[Message]) -> None:
    for subject, headers, payload in updates:
        store.store(subject, headers, payload)
    store.flush()


def _in_batches(store: FileStore, updates: list[Message]) -> None:
    for batch in batches(updates):
        store.store_batch(batch)
    store.flush()


# Filtered consumers


def _filtered(sizes: Sizes, folder: Path) -> list[Row]:
    with folder_in(folder, "filtered") as place:
        in_own_process("build", str(place), sizes.worked, 100)
        with FileStore.open(str(place)) as store:
            literal = SubjectFilter([b"orders.00007.created"])
            wildcard = SubjectFilter([b"orders.00007.*"])
            first = timed(_consume, store, literal)
            rates = {
                name: [_consume(store, wanted) for _ in range(sizes.rounds)]
                for name, wanted in (("literal", literal), ("wildcard", wildcard))
            }
            chance = random.Random(1)
            seqs = [chance.randint(1, store.state().last_seq) for _ in range(200)]
            counts = [_count(store, wildcard, seqs) for _ in range(sizes.rounds)]
            count = store.state().messages
    detail = f"1 in 100 of {si(count, 'messages')}"
    return [
        *(
            _row(f"load_next through a {name} filter", "msg/s", rate, detail)
            for name, rate in rates.items()
        ),
        _row(
            "load_next through a literal filter, first time",
            "s",
            [first],
            f"{detail}, all of them, with no index in memory",
        ),
        _row("count_pending of a filter from a random sequence", "calls/s", counts, detail),
    ]


def _consume(store: FileStore, wanted: SubjectFilter) -> float:
    left = store.count_pending(wanted, 1)
    total = left
    seq = 0
    started = time.perf_counter()
    while left:
        message = store.load_next(seq + 1, wanted)
        seq = message.seq
        left -= 1
    return total / (time.perf_counter() - started)


def _count(store: FileStore, wanted: SubjectFilter, seqs: list[int]) -> float:
    started = time.perf_counter()
    for seq in seqs:
        store.count_pending(wanted, seq)
    return len(seqs) / (time.perf_counter() - started)


# Expiry


def _expiry(sizes: Sizes, folder: Path) -> list[Row]:
    by_ttl = []
    by_age = []
    for turn in range(sizes.rounds):
        with folder_in(folder, f"ttl-{turn}") as place:
            by_ttl.append(_expire(place, sizes.expiring, StoreConfig(), ttl_ns=SECOND_NS))
        with folder_in(folder, f"age-{turn}") as place:
            config = StoreConfig(max_age_ns=SECOND_NS)
            by_age.append(_expire(place, sizes.expiring, config, ttl_ns=0))
    detail = f"{sizes.expiring:,} at once, with their commit"
    return [
        _row("expire by the messages' own time to live", "msg/s", by_ttl, detail),
        _row("expire by the stream's maximum age", "msg/s", by_age, detail),
    ]


def _expire(place: Path, count: int, config: StoreConfig, *, ttl_ns: int) -> float:
    clock = FakeClock()
    with FileStore.open(str(place), config, clock=clock, threaded=False) as store:
        expires_ns = clock.now_ns() + ttl_ns if ttl_ns else 0
        for subject, headers, payload in messages(count):
            store.store(subject, headers, payload, expires_ns=expires_ns)
        store.flush()
        clock.advance_ns(2 * SECOND_NS)

        def expire() -> None:
            assert store.expire() == count
            store.flush()

        return count / timed(expire)


# In memory


def _load_all(store: FileStore, seqs: list[int]) -> None:
    for seq in seqs:
        _ = store.load(seq).payload


def _in_memory(sizes: Sizes) -> list[Row]:
    prepared = messages(min(sizes.worked, 200_000))
    chance = random.Random(2)
    seqs = [chance.randint(1, len(prepared)) for _ in range(len(prepared) // 2)]
    single, batched, loaded = [], [], []
    for _ in range(sizes.rounds):
        store = MemoryStore.create()
        single.append(len(prepared) / timed(_one_a_call, store, prepared))
        store = MemoryStore.create()
        batched.append(len(prepared) / timed(_in_batches, store, prepared))
        loaded.append(len(seqs) / timed(_load_all, store, seqs))
    detail = f"{si(len(prepared), 'messages')}"
    return [
        _row("memory store: store, one a call", "msg/s", single, detail),
        _row("memory store: store, batches of 1,000", "msg/s", batched, detail),
        _row("memory store: random load", "msg/s", loaded, detail),
    ]
