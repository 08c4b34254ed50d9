"""Group commit: all that was appended meanwhile goes to the disk in one write and one sync.

While one commit is on the disk the next batch gathers, so throughput grows with load and latency
stays at about one sync. A commit is done by whoever comes first: the committer's thread, woken by
appends, or a caller of `flush`, in its own thread. Only one runs at a time.

What always holds: `finish` runs only after the batch's bytes were written and, with sync "always",
synced, in that order; after a failure nothing is ever written or acknowledged again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

import msgspec

from penstock.store.active_block import ActiveBlock, Chunk


class Batch(msgspec.Struct):
    """What one commit puts on the disk: chunks in order, and what they make durable."""

    last_seq: int
    last_time_ns: int
    ticket: int
    current: ActiveBlock | None
    """The block that is still being written when the batch is taken."""

    chunks: list[tuple[ActiveBlock, Chunk]] = msgspec.field(default_factory=list)


class Committer:
    """Runs commits, one at a time; see the module."""

    def __init__(
        self,
        *,
        take: Callable[[], Batch | None],
        write: Callable[[Batch], None],
        finish: Callable[[Batch], None],
        mark: Callable[[Batch], None],
        fail: Callable[[BaseException], None],
        after: Callable[[], None],
    ) -> None:
        """`take` and `finish` take the store's lock themselves; `write` runs without it.

        `mark` runs after `finish`, when nobody waits for it any more, and before the next commit;
        `after` runs when the next may begin.
        """
        self._after = after
        self._take = take
        self._write = write
        self._finish = finish
        self._mark = mark
        self._fail = fail
        self._turn = threading.Condition()
        self._busy = False
        self._exclusive_claims = 0
        # Its queue is one wake-up long: whoever asks while one is on its way adds none.
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_wanted = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._interval_s: float | None = None

    def set_interval(self, interval_ns: int) -> None:
        """Have the thread look for work at each interval, also where nobody asks; 0 for never."""
        self._interval_s = interval_ns / 1e9 or None

    def start(self, name: str) -> None:
        """Commit in a thread from now on, whenever `wake` asks for it and at each interval."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Ask for a commit soon; does nothing without a thread."""
        if not self._is_wanted:
            self._is_wanted = True
            self._wanted.put(None)

    def commit(self, *, unless: Callable[[], bool] | None = None) -> bool:
        """Commit what is pending in this thread; False where nothing was.

        `unless` is asked when it is our turn: by then another's commit may have done our work, and
        those that wait must not each make one of their own.
        """
        if not self._take_turn(unless):
            return False
        try:
            batch = self._take()
            if batch is None:
                return False
            self._write(batch)
            self._finish(batch)
            self._mark(batch)
        except OSError as error:
            self._fail(error)
            return False
        except BaseException as error:
            # What was taken is neither written nor pending any more: nothing may follow it.
            self._fail(error)
            raise
        finally:
            self._end_turn()
        self._after()
        return True

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let no commit run meanwhile; never under the store's lock.

        Commits stand back for whoever waits for this: a busy stream makes one after the other.
        """
        with self._turn:
            self._exclusive_claims += 1
            while self._busy:
                self._turn.wait()
            self._exclusive_claims -= 1
            self._busy = True
        try:
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        with self._turn:
            self._busy = False
            self._turn.notify_all()

    def _take_turn(self, unless: Callable[[], bool] | None) -> bool:
        # All who wait are woken by each commit's end, and not one after the other: who is served
        # by it goes on at once, and can store again while the next commit is on the disk.
        with self._turn:
            while True:
                if unless is not None and unless():
                    return False
                if not self._busy and not self._exclusive_claims:
                    self._busy = True
                    return True
                self._turn.wait()

    def stop(self) -> None:
        """End the thread after the commit that it is in."""
        self._stopping = True
        self._wanted.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _run(self) -> None:
        while True:
            with contextlib.suppress(queue.Empty):
                self._wanted.get(timeout=self._interval_s)
            if self._stopping:
                return
            self._is_wanted = False
            # The one place where any error ends: it is told as the store's failure by now.
            with contextlib.suppress(Exception):
                while self.commit():
                    pass
