"""The threads that all stores of a process share, so that a stream needs none of its own.

Each kind is started when it is first needed: `COMMITS` for commits that take more than a write and
a sync, `UPKEEP` for background work, `REOPEN` for stores that are looked at again after a failure,
one thread that finishes commits where no event loop does it, and one that wakes stores whose syncs
are due at an interval. They are kept apart, because a job of upkeep waits for commits.

`Background` runs a store's index files, checkpoints and rewriting of sparse blocks in `UPKEEP`, one
job after another. Before `start` a job runs at once in the thread that submits it, which is what
deterministic tests use.

Invariant: a job does all that is due of its kind, and one that is queued is not queued again, so
the queue is never longer than there are kinds. A job that fails is reported to `failed` and the
store goes on: all of this is derived data or can be done again.

Thread: any.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.clock import SystemClock
from penstock.limits import COMMIT_THREADS_MAX, REOPEN_THREADS_MAX, UPKEEP_THREADS_MAX
from penstock.store.commit.disk_threads import DoneJobs

COMMITS = ThreadPoolExecutor(COMMIT_THREADS_MAX, "penstock-commit")
UPKEEP = ThreadPoolExecutor(UPKEEP_THREADS_MAX, "penstock-keep")
REOPEN = ThreadPoolExecutor(REOPEN_THREADS_MAX, "penstock-reopen")


@functools.cache
def reaped_by_thread() -> DoneJobs:
    """Return the jobs that a thread finishes, for stores that no event loop looks after."""
    done_jobs = DoneJobs()

    def reap() -> None:
        while True:
            done_jobs.wait()
            done_jobs.reap()

    threading.Thread(target=reap, name="penstock-finish", daemon=True).start()
    return done_jobs


class AlarmClock:
    """Calls functions at a later time, in a thread of its own."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._changed = threading.Condition()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._is_started = False

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> None:
        """Call `callback`, which raises nothing and is quick, after a time."""
        entry = (self._clock.monotonic_ns() + delay_ns, next(self._numbers), callback)
        with self._changed:
            heapq.heappush(self._due, entry)
            self._changed.notify()
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._run, name="penstock-alarm", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._delay_ns() > 0:
                    self._changed.wait(self._delay_ns() / 1e9 if self._due else None)
                _, _, callback = heapq.heappop(self._due)
            callback()

    def _delay_ns(self) -> int:
        return self._due[0][0] - self._clock.monotonic_ns()


ALARMS = AlarmClock()


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
