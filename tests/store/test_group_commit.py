"""Group commit: while one commit is on the disk, those who wait gather for a single next one."""

from __future__ import annotations

import threading

from penstock.store.commit.committer import Batch, Committer
from tests.store.idle_steps import IdleSteps

PATIENCE_S = 20
"""Only a test that fails waits this long."""


class Disk(IdleSteps):
    """What a committer works for: numbered changes, and commits that wait at a gate each."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.changed = 0
        self.taken = 0
        self.durable = 0
        self.made_by: list[threading.Thread] = []
        self.writing = threading.Semaphore(0)
        self.gates = [threading.Event() for _ in range(4)]
        self.committer = Committer(self)

    def take(self) -> Batch | None:
        """Take all changes."""
        with self.lock:
            if self.taken == self.changed:
                return None
            self.taken = self.changed
            return Batch(self.taken, 0, self.taken, None)

    def write(self, batch: Batch) -> None:
        """Wait at the gate."""
        gate = self.gates[len(self.made_by)]
        self.made_by.append(threading.current_thread())
        self.writing.release()
        assert gate.wait(PATIENCE_S)

    def finish(self, batch: Batch) -> None:
        """All of them are durable."""
        self.durable = batch.last_seq

    def start_writer(self) -> threading.Thread:
        """Start a thread that changes something and wants it durable; give it once it waits."""
        with self.lock:
            self.changed += 1
            mine = self.changed
        asked = threading.Event()

        def is_durable() -> bool:
            asked.set()
            return self.durable >= mine

        thread = threading.Thread(
            target=self.committer.commit, kwargs={"unless": is_durable}, daemon=True
        )
        thread.start()
        assert asked.wait(PATIENCE_S)
        return thread


def test_all_who_came_during_a_commit_share_the_next_one() -> None:
    disk = Disk()
    first = disk.start_writer()
    assert disk.writing.acquire(timeout=PATIENCE_S)
    others = [disk.start_writer() for _ in range(8)]

    for gate in disk.gates:
        gate.set()
    for thread in [first, *others]:
        thread.join(PATIENCE_S)

    assert disk.durable == 9
    assert len(disk.made_by) == 2


def test_who_is_served_by_a_commit_does_not_wait_for_the_next() -> None:
    disk = Disk()
    disk.start_writer()
    assert disk.writing.acquire(timeout=PATIENCE_S)
    served = [disk.start_writer() for _ in range(4)]
    disk.gates[0].set()
    assert disk.writing.acquire(timeout=PATIENCE_S)
    late = disk.start_writer()

    disk.gates[1].set()

    # The third commit is on the disk, and stays there.
    assert disk.writing.acquire(timeout=PATIENCE_S)
    for thread in served:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in served)
    assert disk.made_by[2] is late
    disk.gates[2].set()
    late.join(PATIENCE_S)
    assert disk.durable == 6
