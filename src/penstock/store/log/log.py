"""The log of one open store: its ledger, the block that is being written, and appending to it.

Messages, removals and gaps are appended to the active block in memory (`writer`); a full block is
sealed and the next one started. Commits take the pending bytes from here (`unwritten`), and sealing
takes the blocks whose index is still to be written (`unsealed_index`).

Invariant: blocks are numbered in the order in which they were started, and no number is used twice;
a block is written to only while it is the active one; nothing here writes to a block's file.

Thread: any, under `lock`, except where a method says otherwise. The lock is never held during a
write or a sync.
"""

from __future__ import annotations

import contextlib
import threading

from penstock.format.block import HEADER_BYTES, BlockHeader, encode_block_header
from penstock.format.envelope import (
    Cipher,
    Compression,
    DataKey,
    new_data_key,
    unsealer,
)
from penstock.format.index.block_index import BlockIndex
from penstock.format.layout import block_name
from penstock.limits import BLOCK_BYTES_MAX
from penstock.store.directory import StoreDirectory
from penstock.store.health import StoreHealth
from penstock.store.log.active_block import ActiveBlock
from penstock.store.log.block import Block
from penstock.store.log.block_cache import BlockCache
from penstock.store.log.ledger import Ledger
from penstock.store.log.writer import LogWriter
from penstock.store.settings import StoreSettings
from penstock.store.upkeep.expiry import Expiries, Timekeeper

_SEQ_DELTA_MAX = 2**32 - 1


