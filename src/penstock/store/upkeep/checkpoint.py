"""The checkpoint of a stream: taking it, writing it, dropping it, and the last one at a stop.

A checkpoint sums up every record to the end of the last block. It is written after some blocks were
sealed and at a stop. Without one the next open adds up the block indexes instead.

At a stop the block that is being written is sealed if it is long enough: with its index on disk the
next open finds it covered by the checkpoint as any other, neither walks through it nor keeps its
index in memory, and goes on in a new one.

Invariant: the checkpoint is dropped, durably, before a block is removed or rewritten, which would
make it wrong.

Thread: any, never under the store's lock except where a method says so.
"""

from __future__ import annotations

import contextlib
import threading

from penstock.format.block import BlockSummary
from penstock.format.layout import STATE_NAME
from penstock.format.state.checkpoint import Checkpoint, encode_checkpoint
from penstock.limits import CHECKPOINT_BLOCKS
from penstock.store.commit.durability import Durability
from penstock.store.log.block import Block
from penstock.store.log.log import Log, writing
from penstock.store.threads import Background
from penstock.store.upkeep.sealing import Sealing


class Checkpoints:
    """The checkpoint of one store; see the module."""

    def __init__(
        self,
        log: Log,
        durability: Durability,
        sealing: Sealing,
        background: Background,
        rewriting: threading.RLock,
    ) -> None:
        self._log = log
        self._durability = durability
        self._sealing = sealing
        self._background = background
        self._rewriting = rewriting
        self._is_on_disk = False
        self._changes = 0
        """Counts what makes a sum of the blocks stale: rewritten and removed ones."""

    @property
    def is_due(self) -> bool:
        """Whether so many blocks were sealed that a checkpoint is worth its while."""
        return (
            self._sealing.sealed_since_checkpoint >= CHECKPOINT_BLOCKS
            and not self._log.settings.is_volatile
        )

    def note_found(self, *, is_on_disk: bool) -> None:
        """Note whether recovery found the file of a checkpoint, of use or not."""
        self._is_on_disk = is_on_disk

    def note_blocks_going(self) -> None:
        """Note that blocks are about to be removed: a sum that is being taken is stale."""
        self._changes += 1

    def note_removed(self) -> None:
        """Note that the file of the checkpoint is gone."""
        self._is_on_disk = False

    def write_if_open(self) -> None:
        """Write a checkpoint, unless the store has failed or was stopped meanwhile."""
        if self._log.health.failure is None and not self._log.health.closed:
            self.write()

    def drop_now(self) -> None:
        """Remove the checkpoint, so that the next open adds up the blocks; not under the lock."""
        with self._rewriting:
            self.drop()

    def _take(self) -> Checkpoint:
        """Sum the stream up, under the lock."""
        ledger = self._log.ledger
        return Checkpoint(
            salt=self._log.salt,
            messages=ledger.messages,
            bytes=ledger.bytes,
            first_seq=ledger.first_seq,
            first_time_ns=ledger.first_time_ns,
            last_seq=ledger.last_seq,
            last_time_ns=ledger.last_time_ns,
            blocks=tuple(_summary(block) for block in ledger.blocks),
            subjects=ledger.table.encode(),
            damage=tuple(self._log.health.damage),
        )

    def write(self) -> None:
        """Write a checkpoint of what is durable; not under the lock."""
        with self._rewriting:
            self._log.directory.replace_file(STATE_NAME, encode_checkpoint(self._settled()))
            with self._log.lock:
                self._is_on_disk = True

    def _settled(self) -> Checkpoint:
        """Return a checkpoint all of which is durable."""
        while True:
            with self._log.lock:
                state = self._take()
                changes = self._changes
            self._durability.flush()
            with self._log.lock:
                # Without threads the flush may have rewritten or removed blocks itself.
                if self._changes == changes:
                    self._sealing.count_anew()
                    return state

    def drop(self) -> None:
        """Remove the checkpoint before it becomes wrong; its absence is durable when this returns.

        The caller holds `rewriting`, so no other thread writes a checkpoint meanwhile; the lock is
        not needed.
        """
        self._changes += 1
        if not self._is_on_disk:
            return
        with self._log.health.changing_blocks():
            with contextlib.suppress(FileNotFoundError):
                self._log.directory.files.unlink(self._log.directory.file_path(STATE_NAME))
            self._log.directory.files.sync_dir(self._log.directory.path)
        self._is_on_disk = False

    def write_at_stop(self) -> None:
        """Make everything durable, and sum it up for the next open; raises."""
        self._durability.flush()
        self._background.drain()
        self._durability.cut_room()
        self._seal_last_block()
        self.write()
        self._durability.high_water.sync()

    def _seal_last_block(self) -> None:
        with self._rewriting, self._log.lock:
            block = self._log.active
            if (
                block is None
                or block.bytes < self._log.settings.config.resting_bytes_min
                or self._log.settings.is_volatile
            ):
                return
            index = writing(block).index
            index.freeze()
            # Without an index the next open builds it again, as for any block.
            with contextlib.suppress(OSError):
                self._log.directory.replace_index(block.number, index.encode())
            block.expiring = index.expiry_count
            self._durability.release(block)


def _summary(block: Block) -> BlockSummary:
    expiring = block.expiring if block.index is None else block.index.expiry_count
    return BlockSummary(
        number=block.number,
        generation=block.generation,
        base_seq=block.base_seq,
        last_seq=block.last_seq,
        count=block.count,
        live=block.live,
        bytes=block.bytes,
        live_bytes=block.live_bytes,
        live_disk_bytes=block.live_disk_bytes,
        first_time_ns=block.first_time_ns,
        last_time_ns=block.last_time_ns,
        expiring=expiring,
        dead=block.dead_bitmap,
    )
