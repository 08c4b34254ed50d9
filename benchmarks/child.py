"""What is measured in a process of its own; `benchmarks.measure.in_own_process` calls it.

A task prints one JSON object of numbers. Penstock is imported inside the tasks only, so that the
memory and the time of the import can be told apart.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.measure import (
    PAYLOAD_BYTES,
    SUBJECTS,
    Message,
    batches,
    messages,
    peak_resident_bytes,
    read_bytes,
    resident_bytes,
)

if TYPE_CHECKING:
    from penstock.store.filestore import FileStore

Measured = dict[str, float]
BUILD_BATCH_MESSAGES = 10_000
MATCHES = 100_000


def imports() -> Measured:
    """Import the store and do nothing else."""
    started = time.perf_counter()
    import penstock.store.filestore  # noqa: F401  # importing it is what is measured

    return {
        "seconds": time.perf_counter() - started,
        "resident_bytes": resident_bytes(),
        "peak_bytes": peak_resident_bytes(),
    }


def build(path: str, count: str, subjects: str) -> Measured:
    """Make a store of at least `count` messages whose last block is half full, and stop it."""
    from penstock.store.filestore import FileStore

    wanted = int(count)
    size = min(BUILD_BATCH_MESSAGES, wanted)
    batch = messages(size, subjects=min(int(subjects), SUBJECTS))
    with FileStore.open(path) as store:
        stored = 0
        while stored < wanted:
            if int(subjects) > SUBJECTS:
                batch = [
                    (b"devices.%08d.state" % (place % int(subjects)), b"", payload)
                    for place, (_, _, payload) in enumerate(batch, stored)
                ]
            store.store_batch(batch)
            stored += size
        while not _half_full(store):
            store.store_batch(batch[: BUILD_BATCH_MESSAGES // 100])
        return {"messages": store.state().messages}


def _half_full(store: FileStore) -> bool:
    # The last block is always scanned at open: stores are compared with the same amount of it.
    active = store.engine.log.active
    return active is not None and abs(active.bytes / store.config.block_bytes - 0.5) < 0.02


def open_store(path: str) -> Measured:
    """Open a store that was stopped, and look at the process."""
    from penstock.store.filestore import FileStore

    resident_before = resident_bytes()
    read_before = read_bytes()
    processor_before = time.process_time()
    started = time.perf_counter()
    store = FileStore.open(path)
    seconds = time.perf_counter() - started
    measured: Measured = {
        "seconds": seconds,
        "processor_seconds": time.process_time() - processor_before,
        "resident_bytes": resident_bytes(),
        "grown_bytes": resident_bytes() - resident_before,
        "peak_bytes": peak_resident_bytes(),
        "read_bytes": read_bytes() - read_before,
        "messages": store.state().messages,
        "subjects": store.state().subjects,
        "table_bytes": store.engine.log.ledger.table.memory_bytes(),
        "rebuilt": len(store.report.rebuilt_indexes),
    }
    store.stop()
    return measured


def fill_active(path: str, count: str) -> Measured:
    """Fill one large block, message by message, and see what memory that costs."""
    from penstock.limits import BLOCK_BYTES_MAX, WRITE_CACHE_BYTES_MAX
    from penstock.store.filestore import FileStore
    from penstock.store.interface import StoreConfig

    config = StoreConfig(block_bytes=BLOCK_BYTES_MAX // 2)
    prepared = batches(messages(BUILD_BATCH_MESSAGES))
    stored = 0
    with FileStore.open(path, config, threaded=False) as store:
        # The written bytes that are kept for readers are a constant: fill them before measuring.
        while stored * PAYLOAD_BYTES < 2 * WRITE_CACHE_BYTES_MAX:
            stored += _store_all(store, prepared)
        before, stored_before = resident_bytes(), stored
        while stored - stored_before < int(count):
            stored += _store_all(store, prepared)
        grown = resident_bytes() - before
        active = store.engine.log.active
        assert active is not None, "everything fits into one block"
        assert active.index is not None, "the active block's index is in memory"
        return {
            "messages": stored - stored_before,
            "grown_bytes": grown,
            "index_bytes": active.index.memory_bytes(),
            "index_messages": stored,
        }


def _store_all(store: FileStore, prepared: list[list[Message]]) -> int:
    for batch in prepared:
        store.store_batch(batch)
        store.flush()
    return sum(map(len, prepared))


def match(count: str) -> Measured:
    """Match subjects that no cache holds yet against many subscriptions."""
    from penstock.routing.sublist import Receiver, Sublist, Subscription

    total = int(count)
    receiver = Receiver()
    sublist = Sublist()
    for number in range(total):
        wildcard = b"" if number % 10 else b".*"
        subject = b"orders.eu.%d%b" % (number, wildcard)
        sublist.insert(Subscription(receiver, subject, b"%d" % number))
    # A prime step goes everywhere, and meets literals and wildcards alike.
    numbers = [place * 7919 % total for place in range(min(MATCHES, total))]
    subjects = [b"orders.eu.%d%b" % (n, b"" if n % 10 else b".paid") for n in numbers]
    started = time.process_time()
    found = sum(len(sublist.matches(subject).plain) for subject in subjects)
    return {
        "seconds": time.process_time() - started,
        "matches": len(subjects),
        "found": found,
    }


def plan_blocks(path: str) -> Measured:
    """Plan a directory for Spark, whole and by one subject; return what that took."""
    from penstock.spark.blocks.settings import plan, read_settings

    before = resident_bytes()
    started = time.perf_counter()
    parts = plan(read_settings({"path": path}))
    seconds = time.perf_counter() - started
    grown = peak_resident_bytes() - before
    plan(read_settings({"path": path, "subject": "orders.000007"}))
    return {
        "seconds": seconds,
        "grown_mb": grown / 1e6,
        "filtered_seconds": time.perf_counter() - started - seconds,
        "parts": len(parts),
    }


TASKS: dict[str, Callable[..., Measured]] = {
    "plan": plan_blocks,
    "match": match,
    "imports": imports,
    "build": build,
    "open": open_store,
    "fill-active": fill_active,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
