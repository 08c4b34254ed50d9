"""The heart of a store: one lock, one ledger, one block being written, and the way to the disk.

Everything that changes a stream passes through here: appends into the active block, rotation,
commits, sealing, and what happens when the disk fails. Reading, removing, recovery and compaction
are modules of their own that work on an `Engine`.

What always holds: a message is durable only after a commit put its record on stable storage;
after a failed write or sync nothing is written or acknowledged any more; a removal is written as a
tombstone in the same commit as what was appended with it.

`lock` guards the ledger and the active block. It is never held during a write or a sync.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from weakref import WeakSet

from penstock.clock import Clock
from penstock.errors import CorruptStore, StoreClosed, StoreReadOnly, UsageError, WrongKey
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
from penstock.format.record import ENVELOPED, check_message
from penstock.limits import (
    BLOCK_BYTES_MAX,
    PENDING_BYTES_MAX,
    UNSEALED_BLOCKS_MAX,
    VOLATILE_PENDING_BYTES_MAX,
)
from penstock.store.active_block import ActiveBlock
from penstock.store.background import Background
from penstock.store.block_account import Block
from penstock.store.block_cache import BlockCache
from penstock.store.committer import Committer
from penstock.store.committing import Commits
from penstock.store.disk_threads import DoneJobs
from penstock.store.disk_writer import DiskWriter
from penstock.store.expiries import Expiries
from penstock.store.high_water import HighWaterMark
from penstock.store.interface import CommitCallback, DurableCallback, StoreConfig
from penstock.store.ledger import Ledger
from penstock.store.timekeeping import Timekeeper
from penstock.store.vfs import FileSystem, write_atomically

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
        on_commit: CommitCallback | None = None,
        done_jobs: DoneJobs | None = None,
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
        self.ledger = Ledger(self.cache.load_index, self.cache.open_files, self.cache.count_wanted)
        self.times = Timekeeper(clock)
        self.expiries = Expiries(self.times)
        self.ledger.forget_expiry = self.expiries.forget
        self.salt = 0
        self.active: Block | None = None
        self.next_number = 1
        self.damage: list[Damage] = []
        self.durable_seq = 0
        self.closed = False
        self.failure: str | None = None
        self.problems: list[str] = []
        self.rebuilt_indexes: set[int] = set()
        """Blocks whose index had to be built again because its file was of no use."""

        self.unsealed_index: list[Block] = []
        self.sealed_since_checkpoint = 0
        self.checkpoint_on_disk = False
        self.reclaim_job: Callable[[], None] = lambda: None
        self.checkpoint_job: Callable[[], None] = lambda: None
        self.views: WeakSet[object] = WeakSet()
        """Whoever reads blocks over a longer time; while there is one, no block is rewritten or
        removed to give space back. A view that is forgotten is gone from here."""

        self.high_water = HighWaterMark(files, self.file_path(HIGH_WATER_NAME))
        self.unwritten: list[ActiveBlock] = []  # and the one that is added to, in any case
        self._data_key: DataKey | None = None
        self.on_durable, self.on_commit, self._on_damage = on_durable, on_commit, on_damage
        self.done_jobs = done_jobs
        self.disk = DiskWriter(files, path, self.high_water, clock, volatile=volatile)
        self.block_changes = 0
        """Counts what makes a sum of the blocks stale: rewritten and removed ones."""

        self.background = Background(failed=self.note_problem)
        self.commits = Commits(self)
        self.committer = Committer(self.commits)
        self.threaded = threaded
        self.volatile = volatile
        """The files are memory: nothing is synced, and what is stored is as good as committed."""

        if volatile:
            # As the reference server counts what it keeps in memory.
            self.ledger.message_overhead, self.ledger.headers_overhead = 16, 0

    def start(self) -> None:
        """Use threads from now on, where that is wanted; after recovery, which knows of none."""
        if not self.threaded:
            return
        self.background.start()
        self.committer.set_interval(self.config.sync_interval_ns)
        self.committer.start()

    def start_over(self) -> None:
        """Forget what recovery has gathered so far."""
        self.cache.close()
        counting = self.ledger.message_overhead, self.ledger.headers_overhead
        self.ledger = Ledger(self.cache.load_index, self.cache.open_files, self.cache.count_wanted)
        self.ledger.message_overhead, self.ledger.headers_overhead = counting
        self.ledger.forget_expiry = self.expiries.forget
        self.times.forget_all()
        self.expiries.clear()
        self.damage.clear()
        self.unwritten.clear()
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
            on_durable=self.on_durable,
            on_damage=self._on_damage,
            on_commit=self.on_commit,
            done_jobs=self.done_jobs,
        )

    def shut_down(self) -> None:
        """Refuse writes, begin no more work, close the files; nothing is flushed."""
        self.closed = True
        self.background.stop()
        self.committer.stop()
        with self.committer.exclusive(), self.lock:
            for block in self.ledger.blocks:
                if block.active is not None and block.active.file is not None:
                    block.active.file.close()
            self.high_water.close()
            self.cache.close()

    def reconfigure(self, config: StoreConfig) -> None:
        """Go over to another configuration; its limits are still to be applied."""
        with self.lock:
            self.check_writable()
            if config.name != self.config.name:
                raise UsageError("a stream's name cannot be changed")
            self.check_key(config)
            sealing = (self.config.cipher, self.config.compression)
            self.config = config
            if (config.cipher, config.compression) != sealing:
                self.seal_active()
            self.committer.set_interval(config.sync_interval_ns)

    # Names and small files

    def unique(self) -> str:
        """Draw the unique part of a temporary name."""
        return self.random_bytes(8).hex()

    def file_path(self, name: str) -> str:
        """Give the path of a file of the store."""
        return f"{self.path}/{name}"

    def replace_file(self, name: str, data: bytes) -> None:
        """Write a small file atomically."""
        write_atomically(self.files, self.file_path(name), data, unique=self.unique())

    def replace_index(self, number: int, image: bytes) -> None:
        """Write a block's index file atomically; it checks itself, so nobody waits for the disk."""
        path = self.file_path(index_name(number))
        write_atomically(self.files, path, image, unique=self.unique(), durable=False)

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

    def check_key(self, config: StoreConfig) -> None:
        """Raise WrongKey where a configuration asks for a cipher and there is no key."""
        if config.cipher is not Cipher.NONE and self.key is None:
            raise WrongKey(self.path, f"the cipher {config.cipher.name} needs a key")

    def report_damage(self, damage: Damage) -> None:
        """Remember damage and tell whoever listens; once for each place."""
        if any(damage.is_at(each) for each in self.damage):
            return
        self.damage.append(damage)
        if self._on_damage is not None:
            self._on_damage(damage)

    def fail(self, error: BaseException) -> None:
        """Refuse writes from now on: what reached the disk is not known."""
        with self.lock:
            self.failure = self.failure or str(error) or repr(error)

    def doubt_sums(self, error: CorruptStore) -> None:
        """Refuse writes, and have the next open add up the blocks: they are not as counted."""
        self.fail(error)
        with contextlib.suppress(OSError):
            self.files.unlink(self.file_path(STATE_NAME))

    @contextlib.contextmanager
    def changing_blocks(self) -> Iterator[None]:
        """Refuse writes from now on where a change of block files fails half-way."""
        try:
            yield
        except OSError as error:
            self.fail(error)
            raise

    def note_problem(self, error: Exception) -> None:
        """Remember something that went wrong without costing data; only the last ones are kept."""
        with self.lock:
            self.problems.append(str(error))
            del self.problems[:-100]

    # Blocks

    def new_block(self, base_seq: int | None = None) -> Block:
        """Start a block after the last one; its file appears with the first commit.

        It begins with the next sequence, or with a later `base_seq`.
        """
        number = self.next_number
        self.next_number += 1
        if base_seq is None:
            base_seq = self.ledger.last_seq + 1
        last = self.ledger.blocks[-1] if self.ledger.blocks else None
        chained = 0 if last is None else self.cache.last_checksum(last)
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
        block.follow(index)
        self.attach(block, ActiveBlock(index, path, header.seed))
        self.ledger.add_block(block)
        return block

    def attach(self, block: Block, active: ActiveBlock) -> None:
        """Make a block the one that is written to."""
        block.active = active
        block.index = active.index
        block.index_pinned = True
        header = block.header
        assert header is not None, "a block is written to only with its header known"
        if header.cipher != Cipher.NONE or self.config.compression is not Compression.NONE:
            block.unseal = unsealer(header, self.config.name.encode(), self.key, active.path)
        self.unwritten.append(active)
        self.active = block

    def active_block(self) -> Block:
        """Give the block being written, starting one where there is none."""
        return self.active if self.active is not None else self.new_block()

    def room_for(self, record_bytes: int, seq: int) -> Block:
        """Give the active block, a new one where the record would not fit."""
        block = self.active_block()
        # A block of tombstones alone goes on: to seal it early would only move them on.
        bytes_max = self.config.block_bytes if block.count else BLOCK_BYTES_MAX // 2
        full = block.bytes + record_bytes > bytes_max
        if full or seq - block.base_seq > _SEQ_DELTA_MAX:
            # After a gap that is wider than a block can span the next one begins behind it.
            wide = seq - self.ledger.last_seq > _SEQ_DELTA_MAX
            block = self.rotate(seq if wide else None)
        return block

    def rotate(self, base_seq: int | None = None) -> Block:
        """Seal the active block and start the next, where `base_seq` says if it is given."""
        self.seal_active()
        self.ledger.table.drop_ghosts()
        return self.new_block(base_seq)

    def seal_active(self) -> None:
        """Let nothing more be added to the active block; its index is written after its bytes."""
        if self.active is not None:
            writing(self.active).index.freeze()
            self.unsealed_index.append(self.active)
            self.active = None

    def release(self, block: Block) -> None:
        """Write nothing more of a block that is about to be removed; under the lock."""
        active = block.active
        if active is None:
            return
        active.index.freeze()
        if active.file is not None:
            active.file.close()
        if active in self.unwritten:
            self.unwritten.remove(active)
        self.disk.forget(active)
        if block in self.unsealed_index:
            self.unsealed_index.remove(block)
        if block is self.active:
            self.active = None
        block.active = None
        block.index_pinned = False

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
        check_message(len(subject), len(headers), len(payload))
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
            self.expiries.remember(seq, expires_ns)

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
        if block.base_seq > seq:
            # The block begins behind the gap, which tells of it; only its end is written.
            seq, count = last, 1
        active = writing(block)
        active.append_skip(seq, count, self.now_ns())
        block.follow(active.index)
        self.ledger.last_seq = last
        if self.ledger.messages == 0:
            self.ledger.settle()

    def now_ns(self) -> int:
        """Give a stamp: the wall clock, but never before the stream's last message."""
        return max(self.clock.now_ns(), self.ledger.last_time_ns)

    def changed(self, *, durable: bool = False) -> None:
        """Have a change committed soon, and wait for that if so asked or where much is pending.

        Never under the lock: a commit needs it.
        """
        if self.volatile:
            if self.pending_bytes() > VOLATILE_PENDING_BYTES_MAX:
                self.flush()
            else:
                self.tell_volatile()
            return
        if not durable:
            self.committer.wake()
        if durable or self.pending_bytes() > PENDING_BYTES_MAX:
            self.flush()
        if len(self.unsealed_index) > UNSEALED_BLOCKS_MAX:
            self.write_due_indexes()

    def pending_bytes(self) -> int:
        """Tell how many bytes no commit has taken yet."""
        return sum(active.pending_bytes for active in self.unwritten)

    def tell_volatile(self) -> None:
        """Tell that all that is stored in memory is as good as durable."""
        with self.lock:
            # Under the lock, so that the sequence that is told never goes back.
            self.durable_seq = self.ledger.last_seq
            if self.on_durable is not None:
                self.on_durable(self.durable_seq)

    # Committing

    def flush(self) -> None:
        """Make all that was changed so far durable, committing in this thread; raises.

        Never under the lock: a commit under way in another thread needs it.
        """
        with self.lock:
            wanted = self.commits.next_ticket()
            self.disk.want_sync(wanted)
        self.committer.commit(unless=lambda: self.commits.durable_ticket >= wanted)
        with self.lock:
            if self.failure is not None:
                raise StoreReadOnly(self.path, self.failure)

    # Sealing

    def write_due_indexes(self) -> None:
        """Write the index files of sealed blocks whose bytes are all on disk."""
        with self.lock:
            due = [
                block
                for block in self.unsealed_index
                if block.active not in self.unwritten and not self.disk.holds(writing(block))
            ]
        for block in due:
            # One at a time, and only those: whoever waits to rewrite blocks or to take stock of
            # them must come in between, also when blocks fill faster than they can be sealed.
            with self.rewriting:
                if self.failure is not None:
                    return
                if block not in self.unsealed_index:
                    continue
                self.replace_index(block.number, writing(block).index.encode())
                with self.lock:
                    self.unsealed_index.remove(block)
                    self.settle_sealed(block)
                    self.sealed_since_checkpoint += 1

    def settle_sealed(self, block: Block) -> None:
        """Let go of a sealed block's memory: from now on its files answer for it."""
        active = writing(block)
        if active.file is not None:
            with contextlib.suppress(OSError):
                active.file.close()
        block.active = None
        block.expiring = active.index.expiry_count
        block.index_pinned = False
        self.cache.admit(block)
        if block.live_disk_bytes * 2 < block.bytes - HEADER_BYTES:
            self.ledger.reclaimable = True


def writing(block: Block) -> ActiveBlock:
    """Give the part of a block that is being written."""
    assert block.active is not None, "only a block that is not sealed is written to"
    return block.active
