"""The heart of a store: one lock, one ledger, one block being written, and the way to the disk.

Everything that changes a stream passes through here: appends into the active block, rotation,
commits, sealing, and what happens when the disk fails. Reading, removing, recovery and compaction
are modules of their own that work on an `Engine`.

What always holds: a message is durable only after `write_batch` put its record on stable storage;
after a failed write or sync nothing is written or acknowledged any more; a removal is written as a
tombstone in the same commit as what was appended with it.

`lock` guards the ledger and the active block. It is never held during a write or a sync.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from penstock.clock import Clock
from penstock.errors import StoreClosed, StoreReadOnly
from penstock.format.block import HEADER_BYTES, BlockHeader, encode_block_header
from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import new_data_key, unsealer
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, Compression, DataKey, Place, StoreKey, seal
from penstock.format.layout import (
    HIGH_WATER_NAME,
    QUARANTINE_NAME,
    STATE_NAME,
    block_name,
    index_name,
)
from penstock.format.record import ENVELOPED, check_sizes
from penstock.format.sequence_set import SequenceSet
from penstock.format.state import (
    HIGH_WATER_SLOT_BYTES,
    HighWater,
    encode_high_water,
)
from penstock.limits import (
    CHECKPOINT_BLOCKS,
    PENDING_BYTES_MAX,
    TOMBSTONE_RANGES_MAX,
    VOLATILE_PENDING_BYTES_MAX,
)
from penstock.store.active_block import ActiveBlock
from penstock.store.background import Background
from penstock.store.block_cache import BlockCache
from penstock.store.committer import Batch, Committer
from penstock.store.expiry_wheel import ExpiryWheel
from penstock.store.interface import DurableCallback, StoreConfig
from penstock.store.ledger import Block, Ledger
from penstock.store.vfs import File, FileSystem, write_all, write_atomically

_SEQ_DELTA_MAX = 2**32 - 1


class Engine:
    """The parts that a store's operations share; see the module."""

    def __init__(
        self,
        path: str,
        config: StoreConfig,
        *,
        files: FileSystem,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        key: StoreKey | None,
        threaded: bool,
        volatile: bool,
        on_durable: DurableCallback | None,
        on_damage: Callable[[Damage], None] | None,
    ) -> None:
        self.path = path
        self.config = config
        self.files = files
        self.clock = clock
        self.random_bytes = random_bytes
        self.key = key
        self.lock = threading.RLock()
        self.rewriting = threading.RLock()
        """Held by whoever rewrites, removes or sums up blocks; taken before `lock`, never after."""

        self.cache = BlockCache(self)
        self.ledger = Ledger(self.cache.load_index, self.cache.open_files)
        self.wheel = ExpiryWheel()
        self.salt = 0
        self.active: Block | None = None
        self.next_number = 1
        self.damage: list[Damage] = []
        self.durable_seq = 0
        self.closed = False
        self.failure: str | None = None
        self.problems: list[str] = []
        self.unsealed_index: list[Block] = []
        self.sealed_since_checkpoint = 0
        self.checkpoint_on_disk = False
        self.reclaim_job: Callable[[], None] = lambda: None
        self.checkpoint_job: Callable[[], None] = lambda: None
        self.high_water: File | None = None
        self.high_water_turn = 0
        self.durable_ticket = 0
        self._ticket = 0
        self._writing: list[ActiveBlock] = []
        self._data_key: DataKey | None = None
        self._on_durable = on_durable
        self._on_damage = on_damage
        self._synced_ns = clock.monotonic_ns()
        self._unsynced: list[ActiveBlock] = []
        self.background = Background(
            threaded=threaded, name=f"penstock-keep-{config.name}", failed=self._background_failed
        )
        self.committer = Committer(
            take=self.take_batch,
            write=self.write_batch,
            finish=self.finish,
            fail=self.fail,
            after=self.housekeep,
        )
        self.threaded = threaded
        self.volatile = volatile
        """The files are memory: nothing is synced, and what is stored is as good as committed."""

        if volatile:
            # As the reference server counts what it keeps in memory.
            self.ledger.message_overhead, self.ledger.headers_overhead = 16, 0
        if threaded:
            interval_ns = config.sync_interval_ns
            self.committer.start(
                f"penstock-commit-{config.name}", interval_ns / 1e9 if interval_ns else None
            )

    def start_over(self) -> None:
        """Forget what recovery has gathered so far."""
        self.cache.close()
        counting = self.ledger.message_overhead, self.ledger.headers_overhead
        self.ledger = Ledger(self.cache.load_index, self.cache.open_files)
        self.ledger.message_overhead, self.ledger.headers_overhead = counting
        self.wheel.clear()
        self.damage.clear()
        self._writing.clear()
        self.unsealed_index.clear()
        self.active = None

    def sibling(self) -> Engine:
        """Give a new engine with the same arguments, not recovered yet."""
        return Engine(
            self.path,
            self.config,
            files=self.files,
            clock=self.clock,
            random_bytes=self.random_bytes,
            key=self.key,
            threaded=self.threaded,
            volatile=self.volatile,
            on_durable=self._on_durable,
            on_damage=self._on_damage,
        )

    def shut_down(self) -> None:
        """Refuse writes, end the threads, close the files; nothing is flushed."""
        self.closed = True
        self.background.stop()
        self.committer.stop()
        with self.lock:
            for block in self.ledger.blocks:
                if block.active is not None and block.active.file is not None:
                    block.active.file.close()
            if self.high_water is not None:
                self.high_water.close()
                self.high_water = None
            self.cache.close()

    def wipe(self) -> None:
        """Remove every file of an emptied stream and begin with sequence 1; under the lock."""
        for block in list(self.ledger.blocks):
            if block.active is not None and block.active.file is not None:
                block.active.file.close()
            for name in (index_name(block.number), block_name(block.number)):
                with contextlib.suppress(FileNotFoundError):
                    self.files.unlink(self.file_path(name))
        if self.high_water is not None:
            self.high_water.close()
            self.high_water = None
        for name in (HIGH_WATER_NAME, STATE_NAME):
            with contextlib.suppress(FileNotFoundError):
                self.files.unlink(self.file_path(name))
        self.files.sync_dir(self.path)
        self.checkpoint_on_disk = False
        self.start_over()
        self.durable_seq = 0

    # Names and small files

    def unique(self) -> str:
        """Draw the unique part of a temporary name."""
        return self.random_bytes(8).hex()

    def file_path(self, name: str) -> str:
        """Give the path of a file of the store."""
        return os.path.join(self.path, name)

    def replace_file(self, name: str, data: bytes) -> None:
        """Write a small file atomically."""
        write_atomically(self.files, self.file_path(name), data, unique=self.unique())

    def quarantine(self, name: str, data: bytes) -> None:
        """Keep bytes aside for people, before they go from where they were."""
        folder = self.file_path(QUARANTINE_NAME)
        if not self.files.exists(folder):
            self.files.make_dirs(folder)
            self.files.sync_dir(self.path)
        write_atomically(
            self.files, os.path.join(folder, f"{name}-{self.unique()}"), data, unique=self.unique()
        )

    # Errors

    def check_writable(self) -> None:
        """Raise where the store takes no writes."""
        if self.failure is not None:
            raise StoreReadOnly(self.path, self.failure)
        if self.closed:
            raise StoreClosed(f"{self.path}: the store was stopped")

    def report_damage(self, damage: Damage) -> None:
        """Remember damage and tell whoever listens; once for each place."""
        if damage not in self.damage:
            self.damage.append(damage)
            if self._on_damage is not None:
                self._on_damage(damage)

    def fail(self, error: OSError) -> None:
        """Refuse writes from now on: what reached the disk is not known."""
        with self.lock:
            self.failure = self.failure or str(error)

    def _background_failed(self, error: Exception) -> None:
        with self.lock:
            self.problems.append(str(error))
            del self.problems[:-100]

    # Blocks

    def new_block(self) -> Block:
        """Start a block after the last one; its file appears with the first commit."""
        number = self.next_number
        self.next_number += 1
        base_seq = self.ledger.last_seq + 1
        last = self.ledger.blocks[-1] if self.ledger.blocks else None
        chained = 0
        if last is not None and last.index is not None:
            chained = last.index.last_checksum
        cipher = self.config.cipher
        self._data_key, wrapped = new_data_key(
            cipher, self.config.name.encode(), self.key, number, 0, self.random_bytes
        )
        header = BlockHeader(
            number=number,
            salt=self.salt,
            base_seq=base_seq,
            created_ns=self.clock.now_ns(),
            previous_checksum=chained,
            cipher=cipher,
            wrapped_key=wrapped,
        )
        path = self.file_path(block_name(number))
        index = BlockIndex(number, 0, base_seq, encode_block_header(header), self.ledger.table)
        block = Block(number, 0, base_seq, header.seed, path)
        block.header = header
        self.attach(block, ActiveBlock(index, path, header.seed))
        self.ledger.add_block(block)
        return block

    def attach(self, block: Block, active: ActiveBlock) -> None:
        """Make a block the one that is written to."""
        block.active = active
        block.index = active.index
        block.index_pinned = True
        if block.header.cipher != Cipher.NONE or self.config.compression is not Compression.NONE:
            block.unseal = unsealer(
                block.header, self.config.name.encode(), self.key, active.path
            )
        self._writing.append(active)
        self.active = block

    def active_block(self) -> Block:
        """Give the block being written, starting one where there is none."""
        return self.active if self.active is not None else self.new_block()

    def room_for(self, record_bytes: int, seq: int) -> Block:
        """Give the active block, a new one where the record would not fit."""
        block = self.active_block()
        if block.count and (
            block.bytes + record_bytes > self.config.block_bytes
            or seq - block.base_seq > _SEQ_DELTA_MAX
        ):
            block = self.rotate()
        elif seq - block.base_seq > _SEQ_DELTA_MAX:
            block = self.rotate()
        return block

    def rotate(self) -> Block:
        """Seal the active block and start the next."""
        self.seal_active()
        self.ledger.table.drop_ghosts()
        return self.new_block()

    def seal_active(self) -> None:
        """Let nothing more be added to the active block; its index is written after its bytes."""
        if self.active is not None:
            self.active.index.freeze()
            self.unsealed_index.append(self.active)
            self.active = None

    # Appending

    def append(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        *,
        seq: int,
        timestamp_ns: int,
        expires_ns: int,
    ) -> None:
        """Append one message; limits were applied, sizes are checked here."""
        check_sizes(len(subject), len(headers), len(payload))
        size = self.ledger.message_size(subject, headers, payload)
        block = self.room_for(len(subject) + len(headers) + len(payload) + 64, seq)
        flags = 0
        if self.config.compression is not Compression.NONE or self._data_key is not None:
            place = Place(self.config.name.encode(), seq, timestamp_ns, subject)
            payload = seal(
                headers, payload, place, compression=self.config.compression, key=self._data_key
            )
            headers = b""
            flags = ENVELOPED
        self.ledger.append(
            block,
            subject,
            headers,
            payload,
            seq=seq,
            timestamp_ns=timestamp_ns,
            flags=flags,
            expires_ns=expires_ns,
            message_size=size,
        )
        if expires_ns:
            self.wheel.add(seq, expires_ns)

    def append_many(self, messages: list[tuple[bytes, bytes, bytes]], timestamp_ns: int) -> None:
        """Append plain messages with the next sequences, crossing blocks where they are full."""
        place = 0
        keep = max(self.config.max_msgs_per_subject, 0)
        while place < len(messages):
            before = place
            place = self.ledger.append_many(
                self.active_block(),
                messages,
                place,
                timestamp_ns=timestamp_ns,
                block_bytes_max=self.config.block_bytes,
                keep_per_subject=keep,
            )
            if place == before:
                self.rotate()

    def append_skip(self, seq: int, count: int) -> None:
        """Reserve `count` sequences from `seq` on."""
        last = seq + count - 1
        block = self.room_for(64, last)
        block.active.append_skip(seq, count, self.now_ns())
        block.follow(block.index)
        self.ledger.last_seq = last
        if self.ledger.messages == 0:
            self.ledger.settle()

    def now_ns(self) -> int:
        """Give a stamp: the wall clock, but never before the stream's last message."""
        return max(self.clock.now_ns(), self.ledger.last_time_ns)

    def changed(self) -> None:
        """Let the committer know of a change, and wait where too much is pending.

        Never under the lock: a commit needs it.
        """
        if self.volatile:
            self._release_volatile()
            return
        self.committer.wake()
        if self.pending_bytes() > PENDING_BYTES_MAX:
            self.flush()

    def pending_bytes(self) -> int:
        """Tell how many bytes no commit has taken yet."""
        return sum(active.pending_bytes for active in self._writing)

    def _release_volatile(self) -> None:
        if self.pending_bytes() > VOLATILE_PENDING_BYTES_MAX:
            self.flush()
            return
        self.durable_seq = self.ledger.last_seq
        if self._on_durable is not None:
            self._on_durable(self.durable_seq)

    # Committing

    def take_batch(self) -> Batch | None:
        """Gather all that is pending: removals as tombstones, then the bytes of each block."""
        with self.lock:
            if self.failure is not None:
                return None
            self._write_tombstones()
            self._ticket += 1
            current = None if self.active is None else self.active.active
            batch = Batch(self.ledger.last_seq, self.ledger.last_time_ns, self._ticket, current)
            for active in self._writing:
                chunk = active.take()
                if chunk is not None:
                    batch.chunks.append((active, chunk))
            if not batch.chunks:
                if self._sync_is_due():
                    return batch
                self.durable_ticket = self._ticket
                return None
            return batch

    def _write_tombstones(self) -> None:
        removed = self.ledger.removed
        if not removed:
            return
        self.ledger.removed = SequenceSet()
        for part in split_ranges(removed, TOMBSTONE_RANGES_MAX):
            block = self.room_for(64, self.ledger.last_seq + 1)
            block.active.append_tombstone(part, self.ledger.last_seq, self.now_ns())
            block.follow(block.index)

    def _sync_is_due(self) -> bool:
        interval = self.config.sync_interval_ns
        return bool(
            interval
            and self._unsynced
            and self.clock.monotonic_ns() - self._synced_ns >= interval
        )

    def write_batch(self, batch: Batch) -> None:
        """Write and sync a batch; runs without the lock, one at a time."""
        created = False
        for active, chunk in batch.chunks:
            if active.file is None:
                active.file = self.files.open(active.path, "create")
                created = True
            write_all(active.file, chunk.start, memoryview(chunk))
            if self.volatile:
                continue
            if self.config.sync_interval_ns:
                if active not in self._unsynced:
                    self._unsynced.append(active)
            else:
                active.file.sync_data()
        if created:
            self.files.sync_dir(self.path)
        due = self._sync_is_due()
        for active in list(self._unsynced):
            # A sealed block is synced at once, so that only one ever waits for the interval.
            if due or active is not batch.current:
                active.file.sync_data()
                self._unsynced.remove(active)
        if due:
            self._synced_ns = self.clock.monotonic_ns()
        if not self.volatile:
            self.mark_high_water(batch.last_seq, batch.last_time_ns)

    def mark_high_water(self, last_seq: int, last_time_ns: int) -> None:
        """Note the durable sequence apart from the blocks; the system syncs it in its own time.

        It guards against a damaged tail, not against a power cut: what the power cut spares is
        what the blocks' own syncs made durable.
        """
        if self.high_water is None:
            path = self.file_path(HIGH_WATER_NAME)
            mode = "update" if self.files.exists(path) else "create"
            self.high_water = self.files.open(path, mode)  # type: ignore[arg-type]  # either mode
        self.high_water_turn += 1
        mark = HighWater(self.high_water_turn, last_seq, last_time_ns)
        slot = (self.high_water_turn % 2) * HIGH_WATER_SLOT_BYTES
        write_all(self.high_water, slot, encode_high_water(mark))

    def sync_high_water(self) -> None:
        """Put the mark on stable storage."""
        if self.high_water is not None:
            self.high_water.sync_data()

    def finish(self, batch: Batch) -> None:
        """Release what a batch made durable."""
        with self.lock:
            for active, _ in batch.chunks:
                active.written()
            self.durable_seq = batch.last_seq
            self.durable_ticket = batch.ticket
            self._writing = [
                active
                for active in self._writing
                if active.pending_bytes or (self.active is not None and active is self.active.active)
            ]
        if self._on_durable is not None:
            self._on_durable(batch.last_seq)

    def housekeep(self) -> None:
        """Hand out the background work that a commit has made due."""
        with self.lock:
            seal = any(block.active not in self._writing for block in self.unsealed_index)
            sparse, self.ledger.reclaimable = self.ledger.reclaimable, False
            checkpoint = self.sealed_since_checkpoint >= CHECKPOINT_BLOCKS
        if seal:
            self.background.submit(self.write_due_indexes)
        if sparse:
            self.background.submit(self.reclaim_job)
        if checkpoint and not self.volatile:
            self.background.submit(self.checkpoint_job)

    def has_pending(self) -> bool:
        """Tell whether anything is not yet handed to the disk; under the lock."""
        return bool(self.ledger.removed) or any(
            active.pending_bytes for active in self._writing
        )

    def flush(self) -> None:
        """Make all that was changed so far durable, committing in this thread; raises.

        Never under the lock: a commit under way in another thread needs it.
        """
        while True:
            self.committer.commit()
            with self.lock:
                if self.failure is not None:
                    raise StoreReadOnly(self.path, self.failure)
                if not self.has_pending():
                    return

    # Sealing

    def write_due_indexes(self) -> None:
        """Write the index files of sealed blocks whose bytes are all on disk."""
        while True:
            with self.lock:
                due = [block for block in self.unsealed_index if block.active not in self._writing]
                if not due or self.failure is not None:
                    return
                block = due[0]
                index = block.index
            self.replace_file(index_name(block.number), index.encode())
            with self.lock:
                self.unsealed_index.remove(block)
                self.settle_sealed(block)
                self.sealed_since_checkpoint += 1

    def settle_sealed(self, block: Block) -> None:
        """Let go of a sealed block's memory: from now on its files answer for it."""
        with contextlib.suppress(OSError):
            block.active.file.close()
        block.active = None
        block.expiring = block.index.expiry_count
        block.index_pinned = False
        self.cache.admit(block)
        if block.live_disk_bytes * 2 < block.bytes - HEADER_BYTES:
            self.ledger.reclaimable = True


def split_ranges(removed: SequenceSet, ranges_max: int) -> list[SequenceSet]:
    """Cut a set into parts of at most `ranges_max` ranges."""
    if removed.range_count <= ranges_max:
        return [removed]
    parts = []
    for place, (first, last) in enumerate(removed.ranges()):
        if place % ranges_max == 0:
            parts.append(SequenceSet())
        parts[-1].add_range(first, last)
    return parts
