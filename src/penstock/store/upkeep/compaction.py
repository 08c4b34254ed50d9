"""Giving disk space back: empty blocks are removed, sparse ones rewritten without what is gone.

A block's tombstones tell of messages in earlier blocks. While such a message still lies in its
block, the tombstone must live on: it moves to the rewritten block, or to the active one before an
empty block is removed. A rewrite goes to a new file that replaces the old one atomically, with a
new generation, so a fresh data key; an index of the old generation no longer fits and is built
anew.

Invariant: a crash at any point leaves the old block or the new one; no removed message
comes back; a damaged stretch is kept aside before its block goes.

Thread: any. Never under the store's lock, except where a method says so; `rewriting` lets one
rewrite run at a time.
"""

from __future__ import annotations

import contextlib
import threading
from weakref import WeakSet

from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    decode_block_header,
    encode_block_header,
)
from penstock.format.damage import Damage
from penstock.format.envelope import Compression, RecordIdentity, new_data_key, seal, unsealer
from penstock.format.index.block_index import BlockIndex
from penstock.format.layout import block_name, index_name
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.limits import INDEXES_SPARED_MAX, RECORD_OVERHEAD_BYTES_MAX
from penstock.store.commit.durability import Durability
from penstock.store.log.active_block import ActiveBlock
from penstock.store.log.block import Block
from penstock.store.log.log import Log
from penstock.store.threads import Background
from penstock.store.upkeep.checkpoint import Checkpoints
from penstock.store.upkeep.sealing import Sealing
from penstock.store.vfs import write_all

SPARSE_SHARE = 2
"""A block is rewritten when its live records are less than one part in this many of its bytes."""


