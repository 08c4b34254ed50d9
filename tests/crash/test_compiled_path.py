"""Faults on the path that servers run: the disk threads' own writes and syncs fail.

A commit of a block that has its file is one job of the disk threads. Each test begins behind the
first commit, so that what fails is that job and not the making of a file.
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
from penstock.store.vfs import FileSystem, OsFileSystem
from penstock.testing.faults import Effect, FaultPlan, FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem
from tests.crash.power_cuts import content_of

PATIENCE_S = 30
"""Only a test that fails waits this long."""

BLOCK = "000001.blk"


class WatchedFiles(FaultyFileSystem):
    """Notes which threads write and sync the block."""

    def __init__(self, files: FileSystem) -> None:
        super().__init__(files)
        self.threads: dict[Operation, set[str]] = {}
        self.failed = threading.Event()

    def note(self, operation: Operation, path: str) -> FaultPlan | None:
        if path.endswith(BLOCK):
            name = Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()
            self.threads.setdefault(operation, set()).add(name)
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
