"""Work that nobody waits for: index files, checkpoints, rewriting of sparse blocks.

A job does all that is due of its kind, so one that is queued already is not queued again: the queue
is never longer than there are kinds. Jobs of one store run one after another, in threads that all
stores share; before `start` they run at once, where they are handed in, which is what deterministic
tests use. A job that fails is told to `failed`; the store goes on, because all of this is derived
data or can be done again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from penstock.store.shared_threads import UPKEEP

Job = Callable[[], None]


class Background:
    """Runs jobs one after another; see the module."""

    def __init__(self, *, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_started = False
        self._handed_in = 0
        self._done = 0
        self._runner: int | None = None
        """The thread that runs jobs, 0 while it is still to begin, None where there is none."""

    def start(self) -> None:
        """Run jobs in a thread from now on."""
        self._is_started = True

    def submit(self, job: Job) -> None:
        """Run a job soon, or now where there are no threads."""
        if not self._is_started:
            self._do(job)
            return
        with self._changed:
            if job in self._jobs:
                return
            self._jobs.append(job)
            self._handed_in += 1
            if self._runner is not None:
                return
            self._runner = 0
        UPKEEP.submit(self._run)

    def drain(self) -> None:
        """Wait until every job handed in so far is done; a job itself does not wait."""
        with self._changed:
            if self._runner == threading.get_ident():
                return
            wanted = self._handed_in
            while self._done < wanted:
                self._changed.wait()

    def stop(self) -> None:
        """Finish what was handed in, and run what comes later at once."""
        self.drain()
        self._is_started = False

    def _run(self) -> None:
        self._runner = threading.get_ident()
        while True:
            with self._changed:
                if not self._jobs:
                    self._runner = None
                    return
                job = self._jobs.popleft()
            self._do(job)
            with self._changed:
                self._done += 1
                self._changed.notify_all()

    def _do(self, job: Job) -> None:
        # The one place where any error ends: a job's failure must not end the thread.
        try:
            job()
        except Exception as error:  # noqa: BLE001
            self._failed(error)
