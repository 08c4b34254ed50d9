"""Putting a batch on the disk: written in order, and synced now or at the interval.

What always holds: with no interval, every byte of a batch is on stable storage when `write`
returns; with one, only the block that is being written ever waits for its sync, and whoever flushes
does not wait for the interval. Nothing is tried again after a failure.

One commit at a time, without the store's lock, but for what says otherwise.
"""

from __future__ import annotations

from penstock.clock import Clock
from penstock.store.active_block import ActiveBlock
from penstock.store.committer import Batch
from penstock.store.disk_threads import DiskJob
from penstock.store.high_water import HighWaterMark
from penstock.store.vfs import FileSystem, write_all


class DiskWriter:
    """Writes and syncs the blocks of one store; see the module."""

    def __init__(
        self,
        files: FileSystem,
        folder: str,
        high_water: HighWaterMark,
        clock: Clock,
        *,
        volatile: bool,
    ) -> None:
        self._files = files
        self._folder = folder
        self._high_water = high_water
        self._clock = clock
        self._volatile = volatile
        self._synced_ns = clock.monotonic_ns()
        self._unsynced: list[ActiveBlock] = []
        self._sync_ticket = 0
        """A batch with this ticket or a later one is synced whatever the interval; 0 for none."""

    def want_sync(self, ticket: int) -> None:
        """Have the batch of a ticket synced whatever the interval; under the store's lock."""
        self._sync_ticket = ticket

    def nothing_waits(self) -> None:
        """Note that nothing was left to be synced for those who wanted it; under the lock."""
        self._sync_ticket = 0

    @property
    def awaits_sync(self) -> bool:
        """Whether something that is written waits for its sync."""
        return bool(self._unsynced)

    def holds(self, active: ActiveBlock) -> bool:
        """Tell whether a block's file is still needed, for its sync; any thread."""
        return active in self._unsynced

    def sync_is_due(self, ticket: int, interval_ns: int) -> bool:
        """Tell whether something waits for its sync no longer."""
        return bool(
            self._unsynced
            and (
                0 < self._sync_ticket <= ticket
                or not interval_ns
                or self._clock.monotonic_ns() - self._synced_ns >= interval_ns
            )
        )

    def forget(self, active: ActiveBlock | None = None) -> None:
        """Let a block's bytes wait for no sync, or those of all: they are about to be removed."""
        if active is None:
            self._unsynced.clear()
        elif active in self._unsynced:
            self._unsynced.remove(active)

    def write(self, batch: Batch, interval_ns: int) -> None:
        """Write a batch and sync what is to be synced; raises OSError."""
        created = False
        for active, chunk in batch.chunks:
            if active.file is None:
                active.file = self._files.open(active.path, "create")
                created = True
            write_all(active.file, chunk.start, memoryview(chunk))
            self._high_water.place = (active.number, chunk.start + len(chunk))
            if self._volatile:
                continue
            if interval_ns:
                if active not in self._unsynced:
                    self._unsynced.append(active)
            else:
                active.file.sync_data()
        if created:
            self._files.sync_dir(self._folder)
        self._sync_waiting(batch, interval_ns)

    def job(self, batch: Batch, interval_ns: int, salt: int) -> DiskJob | None:
        """Give what `write` and `mark` would do as a job; None where it takes more than one file.

        `written` is to be told of its end.
        """
        if len(batch.chunks) != 1 or self._volatile:
            return None
        active, chunk = batch.chunks[0]
        file, mark_file = active.file, self._high_water.file
        if file is None or mark_file is None or file.fileno() < 0:
            return None
        syncs = True
        if interval_ns or self._unsynced:
            if self._unsynced != [active] or active is not batch.current:
                return None
            syncs = self.sync_is_due(batch.ticket, interval_ns)
        job = DiskJob(file, chunk, syncs=syncs)
        place = (active.number, chunk.start + len(chunk))
        job.mark(
            mark_file, *self._high_water.next_slot(batch.last_seq, batch.last_time_ns, salt, place)
        )
        return job

    def written(self, batch: Batch, job: DiskJob) -> None:
        """Take note of a batch whose job is done; raises OSError where that has failed."""
        job.check()
        active, chunk = batch.chunks[0]
        self._high_water.place = (active.number, chunk.start + len(chunk))
        if job.syncs and self._unsynced:
            self._unsynced.clear()
            self._note_sync(batch)

    def mark(self, batch: Batch, salt: int) -> None:
        """Note how far a batch goes that was written; raises OSError."""
        if not self._volatile:
            self._high_water.write(batch.last_seq, batch.last_time_ns, salt)

    def _sync_waiting(self, batch: Batch, interval_ns: int) -> None:
        due = self.sync_is_due(batch.ticket, interval_ns)
        for active in list(self._unsynced):
            # A sealed block is synced at once, so that only one ever waits for the interval.
            if due or active is not batch.current:
                assert active.file is not None, "only what was written waits for a sync"
                active.file.sync_data()
                self._unsynced.remove(active)
        if due:
            self._note_sync(batch)

    def _note_sync(self, batch: Batch) -> None:
        self._synced_ns = self._clock.monotonic_ns()
        if self._sync_ticket <= batch.ticket:
            self._sync_ticket = 0
