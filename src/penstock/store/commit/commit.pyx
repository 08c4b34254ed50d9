"""What one commit does: taking what is pending, writing and syncing it, and what follows from it.

A commit takes all that is pending (`Commits`): removals as tombstones, then the bytes of each
block. They are written in order and synced now or at the interval (`DiskWriter`). Once they are on
stable storage the commit reports what has become durable, notes that in the file `high.water`
(`HighWaterMark`), and reports the background work that is due by then. The `Committer` calls the
steps, one commit at a time.

Invariant: a removal is written in the same commit as what was appended with it; nothing is reported
durable before it is. With no interval every byte of a batch is on stable storage when `write`
returns; with one, only the block that is being written ever waits for its sync, and `flush` does
not wait for the interval. Nothing is retried after a failure.

A sync of a file that has grown makes the file system write what describes the file, too, which
takes half as long again. So a small commit that lengthens a file leaves room behind it: zeros, into
which the next ones write. Invariant of the room: only the block that is being written has any. That
of a full block is cut off, durably, before anything is written to a later one, and at a stop.

Invariant of the mark: it is written after the sync of what it vouches for, in two slots by turns,
so that one is always whole. It guards against damage, not against a power cut: after one it may
vouch for less than is durable. It is synced before anything relies on it.

Thread: any, one commit at a time, without the store's lock except where a method says otherwise.
"""

from libc.stdint cimport int64_t, uint64_t

from penstock.store.log.active_block cimport ActiveBlock, Chunk
from penstock.store.log.block cimport Block
from penstock.store.commit.committer cimport Batch
from penstock.store.commit.disk_threads cimport PARTS_MAX, DiskJob
from penstock.store.log.ledger cimport Ledger

from penstock.format.state.checkpoint import HIGH_WATER_SLOT_BYTES, HighWater, encode_high_water
from penstock.limits import ROOM_BYTES_MAX, TOMBSTONE_RANGES_MAX
from penstock.store.threads import reaped_by_thread
from penstock.store.vfs import write_all

cdef uint64_t ROOM_MAX = ROOM_BYTES_MAX

cdef enum:
    # What file systems give to a file at once.
    PAGE_BYTES = 4096
    # Room is made where at least so many commits of the same size find it.
    ROOM_COMMITS_MIN = 8


