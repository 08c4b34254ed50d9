"""Threads that meet at one committer or at one file in memory, each alone."""

from __future__ import annotations

import sys
import threading

from penstock.store.commit.committer import Batch, Committer
from penstock.store.memstore import RamFileSystem
from tests.store.idle_steps import IdleSteps


def test_commits_give_way_to_an_exclusive_caller() -> None:
    order: list[str] = []
    is_writing, may_end = threading.Event(), threading.Event()

    class Steps(IdleSteps):
        """There is always something to commit."""

        def take(self) -> Batch | None:
            return Batch(1, 1, 1, None)

        def write(self, batch: Batch) -> None:
            order.append("commit")
            is_writing.set()
            may_end.wait()

    committer = Committer(Steps())

    def commit_on() -> None:
        for _ in range(5):
            committer.commit()

    def wait_for_quiet() -> None:
        with committer.exclusive():
            order.append("quiet")

    busy = threading.Thread(target=commit_on)
    busy.start()
    is_writing.wait()
    waiting = threading.Thread(target=wait_for_quiet)
    waiting.start()
    while not committer.exclusive_claims:
        pass
    may_end.set()
    for thread in (busy, waiting):
        thread.join()
    assert order == ["commit", "quiet", "commit", "commit", "commit", "commit"]


def test_a_file_in_memory_grows_while_it_is_read() -> None:
    files = RamFileSystem()
    file = files.open("/a", "create")
    file.write_at(0, b"x" * 1000)
    done = threading.Event()
    read: list[int] = []

    def read_on() -> None:
        while not done.is_set():
            read.append(len(file.read_at(0, 1000)))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        for place in range(20_000):
            file.write_at(1000 + place, b"y")
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(before)
    assert file.size() == 21_000
    assert set(read) <= {1000}
