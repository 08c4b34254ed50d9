"""Group commit: all that was appended meanwhile goes to the disk in one write and one sync."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from typing_extensions import disjoint_base

from penstock.store.commit.disk_threads import DiskJob, DoneJobs
from penstock.store.log.active_block import ActiveBlock, Chunk

@disjoint_base
class Batch:
    """What one commit puts on the disk: chunks in order, and what they make durable."""

    @property
    def last_seq(self) -> int:
        """The last sequence that it makes durable."""
        ...

    @property
    def last_time_ns(self) -> int:
        """When that was stored."""
        ...

    @property
    def ticket(self) -> int:
        """Its number among the batches of the store."""
        ...

    @property
    def current(self) -> ActiveBlock | None:
        """The block that is still being written when the batch is taken."""
        ...

    @property
    def chunks(self) -> list[tuple[ActiveBlock, Chunk]]:
        """The bytes, each with its block."""
        ...

    @property
    def roomy(self) -> list[ActiveBlock]:
        """Blocks that are full, whose room is cut off before a later block is written to."""
        ...

    def __init__(
        self, last_seq: int, last_time_ns: int, ticket: int, current: ActiveBlock | None
    ) -> None: ...

class _CommitSteps(Protocol):
    """The steps, in the order in which a commit does them; `take` and `finish` lock the store."""

    def take(self) -> Batch | None:
        """Gather what is pending."""
        ...

    def done_jobs(self) -> DoneJobs:
        """Return the list in which finished jobs wait to be reaped."""
        ...

    def job(self, batch: Batch) -> DiskJob | None:
        """Return a batch as a job, its mark included, or None if it takes more than one job."""
        ...

    def write(self, batch: Batch) -> None:
        """Write and sync a batch for which there is no job; raises OSError."""
        ...

    def written(self, batch: Batch, job: DiskJob) -> None:
        """Take note of a batch whose job is done; raise OSError if it has failed."""
        ...

    def finish(self, batch: Batch) -> None:
        """Report what a batch has made durable."""
        ...

    def mark(self, batch: Batch) -> None:
        """Write the mark of a batch that had no job, after its durability was reported."""
        ...

    def after(self) -> None:
        """Hand out what is due, when the next commit may begin."""
        ...

    def fail(self, error: BaseException) -> None:
        """Refuse writes from now on."""
        ...

@disjoint_base
class Committer:
    """Runs commits, one at a time."""

    @property
    def exclusive_claims(self) -> int:
        """How many wait for a time without commits."""
        ...

    def __init__(self, steps: _CommitSteps) -> None: ...
    def set_interval(self, interval_ns: int) -> None:
        """Look for work at each interval without being woken; 0 for never."""
        ...

    def start(self) -> None:
        """Commit from now on whenever `wake` asks for it, and at each interval."""
        ...

    def stop(self) -> None:
        """Begin no more commits; one may be under way."""
        ...

    def wake(self) -> None:
        """Begin a commit, or have one begun after that which is under way."""
        ...

    def commit(self, *, unless: Callable[[], bool] | None = None) -> bool:
        """Commit what is pending in this thread; False where nothing was."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Let no commit run within a `with`; never under the store's lock."""
        ...

    def on_done(self, job: DiskJob) -> None:
        """Finish the commit whose job is done, unless another thread has done so."""
        ...