cdef class Commits:
    """The steps of one store's commits; see the module."""

    cdef object log
    cdef object settings
    cdef object lock
    cdef DiskWriter disk
    # Called when more has become durable, after each commit, and with the work that one made due.
    cdef public object on_durable
    cdef object on_commit
    cdef object on_due
    cdef object jobs_done
    # Of the batch that was taken last; under the store's lock.
    cdef readonly uint64_t ticket
    cdef readonly uint64_t durable_ticket
    # All messages up to here are on stable storage.
    cdef readonly uint64_t durable_seq

    def __init__(self, log not None, DiskWriter disk not None, *, on_durable, on_commit, on_due,
                 done_jobs):
        self.log = log
        self.settings = log.settings
        self.lock = log.lock
        self.disk = disk
        self.on_durable = on_durable
        self.on_commit = on_commit
        self.on_due = on_due
        self.jobs_done = done_jobs

    def take(self):
        """Gather all that is pending: removals as tombstones, then the bytes of each block."""
        cdef Ledger ledger
        cdef Block block
        cdef Batch batch
        cdef ActiveBlock active
        cdef Chunk chunk
        log = self.log
        with self.lock:
            if log.health.failure is not None:
                return None
            ledger = log.ledger
            if ledger.removed:
                self._write_tombstones(ledger)
            self.ticket += 1
            block = log.active
            batch = Batch(
                ledger.last_seq, ledger.last_time_ns, self.ticket,
                None if block is None else block.active,
            )
            for active in log.unwritten:
                chunk = active.take()
                if chunk is not None:
                    batch.chunks.append((active, chunk))
                if active.has_room and active is not batch.current:
                    batch.roomy.append(active)
            if batch.chunks or batch.roomy or self.disk.sync_is_due(
                self.ticket, self.settings.config.sync_interval_ns
            ):
                return batch
            self.durable_ticket = self.ticket
            self.disk.nothing_waits()
            return None

    def _write_tombstones(self, Ledger ledger):
        cdef Block block
        log = self.log
        for part in ledger.take_removed().parts(TOMBSTONE_RANGES_MAX):
            block = log.room_for(64, ledger.last_seq + 1)
            block.active.append_tombstone(part, ledger.last_seq, log.now_ns())
            block.follow(block.active.index)

    def next_ticket(self):
        """Return the ticket of the batch with all that is pending now; under the lock."""
        cdef ActiveBlock active
        log = self.log
        block = log.active
        current = None if block is None else block.active
        if log.ledger.removed or self.disk.awaits_sync or self.settings.config.sync_interval_ns:
            return self.ticket + 1
        for active in log.unwritten:
            if active.bytes != active.pending_at or (active.has_room and active is not current):
                return self.ticket + 1
        # The last one has it, be it durable or on its way.
        return self.ticket

    def done_jobs(self):
        """Return the list in which finished jobs wait to be reaped."""
        return self.jobs_done or reaped_by_thread()

    def job(self, Batch batch not None):
        """Return a batch as a job of the disk threads, or None if it takes more than one job."""
        config = self.settings.config
        return self.disk.job(
            batch, config.sync_interval_ns, self.log.salt, block_bytes=config.block_bytes
        )

    def write(self, Batch batch not None):
        """Write and sync a batch; runs without the lock."""
        started_ns = self.settings.clock.monotonic_ns()
        self.disk.write(batch, self.settings.config.sync_interval_ns)
        self._tell(batch, (self.settings.clock.monotonic_ns() - started_ns) / 1e9)

    def written(self, Batch batch not None, DiskJob job not None):
        """Take note of the end of a batch's job; as `write`, which it stands for."""
        self.disk.written(batch, job)
        self._tell(batch, job.seconds)

    def _tell(self, Batch batch, double seconds):
        cdef uint64_t durable_seq
        on_commit = self.on_commit
        if on_commit is not None:
            durable_seq = self.durable_seq
            on_commit(batch.last_seq - durable_seq if batch.last_seq > durable_seq else 0, seconds)

    def mark(self, Batch batch not None):
        """Note in the high-water mark how far a batch goes."""
        self.disk.mark(batch, self.log.salt)

    def finish(self, Batch batch not None):
        """Release what a batch made durable."""
        cdef ActiveBlock active
        with self.lock:
            for active, _ in batch.chunks:
                active.written()
            self.durable_ticket = batch.ticket
            self.log.forget_written()
            if not self.settings.is_volatile:
                self.durable_seq = batch.last_seq
        if self.settings.is_volatile:
            self.tell_volatile()
        elif self.on_durable is not None:
            self.on_durable(batch.last_seq)

    def tell_volatile(self):
        """Report all that is stored in memory as durable."""
        cdef Ledger ledger
        with self.lock:
            # Under the lock, so that the sequence that is told never goes back.
            ledger = self.log.ledger
            self.durable_seq = ledger.last_seq
            if self.on_durable is not None:
                self.on_durable(self.durable_seq)

    def go_on_after(self, uint64_t seq):
        """Take everything up to a sequence for durable, and nothing above; under the lock."""
        self.durable_seq = seq

    def after(self):
        """Find out what background work a commit has made due, and report it."""
        cdef Ledger ledger
        cdef bint seals = False, is_sparse
        log = self.log
        with self.lock:
            ledger = log.ledger
            is_sparse = ledger.take_reclaimable()
            if log.unsealed_index:
                seals = any([
                    block.active not in log.unwritten and not self.disk.holds(block.active)
                    for block in log.unsealed_index
                ])
        self.on_due(seals, is_sparse)

    def fail(self, error):
        """Refuse writes from now on."""
        self.log.health.fail(error)