class Log:
    """The messages of one store, and the way in for more; see the module."""

    def __init__(
        self,
        settings: StoreSettings,
        directory: StoreDirectory,
        health: StoreHealth,
        lock: threading.RLock,
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.health = health
        self.lock = lock
        """Guards the ledger and the active block."""

        self.cache = BlockCache(settings, directory, health)
        self.times = Timekeeper(settings.clock)
        self.expiries = Expiries(self.times)
        self.ledger = self._new_ledger()
        self.writer = self._new_writer()
        """Appends messages and gaps."""

        self.salt = 0
        self.active: Block | None = None
        self.unwritten: list[ActiveBlock] = []  # and the one that is added to, in any case
        self.unsealed_index: list[Block] = []
        self._next_number = 1
        self.data_key: DataKey | None = None
        """Of the block that was started last; None where nothing is encrypted."""

    def _new_ledger(self) -> Ledger:
        # As the reference server counts what it keeps on disk, and in memory.
        overheads = (16, 0) if self.settings.is_volatile else (30, 4)
        ledger = Ledger(
            self.cache.load_index,
            self.cache.open_files,
            self.cache.count_wanted,
            expiries=self.expiries,
            message_overhead=overheads[0],
            headers_overhead=overheads[1],
        )
        self.cache.follow(ledger)
        return ledger

    def _new_writer(self) -> LogWriter:
        return LogWriter(self, self.ledger, self.expiries, self.settings.config)

    def configure(self) -> None:
        """Go by the configuration in the settings, which has changed; no limit is applied yet."""
        self.writer.configure(self.settings.config)

    # Recovery

    def start_over(self) -> None:
        """Forget everything: what recovery has gathered so far, or a stream that is wiped."""
        self.cache.close()
        self.ledger = self._new_ledger()
        self.writer = self._new_writer()
        self.times.forget_all()
        self.expiries.clear()
        self.health.forget_all_damage()
        self.unwritten.clear()
        self.unsealed_index.clear()
        self.active = None

    def use_salt(self, salt: int) -> None:
        """Take the salt of the stream's checksums; 0 if it has none yet."""
        self.salt = salt

    def number_after(self, number: int) -> None:
        """Number the next block above this one."""
        self._next_number = number + 1

    def raise_last_time(self, time_ns: int) -> None:
        """Stamp no message with an earlier time than this."""
        ledger = self.ledger
        ledger.end_at(ledger.last_seq, max(ledger.last_time_ns, time_ns))

    # Blocks

    def new_block(self, base_seq: int | None = None) -> Block:
        """Start a block after the last one; its file appears with the first commit.

        It begins with the next sequence, or with a later `base_seq`.
        """
        number = self._next_number
        self._next_number += 1
        if base_seq is None:
            base_seq = self.ledger.last_seq + 1
        last = self.ledger.blocks[-1] if self.ledger.blocks else None
        chained = 0 if last is None else self.cache.last_checksum(last)
        cipher = self.settings.config.cipher
        self.data_key, wrapped = new_data_key(
            cipher,
            self.settings.config.name.encode(),
            self.settings.key,
            number,
            0,
            self.settings.random_bytes,
        )
        header = BlockHeader(
            number=number,
            salt=self.salt,
            base_seq=base_seq,
            created_ns=self.settings.clock.now_ns(),
            previous_checksum=chained,
            cipher=cipher,
            wrapped_key=wrapped,
        )
        path = self.directory.file_path(block_name(number))
        index = BlockIndex(number, 0, base_seq, encode_block_header(header), self.ledger.table)
        block = Block(number, 0, base_seq, header.seed, path)
        block.header = header
        block.follow(index)
        usual_bytes = 0 if last is None or last.active is None else last.active.usual_bytes
        self.attach(block, ActiveBlock(index, path, header.seed, usual_bytes=usual_bytes))
        self.ledger.add_block(block)
        return block

    def attach(self, block: Block, active: ActiveBlock) -> None:
        """Make a block the one that is written to."""
        block.active = active
        block.index = active.index
        block.index_pinned = True
        header = block.header
        assert header is not None, "a block is written to only with its header known"
        if header.cipher != Cipher.NONE or self.settings.config.compression is not Compression.NONE:
            block.unseal = unsealer(
                header, self.settings.config.name.encode(), self.settings.key, active.path
            )
        self.unwritten.append(active)
        self.active = block

    def _active_block(self) -> Block:
        """Return the block being written, after starting one if there is none."""
        return self.active if self.active is not None else self.new_block()

    def room_for(self, record_bytes: int, seq: int) -> Block:
        """Return the active block, or a new one if the record would not fit."""
        block = self._active_block()
        # A block of tombstones alone goes on: to seal it early would only move them on.
        bytes_max = self.settings.config.block_bytes if block.count else BLOCK_BYTES_MAX // 2
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
        if block in self.unsealed_index:
            self.unsealed_index.remove(block)
        if block is self.active:
            self.active = None
        block.active = None
        block.index_pinned = False

    # Appending

    def append_skip(self, seq: int, count: int) -> None:
        """Reserve `count` sequences from `seq` on."""
        self.writer.append_skip(seq, count, self.settings.clock.now_ns())

    def now_ns(self) -> int:
        """Return a stamp: the wall clock, but never before the stream's last message."""
        return max(self.settings.clock.now_ns(), self.ledger.last_time_ns)

    def pending_bytes(self) -> int:
        """Return how many bytes no commit has taken yet; any thread, without the lock."""
        return sum(active.pending_bytes for active in self.unwritten)

    def forget_written(self) -> None:
        """Let go of the blocks that are written and as long as they should be, but the active."""
        current = None if self.active is None else self.active.active
        self.unwritten = [
            active
            for active in self.unwritten
            if active.pending_bytes or active.has_room or active is current
        ]

    def settle_sealed(self, block: Block) -> None:
        """Let go of a sealed block's memory: from now on its files answer for it."""
        self.unsealed_index.remove(block)
        active = writing(block)
        if active.file is not None:
            with contextlib.suppress(OSError):
                active.file.close()
        block.active = None
        block.expiring = active.index.expiry_count
        block.index_pinned = False
        self.cache.admit(block)
        if block.live_disk_bytes * 2 < block.bytes - HEADER_BYTES:
            self.ledger.want_reclaim()

    def close(self) -> None:
        """Close every file."""
        for block in self.ledger.blocks:
            if block.active is not None and block.active.file is not None:
                block.active.file.close()
        self.cache.close()


def writing(block: Block) -> ActiveBlock:
    """Return the part of a block that is being written."""
    assert block.active is not None, "only a block that is not sealed is written to"
    return block.active
