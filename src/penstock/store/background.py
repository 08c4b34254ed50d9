"""Work that nobody waits for: index files, checkpoints, rewriting of sparse blocks.

A job does all that is due of its kind, so one that is queued already is not queued again: the queue
is never longer than there are kinds. One thread takes jobs in order; without a thread they run at
once, where they are handed in, which is what deterministic tests use. A job that fails is told to
`failed`; the store goes on, because all of this is derived data or can be done again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]

_LOOK_AGAIN_SECONDS = 0.1
"""How often whoever waits for the jobs looks whether there is still a thread to do them."""


class Background:
    """Runs jobs one after another; see the module."""

    def __init__(self, *, name: str, failed: Callable[[Exception], None]) -> None:
        self._name = name
        self._failed = failed
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._queued: set[Job] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run jobs in a thread from now on."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Run a job soon, or now where there is no thread."""
        if self._thread is None:
            self._do(job)
        elif job not in self._queued:
            self._queued.add(job)
            self._jobs.put(job)

    def drain(self) -> None:
        """Wait until every job handed in so far is done."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        done = threading.Event()
        self._jobs.put(done.set)
        # Somebody may stop the thread before it comes to this job.
        while not done.wait(_LOOK_AGAIN_SECONDS) and thread.is_alive():
            pass

    def stop(self) -> None:
        """Finish what was handed in, then end the thread."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._jobs.put(None)
            self._thread.join()
        self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._queued.discard(job)
            self._do(job)

    def _do(self, job: Job) -> None:
        # The one place where any error ends: a job's failure must not end the thread.
        try:
            job()
        except Exception as error:  # noqa: BLE001
            self._failed(error)