cdef class DiskWriter:
    """Writes and syncs the blocks of one store; see the module."""

    cdef object files
    cdef str folder
    cdef HighWaterMark high_water
    cdef object clock
    cdef bint is_volatile
    cdef int64_t synced_ns
    # Blocks that are written and wait for their sync.
    cdef list unsynced
    # A batch with this ticket or a later one is synced whatever the interval; 0 for none.
    cdef uint64_t sync_ticket

    def __init__(self, files, str folder not None, HighWaterMark high_water not None, clock, *,
                 bint is_volatile):
        self.files = files
        self.folder = folder
        self.high_water = high_water
        self.clock = clock
        self.is_volatile = is_volatile
        self.synced_ns = clock.monotonic_ns()
        self.unsynced = []

    def want_sync(self, uint64_t ticket):
        """Have the batch of a ticket synced whatever the interval; under the store's lock."""
        self.sync_ticket = ticket

    def nothing_waits(self):
        """Note that nothing is left to be synced; under the store's lock."""
        self.sync_ticket = 0

    @property
    def awaits_sync(self):
        """Whether something that is written waits for its sync."""
        return bool(self.unsynced)

    def holds(self, active):
        """Return True if a block's file is still needed for its sync; any thread."""
        return active in self.unsynced

    def sync_is_due(self, uint64_t ticket, int64_t interval_ns):
        """Return True if something has waited for its sync long enough."""
        return bool(
            self.unsynced
            and (
                0 < self.sync_ticket <= ticket
                or not interval_ns
                or self.clock.monotonic_ns() - self.synced_ns >= interval_ns
            )
        )

    def forget(self, active=None):
        """Sync a block no more, or none of them: its file is about to be removed."""
        if active is None:
            self.unsynced.clear()
        elif active in self.unsynced:
            self.unsynced.remove(active)

    def write(self, Batch batch not None, int64_t interval_ns):
        """Write a batch and sync what is to be synced; raise OSError on failure."""
        created = False
        place = self.high_water.place
        for active in batch.roomy:
            # As long as it will be with its last chunk; a gap would be zeros as before.
            self.cut_room(active)
        for active, chunk in batch.chunks:
            if active.file is None:
                active.file = self.files.open(active.path, "create")
                created = True
            write_all(active.file, chunk.start, memoryview(chunk))
            place = (active.number, chunk.start + len(chunk))
            active.file_bytes = max(active.file_bytes, chunk.start + len(chunk))
            if self.is_volatile:
                continue
            if interval_ns:
                if active not in self.unsynced:
                    self.unsynced.append(active)
            else:
                active.file.sync_data()
        if created:
            self.files.sync_dir(self.folder)
        self._sync_waiting(batch, interval_ns)
        self.high_water.place = place

    def cut_room(self, active):
        """Cut off the room behind a block, durably; raise OSError on failure."""
        active.file.truncate(active.bytes)
        active.file_bytes = active.bytes
        active.file.sync_data()

    def job(self, Batch batch not None, int64_t interval_ns, uint64_t salt, *,
            uint64_t block_bytes):
        """Return what `write` and `mark` would do as a job, or None if it takes more than that.

        The caller calls `written` at its end. A block is full with `block_bytes`.
        """
        mark_file = self.high_water.file
        if (
            not 0 < len(batch.chunks) <= PARTS_MAX or batch.roomy or self.is_volatile
            or mark_file is None
        ):
            return None
        syncs = True
        active, chunk = batch.chunks[-1]
        if interval_ns or self.unsynced:
            if (
                len(batch.chunks) > 1 or active.file is None or self.unsynced != [active]
                or active is not batch.current
            ):
                return None
            syncs = self.sync_is_due(batch.ticket, interval_ns)
        job = DiskJob(syncs=syncs)
        for each, its_chunk in batch.chunks:
            if each.file is not None:
                job.write(each.file, its_chunk)
            elif self.files.root is not None:
                job.create(self.files.root, each.path, its_chunk)
            else:
                return None
        # A block that is new may stay small: most of many streams do.
        if syncs and active is batch.current and active.file is not None:
            job.leave_room(_room_behind(active, chunk, block_bytes))
        place = (active.number, chunk.start + len(chunk))
        job.mark(
            mark_file, *self.high_water.next_slot(batch.last_seq, batch.last_time_ns, salt, place)
        )
        return job

    def written(self, Batch batch not None, DiskJob job not None):
        """Take note of a batch whose job is done; raise OSError if it has failed."""
        for (active, _), file in zip(batch.chunks, job.created()):
            if file is not None:
                active.file = file
        job.check()
        for active, chunk in batch.chunks:
            self.high_water.place = (active.number, chunk.start + len(chunk))
            active.file_bytes = max(active.file_bytes, chunk.start + len(chunk))
        active.file_bytes = max(active.file_bytes, chunk.start + len(chunk) + job.room)
        if job.syncs and self.unsynced:
            self.unsynced.clear()
            self._note_sync(batch)

    def mark(self, Batch batch not None, uint64_t salt):
        """Write the high-water mark of a batch that was written; raise OSError on failure."""
        if not self.is_volatile:
            self.high_water.write(batch.last_seq, batch.last_time_ns, salt)

    def _sync_waiting(self, Batch batch, int64_t interval_ns):
        due = self.sync_is_due(batch.ticket, interval_ns)
        for active in list(self.unsynced):
            # A sealed block is synced at once, so that only one ever waits for the interval.
            if due or active is not batch.current:
                assert active.file is not None, "only what was written waits for a sync"
                active.file.sync_data()
                self.unsynced.remove(active)
        if due:
            self._note_sync(batch)

    def _note_sync(self, Batch batch):
        self.synced_ns = self.clock.monotonic_ns()
        if self.sync_ticket <= batch.ticket:
            self.sync_ticket = 0


