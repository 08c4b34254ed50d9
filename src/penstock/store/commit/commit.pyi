"""What one commit does: taking what is pending, writing it, syncing it, and what follows."""

from collections.abc import Callable

from typing_extensions import disjoint_base

from penstock.clock import Clock
from penstock.store.commit.committer import Batch
from penstock.store.commit.disk_threads import DiskJob, DoneJobs
from penstock.store.interface import CommitCallback, DurableCallback
from penstock.store.log.active_block import ActiveBlock
from penstock.store.log.log import Log
from penstock.store.vfs import File, FileSystem

@disjoint_base
class Commits:
    """The steps of one store's commits."""

    on_durable: DurableCallback | None

    @property
    def ticket(self) -> int:
        """Of the batch that was taken last; under the store's lock."""
        ...

    @property
    def durable_ticket(self) -> int:
        """Of the batch that has become durable last."""
        ...

    @property
    def durable_seq(self) -> int:
        """All messages up to here are on stable storage."""
        ...

    def __init__(
        self,
        log: Log,
        disk: DiskWriter,
        *,
        on_durable: DurableCallback | None,
        on_commit: CommitCallback | None,
        on_due: Callable[[bool, bool], None],
        done_jobs: DoneJobs | None,
    ) -> None:
        """Call `on_due` after each commit: whether indexes can be written, and space given back."""
        ...

    def next_ticket(self) -> int:
        """Return the ticket of the batch with all that is pending now; under the lock."""
        ...

    def take(self) -> Batch | None:
        """Gather all that is pending: removals as tombstones, then the bytes of each block."""
        ...

    def done_jobs(self) -> DoneJobs:
        """Return the list in which finished jobs wait to be reaped."""
        ...

    def job(self, batch: Batch) -> DiskJob | None:
        """Return a batch as a job of the disk threads, or None if it takes more than one job."""
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

    def tell_volatile(self) -> None:
        """Report all that is stored in memory as durable."""
        ...

    def go_on_after(self, seq: int) -> None:
        """Take everything up to a sequence for durable, and nothing above; under the lock."""
        ...

    def after(self) -> None:
        """Find out what background work a commit has made due, and report it."""
        ...

    def fail(self, error: BaseException) -> None:
        """Refuse writes from now on."""
        ...

@disjoint_base
class DiskWriter:
    """Writes and syncs the blocks of one store."""

    def __init__(
        self,
        files: FileSystem,
        folder: str,
        high_water: HighWaterMark,
        clock: Clock,
        *,
        is_volatile: bool,
    ) -> None: ...
    def want_sync(self, ticket: int) -> None:
        """Have the batch of a ticket synced whatever the interval; under the store's lock."""
        ...

    def nothing_waits(self) -> None:
        """Note that nothing is left to be synced; under the store's lock."""
        ...

    @property
    def awaits_sync(self) -> bool:
        """Whether something that is written waits for its sync."""
        ...

    def holds(self, active: ActiveBlock) -> bool:
        """Return True if a block's file is still needed for its sync; any thread."""
        ...

    def sync_is_due(self, ticket: int, interval_ns: int) -> bool:
        """Return True if something has waited for its sync long enough."""
        ...

    def forget(self, active: ActiveBlock | None = None) -> None:
        """Sync a block no more, or none of them: its file is about to be removed."""
        ...

    def write(self, batch: Batch, interval_ns: int) -> None:
        """Write a batch and sync what is to be synced; raise OSError on failure."""
        ...

    def cut_room(self, active: ActiveBlock) -> None:
        """Cut off the room behind a block, durably; raise OSError on failure."""
        ...

    def job(self, batch: Batch, interval_ns: int, salt: int, *, block_bytes: int) -> DiskJob | None:
        """Return what `write` and `mark` would do as a job, or None if it takes more than that."""
        ...

    def written(self, batch: Batch, job: DiskJob) -> None:
        """Take note of a batch whose job is done; raise OSError if it has failed."""
        ...

    def mark(self, batch: Batch, salt: int) -> None:
        """Write the high-water mark of a batch that was written; raise OSError on failure."""
        ...

@disjoint_base
class HighWaterMark:
    """The mark of one stream."""

    def __init__(self, files: FileSystem, path: str) -> None: ...
    @property
    def turn(self) -> int:
        """How many marks were written, over all openings."""
        ...

    @property
    def place(self) -> tuple[int, int]:
        """The block that was written to last, and how many of its bytes are durable."""
        ...

    @property
    def file(self) -> File | None:
        """The file, once a mark was written or synced."""
        ...

    def go_on_after(self, turn: int) -> None:
        """Take turns after the mark that was found."""
        ...

    def stand_at(self, number: int, size: int) -> None:
        """Note up to where which block is durable, for the next mark."""
        ...

    def next_slot(
        self, last_seq: int, last_time_ns: int, salt: int, place: tuple[int, int]
    ) -> tuple[int, bytes]:
        """Return the offset in the file and the bytes of the next mark, which the caller writes."""
        ...

    def write(self, last_seq: int, last_time_ns: int, salt: int) -> None:
        """Write what is durable; the system syncs it in its own time."""
        ...

    def sync(self) -> None:
        """Put the mark on stable storage, also one that was written before the store was opened."""
        ...

    def close(self) -> None:
        """Close the file; the next mark opens it again."""
        ...
