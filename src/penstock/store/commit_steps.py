"""What a commit is made of: the steps that a store does for its committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.store.committer import Batch
    from penstock.store.disk_threads import DiskJob, DoneJobs


class CommitSteps(Protocol):
    """The steps, in the order in which a commit does them; `take` and `finish` lock the store."""

    def take(self) -> Batch | None:
        """Gather what is pending."""
        ...

    def done_jobs(self) -> DoneJobs:
        """Give where jobs are left that nobody waits for."""
        ...

    def job(self, batch: Batch) -> DiskJob | None:
        """Give a batch as a job, its mark included; None where it is more than a job."""
        ...

    def write(self, batch: Batch) -> None:
        """Write and sync a batch for which there is no job; raises OSError."""
        ...

    def written(self, batch: Batch, job: DiskJob) -> None:
        """Take note of a batch whose job is done; raises OSError where that has failed."""
        ...

    def finish(self, batch: Batch) -> None:
        """Tell what a batch has made durable."""
        ...

    def mark(self, batch: Batch) -> None:
        """Note how far a batch goes that had no job, when nobody waits for it any more."""
        ...

    def after(self) -> None:
        """Hand out what is due, when the next commit may begin."""
        ...

    def fail(self, error: BaseException) -> None:
        """Refuse writes from now on."""
        ...
