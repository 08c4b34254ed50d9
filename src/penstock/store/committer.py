"""Group commit: all that was appended meanwhile goes to the disk in one write and one sync.

While one commit is on the disk the next batch gathers, so throughput grows with load and latency
stays at about one sync. A commit is done by whoever comes first: the committer's thread, woken by
appends, or a caller of `flush`, in its own thread. Only one runs at a time.

What always holds: `finish` runs only after the batch's bytes were written and, with sync "always",
synced, in that order; after a failure nothing is ever written or acknowledged again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.store.active_block import ActiveBlock, Chunk


@dataclass(slots=True)
class Batch:
    """What one commit puts on the disk: chunks in order, and what they make durable."""

    last_seq: int
    last_time_ns: int
    ticket: int
    current: ActiveBlock | None
    """The block that is still being written when the batch is taken."""

    chunks: list[tuple[ActiveBlock, Chunk]] = field(default_factory=list)


class Committer:
    """Runs commits, one at a time; see the module."""

    def __init__(
        self,
        *,
        take: Callable[[], Batch | None],
        write: Callable[[Batch], None],
        finish: Callable[[Batch], None],
        fail: Callable[[OSError], None],
        after: Callable[[], None],
    ) -> None:
        """`take` and `finish` take the store's lock themselves; `write` runs without it.

        `after` runs when the commit is over and the next may begin.
        """
        self._after = after
        self._take = take
        self._write = write
        self._finish = finish
        self._fail = fail
        self._one_at_a_time = threading.Lock()
        self._wanted = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._interval_s: float | None = None

    def start(self, name: str, interval_s: float | None = None) -> None:
        """Commit in a thread from now on, whenever `wake` asks for it and at each interval."""
        self._interval_s = interval_s
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Ask for a commit soon; does nothing without a thread."""
        if not self._wanted.is_set():
            self._wanted.set()

    def commit(self) -> bool:
        """Commit what is pending in this thread; False where nothing was."""
        with self._one_at_a_time:
            batch = self._take()
            if batch is None:
                return False
            try:
                self._write(batch)
            except OSError as error:
                self._fail(error)
                return False
            self._finish(batch)
        self._after()
        return True

    def stop(self) -> None:
        """End the thread after the commit that it is in."""
        self._stopping = True
        self._wanted.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _run(self) -> None:
        while True:
            self._wanted.wait(self._interval_s)
            if self._stopping:
                return
            self._wanted.clear()
            while self.commit():
                pass
