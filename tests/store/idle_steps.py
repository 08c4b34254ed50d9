"""Steps of a commit that do nothing, for tests that mean some of them."""

from __future__ import annotations

from penstock.store.commit.committer import Batch
from penstock.store.commit.disk_threads import DiskJob, DoneJobs


class IdleSteps:
    """There is never anything to commit; errors are kept."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def take(self) -> Batch | None:
        """Find nothing."""
        return None

    def done_jobs(self) -> DoneJobs:
        """Return some that are never reaped."""
        return DoneJobs()

    def job(self, batch: Batch) -> DiskJob | None:
        """Leave it to `write`."""
        return None

    def write(self, batch: Batch) -> None:
        """Write nothing."""

    def written(self, batch: Batch, job: DiskJob) -> None:
        """Look whether the job has failed."""
        job.check()

    def finish(self, batch: Batch) -> None:
        """Report nothing."""

    def mark(self, batch: Batch) -> None:
        """Mark nothing."""

    def after(self) -> None:
        """Hand out nothing."""

    def fail(self, error: BaseException) -> None:
        """Keep the error."""
        self.errors.append(error)
