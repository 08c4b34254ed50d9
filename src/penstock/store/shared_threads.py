"""The threads that all stores of a process share, so that a stream costs none of its own.

Each kind is started when it is first needed: `COMMITS` for commits that take more than a write and
a sync, `UPKEEP` for what nobody waits for, one that finishes commits where no event loop does it,
and one that wakes stores whose syncs are due at an interval. They are kept apart, because a job of
upkeep waits for commits.

Any thread.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.clock import SystemClock
from penstock.limits import COMMIT_THREADS_MAX, UPKEEP_THREADS_MAX
from penstock.store.disk_threads import DoneJobs

COMMITS = ThreadPoolExecutor(COMMIT_THREADS_MAX, "penstock-commit")
UPKEEP = ThreadPoolExecutor(UPKEEP_THREADS_MAX, "penstock-keep")


@functools.cache
def reaped_by_thread() -> DoneJobs:
    """Give the jobs that a thread finishes, for stores that no event loop looks after."""
    done_jobs = DoneJobs()

    def reap() -> None:
        while True:
            done_jobs.wait()
            done_jobs.reap()

    threading.Thread(target=reap, name="penstock-finish", daemon=True).start()
    return done_jobs


class AlarmClock:
    """Calls somebody at a later time, in a thread of its own."""

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
