"""The steps of a store's commits: what is taken, how it is written, and what follows from it.

A commit takes all that is pending: removals as tombstones, then the bytes of each block. When these
are on stable storage it tells what has become durable, notes that in the high-water mark, and hands
out the work that is due by then. The `Committer` calls the steps, one commit at a time.

What always holds: a removal is written in the same commit as what was appended with it; nobody is
told of a message before it is durable.
"""

from libc.stdint cimport uint64_t

from penstock.store.active_block cimport ActiveBlock, Chunk
from penstock.store.block_account cimport Block
from penstock.store.committer cimport Batch
from penstock.store.disk_threads cimport DiskJob
from penstock.store.ledger cimport Ledger

from penstock.format.sequence_set import SequenceSet
from penstock.limits import CHECKPOINT_BLOCKS, TOMBSTONE_RANGES_MAX
from penstock.store.shared_threads import reaped_by_thread


cdef class Commits:
    """The steps of one engine's commits; see the module."""

    cdef object engine
    cdef object lock
    # Of the batch that was taken last; under the store's lock.
    cdef readonly uint64_t ticket
    cdef readonly uint64_t durable_ticket

    def __init__(self, engine not None):
        self.engine = engine
        self.lock = engine.lock

    def take(self):
        """Gather all that is pending: removals as tombstones, then the bytes of each block."""
        cdef Ledger ledger
        cdef Block block
        cdef Batch batch
        cdef ActiveBlock active
        cdef Chunk chunk
        engine = self.engine
        with self.lock:
            if engine.failure is not None:
                return None
            ledger = engine.ledger
            if ledger.removed:
                self._write_tombstones(ledger)
            self.ticket += 1
            block = engine.active
            batch = Batch(
                ledger.last_seq, ledger.last_time_ns, self.ticket,
                None if block is None else block.active,
            )
            for active in engine.unwritten:
                chunk = active.take()
                if chunk is not None:
                    batch.chunks.append((active, chunk))
            if batch.chunks or engine.disk.sync_is_due(
                self.ticket, engine.config.sync_interval_ns
            ):
                return batch
            self.durable_ticket = self.ticket
            engine.disk.nothing_waits()
            return None

    def _write_tombstones(self, Ledger ledger):
        cdef Block block
        engine = self.engine
        removed, ledger.removed = ledger.removed, SequenceSet()
        for part in removed.parts(TOMBSTONE_RANGES_MAX):
            block = engine.room_for(64, ledger.last_seq + 1)
            block.active.append_tombstone(part, ledger.last_seq, engine.now_ns())
            block.follow(block.active.index)

    def next_ticket(self):
        """Give the ticket of the batch that has all that is pending now; under the lock."""
        cdef ActiveBlock active
        engine = self.engine
        if engine.ledger.removed or engine.disk.awaits_sync or engine.config.sync_interval_ns:
            return self.ticket + 1
        for active in engine.unwritten:
            if active.bytes != active.pending_at:
                return self.ticket + 1
        # The last one has it, be it durable or on its way.
        return self.ticket

    def done_jobs(self):
        """Give where jobs are left that nobody waits for."""
        return self.engine.done_jobs or reaped_by_thread()

    def job(self, Batch batch not None):
        """Give a batch as a job of the disk's, where it is a simple one."""
        return self.engine.disk.job(batch, self.engine.config.sync_interval_ns, self.engine.salt)

    def write(self, Batch batch not None):
        """Write and sync a batch; runs without the lock."""
        engine = self.engine
        started_ns = engine.clock.monotonic_ns()
        engine.disk.write(batch, engine.config.sync_interval_ns)
        self._tell(batch, (engine.clock.monotonic_ns() - started_ns) / 1e9)

    def written(self, Batch batch not None, DiskJob job not None):
        """Take note of the end of a batch's job; as `write`, which it stands for."""
        self.engine.disk.written(batch, job)
        self._tell(batch, job.seconds)

    def _tell(self, Batch batch, double seconds):
        cdef uint64_t durable_seq
        on_commit = self.engine.on_commit
        if on_commit is not None:
            durable_seq = self.engine.durable_seq
            on_commit(batch.last_seq - durable_seq if batch.last_seq > durable_seq else 0, seconds)

    def mark(self, Batch batch not None):
        """Note in the high-water mark how far a batch goes."""
        self.engine.disk.mark(batch, self.engine.salt)

    def finish(self, Batch batch not None):
        """Release what a batch made durable."""
        cdef ActiveBlock active, current
        cdef Block block
        engine = self.engine
        with self.lock:
            for active, _ in batch.chunks:
                active.written()
            self.durable_ticket = batch.ticket
            block = engine.active
            current = None if block is None else block.active
            engine.unwritten = [
                active for active in engine.unwritten
                if active.bytes != active.pending_at or active is current
            ]
            if not engine.volatile:
                engine.durable_seq = batch.last_seq
        if engine.volatile:
            engine.tell_volatile()
        elif engine.on_durable is not None:
            engine.on_durable(batch.last_seq)

    def after(self):
        """Hand out the background work that a commit has made due."""
        cdef Ledger ledger
        cdef bint seals = False, is_sparse
        engine = self.engine
        with self.lock:
            ledger = engine.ledger
            is_sparse = ledger.reclaimable
            ledger.reclaimable = False
            if engine.unsealed_index:
                seals = any([
                    block.active not in engine.unwritten and not engine.disk.holds(block.active)
                    for block in engine.unsealed_index
                ])
        if seals:
            engine.background.submit(engine.write_due_indexes)
        if is_sparse:
            engine.background.submit(engine.reclaim_job)
        if engine.sealed_since_checkpoint >= CHECKPOINT_BLOCKS and not engine.volatile:
            engine.background.submit(engine.checkpoint_job)

    def fail(self, error):
        """Refuse writes from now on."""
        self.engine.fail(error)
