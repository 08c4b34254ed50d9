"""Jobs of the threads that write and sync: what they write, what they tell, and who ends them."""

from __future__ import annotations

import errno
import select
import threading
from pathlib import Path

import pytest

from penstock.format.index.block_index import BlockIndex
from penstock.format.subject_table import SubjectTable
from penstock.limits import DISK_THREADS_MAX
from penstock.store.commit.disk_threads import DiskJob, DoneJobs
from penstock.store.log.active_block import ActiveBlock, Chunk
from penstock.store.vfs import File, OsFileSystem

PATIENCE_S = 30
"""Only a test that fails waits this long."""


def chunk_of(data: bytes) -> Chunk:
    """Return bytes as a chunk that belongs at the start of a file: a block's header."""
    block = ActiveBlock(BlockIndex(1, 0, 1, data, SubjectTable()), "", 0)
    chunk = block.take()
    assert chunk is not None
    return chunk


def new_file(path: Path) -> File:
    return OsFileSystem().open(str(path), "create")


class Reaper:
    """Counts the jobs that were finished."""

    def __init__(self) -> None:
        self.done_jobs = DoneJobs()
        self.finished: list[DiskJob] = []

    def job(self, path: Path, data: bytes = b"data") -> DiskJob:
        """Return a job that writes a new file."""
        file = new_file(path)
        return DiskJob(file, chunk_of(data), syncs=True)

    def submit(self, job: DiskJob) -> None:
        """Have a job done."""
        job.submit(self.finished.append, self.done_jobs)

    def reap(self, count: int) -> None:
        """Reap until so many were finished."""
        while len(self.finished) < count:
            assert select.select([self.done_jobs], [], [], PATIENCE_S)[0]
            self.done_jobs.reap()


def test_a_job_writes_its_bytes_and_then_its_mark(tmp_path: Path) -> None:
    reaper = Reaper()
    job = reaper.job(tmp_path / "block", b"x" * 300_000)
    job.mark(new_file(tmp_path / "mark"), 64, b"mark")

    reaper.submit(job)
    reaper.reap(1)

    job.check()
    assert reaper.finished == [job]
    assert job.syncs
    assert job.seconds > 0
    assert (tmp_path / "block").read_bytes() == b"x" * 300_000
    assert (tmp_path / "mark").read_bytes() == bytes(64) + b"mark"


def test_a_job_that_fails_tells_the_error_and_leaves_no_mark(tmp_path: Path) -> None:
    reaper = Reaper()
    full = OsFileSystem().open("/dev/full", "update")
    job = DiskJob(full, chunk_of(b"data"), syncs=True)
    job.mark(new_file(tmp_path / "mark"), 0, b"mark")

    reaper.submit(job)
    reaper.reap(1)

    with pytest.raises(OSError, match="/dev/full") as failed:
        job.check()
    assert failed.value.errno == errno.ENOSPC
    assert (tmp_path / "mark").read_bytes() == b""


def test_a_failure_stays_with_its_job(tmp_path: Path) -> None:
    reaper = Reaper()
    full = OsFileSystem().open("/dev/full", "update")
    bad = DiskJob(full, chunk_of(b"data"), syncs=True)
    good = [reaper.job(tmp_path / str(number)) for number in range(20)]

    for job in [*good[:10], bad, *good[10:]]:
        reaper.submit(job)
    reaper.reap(21)

    for job in good:
        job.check()
    with pytest.raises(OSError, match="No space"):
        bad.check()


def test_many_jobs_at_once_are_each_done_once(tmp_path: Path) -> None:
    reaper = Reaper()
    jobs = [reaper.job(tmp_path / str(number), b"%d" % number) for number in range(300)]

    for job in jobs:
        reaper.submit(job)
    reaper.reap(300)

    assert set(reaper.finished) == set(jobs)
    assert len(reaper.finished) == 300
    assert all((tmp_path / str(number)).read_bytes() == b"%d" % number for number in range(300))
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    assert 1 <= names.count("penstock-disk\n") <= DISK_THREADS_MAX


def test_a_job_may_be_done_without_a_thread(tmp_path: Path) -> None:
    job = Reaper().job(tmp_path / "block")
    job.mark(new_file(tmp_path / "mark"), 0, b"mark")

    job.do()

    job.check()
    assert (tmp_path / "block").read_bytes() == b"data"
    assert (tmp_path / "mark").read_bytes() == b"mark"


def test_a_caller_that_waits_needs_no_reaper(tmp_path: Path) -> None:
    reaper = Reaper()
    jobs = [reaper.job(tmp_path / str(number)) for number in range(100)]

    for job in jobs:
        reaper.submit(job)
    for job in reversed(jobs):
        job.wait()

    for number, job in enumerate(jobs):
        job.check()
        assert (tmp_path / str(number)).read_bytes() == b"data"
    # Those that a thread did are still told; those that were done here are not.
    reaper.done_jobs.reap()
    assert len(reaper.finished) == len(set(reaper.finished)) <= 100


def test_many_may_wait_for_one_job(tmp_path: Path) -> None:
    reaper = Reaper()
    for number in range(50):
        job = reaper.job(tmp_path / str(number))
        waiting = [threading.Thread(target=job.wait, daemon=True) for _ in range(4)]
        for thread in waiting:
            thread.start()
        reaper.submit(job)
        for thread in waiting:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in waiting)
        job.check()