cdef size_t _room_behind(ActiveBlock active, Chunk chunk, uint64_t block_bytes) noexcept:
    # How many zeros to write behind a chunk: none where it lies within the file, or is so large
    # that few like it would find room. A file is at most doubled, so that many small streams take
    # no more of the disk than they must; to the end of its last page it costs nothing.
    cdef uint64_t end = chunk.start + chunk.size
    cdef uint64_t room_end = end + min(end, ROOM_MAX)
    if end <= active.file_bytes:
        return 0
    room_end = min((room_end + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES, block_bytes)
    if room_end < end + ROOM_COMMITS_MIN * chunk.size:
        return 0
    return <size_t>(room_end - end)


cdef class HighWaterMark:
    """The mark of one stream; see the module."""

    cdef readonly uint64_t turn
    # The block of the last commit that ended well, and how many of its bytes that made durable.
    cdef readonly tuple place
    # The file, once a mark was written or synced.
    cdef readonly object file
    cdef object files
    cdef str path

    def __init__(self, files, str path not None):
        self.place = (0, 0)
        self.files = files
        self.path = path

    def go_on_after(self, uint64_t turn):
        """Take turns after the mark that was found."""
        self.turn = turn

    def stand_at(self, number, size):
        """Note up to where which block is durable, for the next mark."""
        self.place = (number, size)

    def next_slot(self, last_seq, last_time_ns, salt, place):
        """Return the offset in the file and the bytes of the next mark, which the caller writes."""
        self.turn += 1
        mark = HighWater(self.turn, last_seq, last_time_ns, salt, *place)
        return self.turn % 2 * HIGH_WATER_SLOT_BYTES, encode_high_water(mark)

    def write(self, last_seq, last_time_ns, salt):
        """Write what is durable; the system syncs it in its own time."""
        self.file = self._opened() or self.files.open(self.path, "create")
        write_all(self.file, *self.next_slot(last_seq, last_time_ns, salt, self.place))

    def sync(self):
        """Put the mark on stable storage, also one that was written before the store was opened."""
        self.file = self._opened()
        if self.file is not None:
            self.file.sync_data()

    def _opened(self):
        if self.file is None and self.files.exists(self.path):
            return self.files.open(self.path, "update")
        return self.file

    def close(self):
        """Close the file; the next mark opens it again."""
        if self.file is not None:
            self.file.close()
            self.file = None
