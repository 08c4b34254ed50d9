"""The steps of a store's commits: what is taken, how it is written, and what follows from it."""

from typing_extensions import disjoint_base

from penstock.store.committer import Batch
from penstock.store.disk_threads import DiskJob, DoneJobs
from penstock.store.engine import Engine

@disjoint_base
class Commits:
    """The steps of one engine's commits."""

    @property
    def ticket(self) -> int:
        """Of the batch that was taken last; under the store's lock."""
        ...

    @property
    def durable_ticket(self) -> int:
        """Of the batch that has become durable last."""
        ...

    def __init__(self, engine: Engine) -> None: ...
    def next_ticket(self) -> int:
        """Give the ticket of the batch that has all that is pending now; under the lock."""
        ...

    def take(self) -> Batch | None:
        """Gather all that is pending: removals as tombstones, then the bytes of each block."""
        ...

    def done_jobs(self) -> DoneJobs:
        """Give where jobs are left that nobody waits for."""
        ...

    def job(self, batch: Batch) -> DiskJob | None:
        """Give a batch as a job of the disk's, where it is a simple one."""
        ...

    def write(self, batch: Batch) -> None:
        """Write and sync a batch; runs without the lock."""
        ...

    def written(self, batch: Batch, job: DiskJob) -> None:
        """Take note of the end of a batch's job."""
        ...

    def finish(self, batch: Batch) -> None:
        """Release what a batch made durable."""
        ...

    def mark(self, batch: Batch) -> None:
        """Note in the high-water mark how far a batch goes."""
        ...

    def after(self) -> None:
        """Hand out the background work that a commit has made due."""
        ...

    def fail(self, error: BaseException) -> None:
        """Refuse writes from now on."""
        ...