class Compaction:
    """Frees the disk space of one store; see the module."""

    def __init__(
        self,
        log: Log,
        durability: Durability,
        sealing: Sealing,
        checkpoints: Checkpoints,
        background: Background,
        rewriting: threading.RLock,
    ) -> None:
        self._log = log
        self._durability = durability
        self._sealing = sealing
        self._checkpoints = checkpoints
        self._background = background
        self.rewriting = rewriting
        """Held while blocks are rewritten, removed or summed up; taken before the log's lock."""

        self._views: WeakSet[object] = WeakSet()

    def keep_for(self, view: object) -> None:
        """Rewrite and remove no block to free disk space while there is this reader of blocks.

        A reader that is collected is let go of.
        """
        self._views.add(view)

    def let_go_of(self, view: object) -> None:
        """Forget a reader of blocks, and give back soon what waited for it."""
        self._views.discard(view)
        self.submit()

    def submit(self) -> None:
        """Free disk space soon, in the background."""
        self._background.submit(self.reclaim_if_open)

    def reclaim_if_open(self) -> None:
        """Free disk space, unless the store has failed or was stopped meanwhile."""
        if self._log.health.failure is None and not self._log.health.closed:
            self.reclaim()

    def spare_room(self) -> None:
        """Remove derived files if the disk is full: a removal has to be written, too; raises.

        Indexes and checkpoints are built again where they are missed.
        """
        if self._log.health.shortage is None:
            return
        directory = self._log.directory
        with self.rewriting:
            self._checkpoints.drop()
            with self._log.lock:
                sealed = [each.number for each in self._log.ledger.blocks if each.active is None]
            for number in sealed[:INDEXES_SPARED_MAX]:
                with contextlib.suppress(FileNotFoundError):
                    directory.files.unlink(directory.file_path(index_name(number)))

    def reclaim_now(self, *, thorough: bool) -> int:
        """Free the disk space of all that was removed so far; return the bytes freed."""
        self._log.health.check_writable()
        with self._log.lock:
            block = self._log.active
            if thorough and block and block.live_disk_bytes < block.bytes - HEADER_BYTES:
                self._log.rotate()
        self._durability.flush()
        self._background.drain()
        self._sealing.write_due_indexes()
        return self.reclaim(thorough=thorough)

    def reclaim(self, *, thorough: bool = False) -> int:
        """Free the disk space of removed messages; return the bytes freed.

        A thorough one rewrites every sealed block that holds more than its live records. While a
        snapshot is being read nothing is given back; the commits after it ask again.
        """
        share = 1 if thorough else SPARSE_SHARE
        with self.rewriting:
            if self._views:
                with self._log.lock:
                    self._log.ledger.want_reclaim()
                return 0
            gained = self._drop_empty_blocks()
            with self._log.lock:
                sparse = [
                    block for block in self._log.ledger.blocks if self._is_sparse(block, share)
                ]
            for block in sparse:
                gained += self.rewrite(block)
        return gained

    def _is_sparse(self, block: Block, share: int) -> bool:
        """Return True if a rewrite of a sealed block would leave less than a `share`-th of it."""
        if block.active is not None or block.index_pinned or not block.live:
            return False
        spare = block.bytes - HEADER_BYTES
        if block.live_disk_bytes * share >= spare:
            return False
        # What is not live may be tombstones that must stay: then nothing is to be had.
        kept_bytes = len(self._still_needed(block, []).encode()) + RECORD_OVERHEAD_BYTES_MAX
        return (block.live_disk_bytes + kept_bytes) * share < spare

    def _sealed_and_empty(self) -> list[Block]:
        return [
            block
            for block in self._log.ledger.blocks
            if block.live == 0 and block.active is None and not block.index_pinned
        ]

    def _drop_empty_blocks(self) -> int:
        with self._log.lock:
            empty = self._sealed_and_empty()
            if not empty:
                return 0
            for block in empty:
                self._log.ledger.removed.update(self._still_needed(block, empty))
        self.spare_room()
        self._carry_last_seq()
        self._durability.flush()
        self._checkpoints.drop()
        with self._log.lock:
            # Without threads the flush may have given back some of them itself.
            empty = [block for block in empty if block in self._log.ledger.blocks]
            for block in empty:
                self._keep_damage_aside(block)
                self.forget_block(block)
                self._log.health.forget_damage(block.number)
        # The ledger knows them no more: no writer and no reader waits for their files to go.
        with self._log.health.changing_blocks():
            for block in empty:
                self.unlink_block(block)
            self._log.directory.files.sync_dir(self._log.directory.path)
        return sum(block.bytes for block in empty)

    def forget_block(self, block: Block) -> None:
        """Know no more of a block without live messages, whose files are to go; under the lock."""
        self._log.cache.forget(block)
        self._log.ledger.drop_block(block)

    def unlink_block(self, block: Block) -> None:
        """Remove the files of a block that was forgotten, the index first.

        So an index without its block always tells that the block was lost.
        """
        # A block that was never committed has no file yet; one that was not sealed has no index.
        for path in (self._log.directory.file_path(index_name(block.number)), block.path):
            with contextlib.suppress(FileNotFoundError):
                self._log.directory.files.unlink(path)

    def _still_needed(self, block: Block, going: list[Block]) -> SequenceSet:
        """Return what a block's tombstones remove whose messages may still lie in other blocks."""
        needed = SequenceSet()
        tombstones = self._log.cache.index_of(block).tombstones
        for other in self._log.ledger.blocks:
            # A block without removed messages has no use for tombstones: it was rewritten since.
            if (
                other is block
                or other in going
                or other.number > block.number
                or not other.dead_count
            ):
                continue
            needed.add_between(tombstones, other.base_seq, other.last_seq)
        return needed

    def _carry_last_seq(self) -> None:
        """Have a block after the sealed ones: its header tells the last sequence when they do not.

        The last message's time is told by the mark, which so far was synced in the system's own
        time.
        """
        with self._log.lock:
            is_needed = self._log.active is None
            if is_needed:
                self._log.new_block()
        if is_needed:
            self._durability.flush()
        self._durability.high_water.sync()

    def _keep_damage_aside(self, block: Block) -> None:
        damaged = [each for each in self._log.health.damage if each.block == block.number]
        if not damaged:
            return
        file = self._log.directory.files.open(block.path, "read")
        try:
            kept_to = 0
            for each in sorted(damaged, key=lambda damage: (damage.offset, -damage.length)):
                start = max(each.offset, kept_to)
                data = file.read_at(start, max(each.offset + each.length - start, 0))
                if data:
                    self._log.directory.quarantine(f"{block.number:06d}-{start}", data)
                    kept_to = start + len(data)
        finally:
            file.close()

    def rewrite(self, block: Block) -> int:
        """Replace a sealed block by one with its live and whole records; return the bytes saved."""
        self._carry_last_seq()
        with self._log.lock:
            if block not in self._log.ledger.blocks or block.active is not None:
                return 0
            old = self._log.cache.index_of(block)
            dead = block.dead_bitmap
            erased = block.erased
            kept = self._still_needed(block, [])
        data = self._read_block(block)
        header, fresh = self._rewritten(
            block, data, old, dead=dead, kept=kept, last_seq=block.last_seq
        )
        temporary = self._write_aside(block, fresh)
        try:
            # What is left out must be gone for good before its bytes are: a message is still wanted
            # if the message that replaced it never became durable.
            self._durability.flush()
            with self._log.lock:
                if (
                    block not in self._log.ledger.blocks
                    or block.generation != old.generation
                    or block.erased != erased
                ):
                    # Rewritten or erased in meanwhile: what was read then must not come back.
                    self._log.directory.files.unlink(temporary)
                    return 0
                self.replace_block(block, temporary, (header, old, fresh.index))
        except OSError:
            with contextlib.suppress(OSError):
                self._log.directory.files.unlink(temporary)
            raise
        return len(data) - block.bytes

    def _read_block(self, block: Block) -> bytes:
        file = self._log.directory.files.open(block.path, "read")
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def _write_aside(self, block: Block, fresh: ActiveBlock) -> str:
        """Write a block's next generation beside it; give the path."""
        temporary = f"{block.path}.{self._log.directory.unique()}.tmp"
        target = self._log.directory.files.open(temporary, "create")
        try:
            image = fresh.take()
            assert image is not None, "a block has its header at the least"
            write_all(target, 0, memoryview(image))
            target.sync_data()
        except OSError:
            with contextlib.suppress(OSError):
                self._log.directory.files.unlink(temporary)
            raise
        finally:
            target.close()
        return temporary

    def replace_block(
        self,
        block: Block,
        temporary: str,
        generation: tuple[BlockHeader, BlockIndex, BlockIndex],
    ) -> None:
        """Put a block's next generation in its place: (its header, the old index, its own)."""
        header, old, index = generation
        self._keep_damage_aside(block)
        self._checkpoints.drop()
        self._log.directory.files.rename(
            temporary, self._log.directory.file_path(block_name(block.number))
        )
        # The file is another one from here on, whatever fails: so must the ledger be.
        self._log.health.forget_damage(block.number)
        self._log.cache.forget(block)
        index.freeze()
        self._log.ledger.replace_index(block, old, index, header.seed)
        block.header = header
        block.expiring = index.expiry_count
        block.index = index
        block.index_pinned = True
        with self._log.health.changing_blocks():
            self._log.directory.files.sync_dir(self._log.directory.path)
        image = index.encode()
        self._log.directory.replace_index(block.number, image)
        block.index = BlockIndex.load(image, block.path)
        block.index_pinned = False
        self._log.cache.admit(block)

    def cut_block(self, block: Block, seq: int, removed: SequenceSet) -> None:
        """Rewrite a sealed block without what is above `seq`, and with tombstones of `removed`.

        Under the lock, with no commit under way: what is above is dead, and durably so.
        """
        old = self._log.cache.index_of(block)
        data = self._read_block(block)
        header, fresh = self._rewritten(
            block, data, old, dead=block.dead_bitmap, kept=removed, last_seq=seq
        )
        temporary = self._write_aside(block, fresh)
        try:
            self.replace_block(block, temporary, (header, old, fresh.index))
        except OSError:
            with contextlib.suppress(OSError):
                self._log.directory.files.unlink(temporary)
            raise

    def _rewritten(
        self,
        block: Block,
        data: bytes,
        old: BlockIndex,
        *,
        dead: bytes,
        kept: SequenceSet,
        last_seq: int,
    ) -> tuple[BlockHeader, ActiveBlock]:
        """Build a block's next generation: live records, `kept` as tombstones, to `last_seq`."""
        name = self._log.settings.config.name.encode()
        before = decode_block_header(old.header, block.path)
        generation = before.generation + 1
        key, wrapped = new_data_key(
            self._log.settings.config.cipher,
            name,
            self._log.settings.key,
            block.number,
            generation,
            self._log.settings.random_bytes,
        )
        header = before.next_generation(
            created_ns=self._log.settings.clock.now_ns(),
            cipher=self._log.settings.config.cipher,
            wrapped_key=wrapped,
        )
        open_old = unsealer(before, name, self._log.settings.key, block.path)

        def reseal(
            seq: int, timestamp_ns: int, subject: bytes, headers: bytes, payload: bytes
        ) -> bytes:
            plain_headers, plain_payload = open_old(seq, timestamp_ns, subject, headers, payload)
            place = RecordIdentity(name, seq, timestamp_ns, subject)
            compression = self._log.settings.config.compression
            return seal(plain_headers, plain_payload, place, compression=compression, key=key)

        index = BlockIndex(
            block.number, generation, block.base_seq, encode_block_header(header), SubjectTable()
        )
        fresh = ActiveBlock(index, block.path, header.seed)
        needs_reseal = (
            before.cipher
            or self._log.settings.config.cipher
            or (self._log.settings.config.compression is not Compression.NONE)
        )
        damaged = fresh.copy_live(data, block.seed, old, dead, reseal if needs_reseal else None)
        if kept:
            fresh.append_tombstone(kept, last_seq, self._log.settings.clock.now_ns())
        elif fresh.index.last_seq < last_seq:
            # The next block begins after `last_seq`, and nothing may seem to be missing in between.
            first = fresh.index.last_seq + 1
            fresh.append_skip(first, last_seq - first + 1, self._log.settings.clock.now_ns())
        for ordinal in damaged:
            self._lose(block, old, ordinal)
        return header, fresh

    def _lose(self, block: Block, old: BlockIndex, ordinal: int) -> None:
        seq, offset, length, *_ = old.entry(ordinal)
        with self._log.lock:
            self._log.health.report_damage(
                Damage(block.number, offset, length, "record checksum differs", seq, seq)
            )
            self._log.ledger.remove(seq)
