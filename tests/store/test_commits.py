"""Commits that no caller waits for: who ends them, in which order, and what a failure touches."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import StoreReadOnly
from penstock.limits import COMMIT_THREADS_MAX, UPKEEP_THREADS_MAX
from penstock.store.commit import commit
from penstock.store.commit.disk_threads import DoneJobs
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.vfs import OsFileSystem

PATIENCE_S = 30
"""Only a test that fails waits this long."""


class Told:
    """What a store said to be durable."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self._more = threading.Condition()

    def __call__(self, seq: int) -> None:
        """Take note."""
        with self._more:
            self.seqs.append(seq)
            self._more.notify_all()

    def wait_for(self, seq: int) -> None:
        """Wait until a sequence is durable."""
        with self._more:
            assert self._more.wait_for(lambda: seq in self.seqs, PATIENCE_S)


def reap_until(done_jobs: DoneJobs, is_done: Callable[[], bool]) -> None:
    while not is_done():
        assert select.select([done_jobs], [], [], PATIENCE_S)[0]
        done_jobs.reap()


def begun_store(path: Path, done_jobs: DoneJobs, told: Told) -> FileStore:
    """Return a store that has its first block: from now on a commit is a write and a sync."""
    store = FileStore.open(str(path), on_durable=told, done_jobs=done_jobs)
    store.store(b"a", b"", b"first")
    store.flush()
    return store


def test_a_commit_ends_where_done_jobs_are_reaped(tmp_path: Path) -> None:
    done_jobs, told = DoneJobs(), Told()
    store = begun_store(tmp_path / "s", done_jobs, told)
    seq, _ = store.store(b"a", b"", b"second")
    assert select.select([done_jobs], [], [], PATIENCE_S)[0]
    assert told.seqs == [1]
    assert store.durable_seq == 1

    done_jobs.reap()

    assert told.seqs == [1, seq]
    assert store.durable_seq == seq
    store.stop()


def test_what_came_during_a_commit_is_begun_at_its_end(tmp_path: Path) -> None:
    done_jobs, told = DoneJobs(), Told()
    store = begun_store(tmp_path / "s", done_jobs, told)
    for number in range(1000):
        store.store(b"a", b"", b"%d" % number)

    reap_until(done_jobs, lambda: store.durable_seq == 1001)

    assert told.seqs == sorted(told.seqs)
    store.stop()
    with FileStore.open(str(tmp_path / "s"), threaded=False) as again:
        assert again.report.clean
        assert [again.load(seq).payload for seq in (2, 1001)] == [b"0", b"999"]


def test_a_caller_that_flushes_needs_no_reaper(tmp_path: Path) -> None:
    told = Told()
    store = begun_store(tmp_path / "s", DoneJobs(), told)
    for _ in range(100):
        seq, _ = store.store(b"a", b"", b"x")
        assert store.flush() == seq
        assert told.seqs[-1] == seq
    store.stop()


def test_a_batch_may_be_durable_at_once(tmp_path: Path) -> None:
    told = Told()
    store = begun_store(tmp_path / "s", DoneJobs(), told)
    for turn in range(1, 20):
        _, last = store.store_batch([(b"a", b"", b"x")] * 10, durable=True)
        assert store.durable_seq == last == 1 + 10 * turn
        assert told.seqs[-1] == last
    store.stop()


def test_a_store_that_stops_needs_no_reaper(tmp_path: Path) -> None:
    store = begun_store(tmp_path / "s", DoneJobs(), Told())
    store.store(b"a", b"", b"x")
    store.stop()

    with FileStore.open(str(tmp_path / "s"), threaded=False) as again:
        assert again.state().last_seq == 2


def test_a_failure_touches_no_other_store(tmp_path: Path) -> None:
    done_jobs = DoneJobs()
    told = [Told() for _ in range(3)]
    stores = [
        begun_store(tmp_path / str(number), done_jobs, each) for number, each in enumerate(told)
    ]
    block = stores[1].engine.log.active
    assert block is not None
    assert block.active is not None
    block.active.file = OsFileSystem().open("/dev/full", "update")
    for store in stores:
        store.store(b"a", b"", b"x")

    reap_until(
        done_jobs,
        lambda: (
            stores[1].failure is not None and stores[0].durable_seq == stores[2].durable_seq == 2
        ),
    )

    assert [each.seqs for each in told] == [[1, 2], [1], [1, 2]]
    assert "No space left" in (stores[1].failure or "")
    with pytest.raises(StoreReadOnly):
        stores[1].flush()
    for store in stores:
        store.stop()


def test_many_stores_have_no_threads_of_their_own(tmp_path: Path) -> None:
    before = threading.active_count()
    told = [Told() for _ in range(60)]
    stores = [
        FileStore.open(str(tmp_path / str(number)), on_durable=each)
        for number, each in enumerate(told)
    ]
    for turn in range(1, 6):
        for store in stores:
            store.store(b"a", b"", b"x")
        for each in told:
            each.wait_for(turn)

    # One more finishes commits.
    assert threading.active_count() - before <= COMMIT_THREADS_MAX + UPKEEP_THREADS_MAX + 1
    for store in stores:
        store.stop()


def test_at_an_interval_a_sync_comes_without_being_asked_for(tmp_path: Path) -> None:
    synced = threading.Event()

    def on_commit(messages: int, seconds: float) -> None:
        if messages == 0:
            synced.set()

    config = StoreConfig(sync_interval_ns=50_000_000)
    store = FileStore.open(str(tmp_path / "s"), config, on_commit=on_commit)
    store.store(b"a", b"", b"x")

    assert synced.wait(PATIENCE_S)

    assert not store.engine.durability.disk.awaits_sync
    store.stop()


def test_an_interval_may_be_set_later_and_taken_back(tmp_path: Path) -> None:
    told = Told()
    store = FileStore.open(str(tmp_path / "s"), on_durable=told)
    store.update_config(StoreConfig(sync_interval_ns=10**12))
    for _ in range(3):
        seq, _ = store.store(b"a", b"", b"x")
        told.wait_for(seq)
    waited_before = store.engine.durability.disk.awaits_sync

    store.update_config(StoreConfig())
    store.flush()

    assert waited_before
    assert not store.engine.durability.disk.awaits_sync
    store.stop()


def test_a_process_without_descriptors_makes_the_store_read_only_and_hangs_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore.open(str(tmp_path / "s"))
    store.store(b"a", b"", b"first")
    store.flush()

    def no_descriptor_left() -> DoneJobs:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(commit, "reaped_by_thread", no_descriptor_left)
    store.store(b"a", b"", b"second")

    with pytest.raises(StoreReadOnly, match="Too many open files"):
        store.flush()
    assert store.durable_seq == 1
    store.stop()
