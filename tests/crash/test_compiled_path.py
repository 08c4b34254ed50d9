"""Faults on the path that servers run: the disk threads' own writes and syncs fail.

A commit is one job of the disk threads, also where a block is full and the next one's file is made.
Each test begins behind the store's first commit, which makes its files elsewhere.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from penstock.errors import StoreReadOnly
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.vfs import FileSystem, OsFileSystem
from penstock.testing.faults import Effect, FaultPlan, FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem
from tests.crash.power_cuts import content_of

PATIENCE_S = 30
"""Only a test that fails waits this long."""

BLOCK = "000001.blk"
NEXT_BLOCK = "000002.blk"


class WatchedFiles(FaultyFileSystem):
    """Notes which threads write and sync the blocks and their folder."""

    def __init__(self, files: FileSystem) -> None:
        super().__init__(files)
        self.threads: dict[Operation, set[str]] = {}
        self.failed = threading.Event()

    def note(self, operation: Operation, path: str) -> FaultPlan | None:
        if path.endswith((BLOCK, NEXT_BLOCK, "/stream")):
            name = Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()
            self.threads.setdefault(operation, set()).add(name)
        return super().note(operation, path)


class CutBefore(WatchedFiles):
    """Keeps what a power cut before one of its calls would leave."""

    def __init__(self, disk: MemoryFileSystem, seed: int) -> None:
        super().__init__(disk)
        self.survivor: MemoryFileSystem | None = None
        self.calls_left: int | None = None
        self._disk = disk
        self._random = Random(seed)

    def note(self, operation: Operation, path: str) -> FaultPlan | None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0 and self.survivor is None:
                self.survivor = self._disk.survivor(self._random)
        return super().note(operation, path)


class Acks:
    """What a store said to be durable."""

    def __init__(self) -> None:
        self.last_seq = 0
        self._more = threading.Condition()

    def __call__(self, seq: int) -> None:
        """Take note."""
        with self._more:
            self.last_seq = max(self.last_seq, seq)
            self._more.notify_all()

    def wait_for(self, seq: int) -> None:
        """Wait until a sequence is durable."""
        with self._more:
            assert self._more.wait_for(lambda: self.last_seq >= seq, PATIENCE_S)


def wait_until_failed(store: FileStore) -> None:
    waited = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if store.failure is not None:
            return
        waited.wait(0.01)
    raise AssertionError("the store has not failed")


@pytest.fixture(params=["real files", "a simulated disk"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, FileSystem]]:
    """A place for a store, and its file system without faults."""
    if request.param == "real files":
        yield str(tmp_path / "stream"), OsFileSystem()
    else:
        yield "/data/stream", MemoryFileSystem()


def begin(path: str, files: WatchedFiles, acks: Acks) -> FileStore:
    """Return a store whose next commit is a job of the disk threads, ten messages in."""
    store = FileStore.open(path, files=files, on_durable=acks)
    for number in range(10):
        seq, _ = store.store(b"s.%d" % number, b"", b"kept %d" % number)
        acks.wait_for(seq)
    files.threads.clear()
    return store


FAULTS = {
    "fdatasync fails": ({Operation.SYNC}, errno.EIO, Effect.FAIL),
    "fdatasync finds the disk full": ({Operation.SYNC}, errno.ENOSPC, Effect.FAIL),
    "pwrite fails": ({Operation.WRITE}, errno.EIO, Effect.FAIL),
    "pwrite finds the disk full": ({Operation.WRITE}, errno.ENOSPC, Effect.FAIL),
    "pwrite is torn": ({Operation.WRITE}, errno.EIO, Effect.TORN),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_job_acknowledges_nothing_more_and_loses_nothing_acknowledged(
    disk: tuple[str, FileSystem], fault: str
) -> None:
    path, plain = disk
    operations, error, effect = FAULTS[fault]
    files, acks = WatchedFiles(plain), Acks()
    store = begin(path, files, acks)

    files.plan = FaultPlan(1, operations, error=error, effect=effect)
    lost, _ = store.store(b"s.10", b"", b"never acknowledged")
    wait_until_failed(store)

    assert files.plan.fired == 1
    # The job was done by a disk thread, and nothing was tried after the failure.
    assert files.threads[next(iter(operations))] == {"penstock-disk"}
    assert files.plan.calls == 1
    with pytest.raises(StoreReadOnly):
        store.store(b"s.11", b"", b"refused")
    with pytest.raises(StoreReadOnly):
        store.flush()
    assert acks.last_seq == store.durable_seq == lost - 1
    assert store.load(lost - 1).payload == b"kept 9"
    store.stop()
    assert acks.last_seq == lost - 1
    with FileStore.open(path, files=plain) as again:
        content = content_of(again)
        assert [content[seq][2] for seq in range(1, 11)] == [b"kept %d" % n for n in range(10)]
        assert set(content) <= set(range(1, 12))
        assert again.report.damage == []


@pytest.mark.parametrize("fault", ["short", "interrupted"])
def test_a_job_goes_on_after_a_short_or_an_interrupted_write(
    disk: tuple[str, FileSystem], fault: str
) -> None:
    path, plain = disk
    files, acks = WatchedFiles(plain), Acks()
    store = begin(path, files, acks)

    if fault == "short":
        files.plan = FaultPlan(1, {Operation.WRITE}, effect=Effect.SHORT)
    else:
        files.plan = FaultPlan(1, {Operation.WRITE}, error=errno.EINTR)
    seq, _ = store.store(b"s.10", b"", b"whole")
    acks.wait_for(seq)

    assert files.plan.fired == 1
    assert files.threads[Operation.WRITE] == {"penstock-disk"}
    store.stop()
    with FileStore.open(path, files=plain) as again:
        assert again.load(seq).payload == b"whole"
        assert again.report.clean


ROLLOVER = [
    (Operation.WRITE, BLOCK),
    (Operation.SYNC, BLOCK),
    (Operation.OPEN, NEXT_BLOCK),
    (Operation.WRITE, NEXT_BLOCK),
    (Operation.SYNC, NEXT_BLOCK),
    (Operation.SYNC_DIR, "stream"),
    (Operation.WRITE, "high.water"),
]
"""What a job does that fills a block and begins the next."""

LARGE = [b"large %d " % number + bytes(10_000) for number in range(8)]


def begin_full_block(path: str, files: WatchedFiles, acks: Acks) -> FileStore:
    """Return a store whose first block has two of its messages; the others do not all fit."""
    config = StoreConfig(block_bytes=65_536)
    store = FileStore.open(path, config, files=files, on_durable=acks)
    for payload in LARGE[:2]:
        seq, _ = store.store(b"s", b"", payload)
        acks.wait_for(seq)
    store.flush()
    files.threads.clear()
    files.audit.clear()
    return store


def store_the_others(store: FileStore) -> None:
    store.store_batch([(b"s", b"", payload) for payload in LARGE[2:]])


def test_a_job_fills_a_block_and_begins_the_next(disk: tuple[str, FileSystem]) -> None:
    path, plain = disk
    files, acks = WatchedFiles(plain), Acks()
    store = begin_full_block(path, files, acks)

    store_the_others(store)
    acks.wait_for(len(LARGE))

    calls = [(call.operation, Path(call.path).name) for call in files.audit]
    assert calls[: len(ROLLOVER)] == ROLLOVER
    assert files.threads[Operation.OPEN] == files.threads[Operation.SYNC_DIR] == {"penstock-disk"}
    seq, _ = store.store(b"s", b"", b"in the new block")
    acks.wait_for(seq)
    store.stop()
    with FileStore.open(path, files=plain) as again:
        found = [content[2] for content in content_of(again).values()]
        assert found == [*LARGE, b"in the new block"]
        assert again.report.clean


@pytest.mark.parametrize("at", range(len(ROLLOVER)))
def test_a_failure_while_the_next_block_is_begun_loses_nothing_acknowledged(
    disk: tuple[str, FileSystem], at: int
) -> None:
    path, plain = disk
    files, acks = WatchedFiles(plain), Acks()
    store = begin_full_block(path, files, acks)

    files.plan = FaultPlan(at + 1, {operation for operation, _ in ROLLOVER}, error=errno.EIO)
    store_the_others(store)
    wait_until_failed(store)

    assert files.plan.fired == 1
    # Nothing was tried after the failure.
    calls = [(call.operation, Path(call.path).name) for call in files.audit]
    assert calls == ROLLOVER[: at + 1]
    assert acks.last_seq == store.durable_seq == 2
    assert [store.load(seq).payload for seq in (1, 2)] == LARGE[:2]
    store.stop()
    assert acks.last_seq == 2
    with FileStore.open(path, files=plain) as again:
        found = [content[2] for content in content_of(again).values()]
        assert found == LARGE[: len(found)]
        assert len(found) >= 2
        assert again.report.damage == []


def test_a_power_cut_while_the_next_block_is_begun_loses_nothing_acknowledged() -> None:
    for at in range(len(ROLLOVER)):
        for seed in range(20):
            disk = MemoryFileSystem()
            files, acks = CutBefore(disk, seed), Acks()
            store = begin_full_block("/data/stream", files, acks)
            files.calls_left = at
            store_the_others(store)
            acks.wait_for(len(LARGE))
            store.stop()
            assert files.survivor is not None
            with FileStore.open("/data/stream", files=files.survivor, threaded=False) as again:
                found = [content[2] for content in content_of(again).values()]
                assert found == LARGE[: len(found)]
                assert len(found) >= 2
                assert again.report.damage == []


def test_what_disk_threads_acknowledged_survives_a_power_cut_at_once() -> None:
    disk, acks = MemoryFileSystem(), Acks()
    store = begin("/data/stream", WatchedFiles(disk), acks)
    for number in range(10, 200):
        seq, _ = store.store(b"s.%d" % number, b"", b"kept %d" % number)
        if number % 10 == 0:
            acks.wait_for(seq)
            known = acks.last_seq
            survivor = disk.survivor(Random(number))
            with FileStore.open("/data/stream", files=survivor, threaded=False) as again:
                content = content_of(again)
            assert set(range(1, known + 1)) <= set(content)
    store.stop()
