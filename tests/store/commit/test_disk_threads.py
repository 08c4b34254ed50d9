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
from penstock.testing.faults import FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem

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


def writing(file: File, data: bytes) -> DiskJob:
    job = DiskJob(syncs=True)
    job.write(file, chunk_of(data))
    return job


class Reaper:
    """Counts the jobs that were finished."""

    def __init__(self) -> None:
        self.done_jobs = DoneJobs()
        self.finished: list[DiskJob] = []

    def job(self, path: Path, data: bytes = b"data") -> DiskJob:
        """Return a job that writes a new file."""
        return writing(new_file(path), data)

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
    job = writing(full, b"data")
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
    bad = writing(full, b"data")
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


def test_a_job_makes_the_next_file_after_what_comes_before_it_is_synced() -> None:
    files = FaultyFileSystem(MemoryFileSystem())
    files.make_dirs("/data")
    old, mark = files.open("/data/1", "create"), files.open("/data/mark", "create")
    files.audit.clear()
    job = DiskJob(syncs=True)
    job.write(old, chunk_of(b"the end of one"))
    job.create(files.root, "/data/2", chunk_of(b"a whole one"))
    job.create(files.root, "/data/3", chunk_of(b"the start of one"))
    job.mark(mark, 0, b"mark")

    job.do()

    job.check()
    assert [(call.operation, call.path) for call in files.audit] == [
        (Operation.WRITE, "/data/1"),
        (Operation.SYNC, "/data/1"),
        (Operation.OPEN, "/data/2"),
        (Operation.WRITE, "/data/2"),
        (Operation.SYNC, "/data/2"),
        (Operation.OPEN, "/data/3"),
        (Operation.WRITE, "/data/3"),
        (Operation.SYNC, "/data/3"),
        (Operation.SYNC_DIR, "/data"),
        (Operation.WRITE, "/data/mark"),
    ]
    first, *made = job.created()
    assert first is None
    assert [file.read_at(0, 99) for file in made if file] == [b"a whole one", b"the start of one"]


def test_a_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "2").write_bytes(b"another's")
    job = Reaper().job(tmp_path / "1")
    job.create(OsFileSystem.root, str(tmp_path / "2"), chunk_of(b"data"))
    job.mark(new_file(tmp_path / "mark"), 0, b"mark")

    job.do()

    with pytest.raises(FileExistsError) as failed:
        job.check()
    assert failed.value.filename == str(tmp_path / "2")
    assert job.created() == [None, None]
    assert (tmp_path / "1").read_bytes() == b"data"
    assert (tmp_path / "2").read_bytes() == b"another's"
    assert (tmp_path / "mark").read_bytes() == b""


def test_files_that_a_job_has_made_are_the_callers(tmp_path: Path) -> None:
    job = Reaper().job(tmp_path / "1")
    job.create(OsFileSystem.root, str(tmp_path / "2"), chunk_of(b"data"))

    job.do()

    job.check()
    _, made = job.created()
    assert made is not None
    assert made.path == str(tmp_path / "2")
    assert (tmp_path / "2").stat().st_mode & 0o777 == 0o600
    assert made.write_at(4, b" more") == 5
    made.close()
    assert (tmp_path / "2").read_bytes() == b"data more"
