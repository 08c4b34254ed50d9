"""Removing messages on request: delete, erase, purge, compact, truncate.

Each takes the log's lock for the bookkeeping and gives it back before anything is flushed; the
disk space comes back through `compaction`. Deletes are appended facts: a tombstone goes to the disk
in the commit that the caller waits for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from penstock.errors import FormatError, RecordNotFound
from penstock.format.layout import HIGH_WATER_NAME, STATE_NAME, block_name, index_name
from penstock.format.record import COMMIT_START, DELETED, decode, encode
from penstock.format.sequence_set import SequenceSet
from penstock.store.commit.durability import Durability
from penstock.store.log.block import Block
from penstock.store.log.log import Log
from penstock.store.log.queries import count_from
from penstock.store.threads import Background
from penstock.store.upkeep.checkpoint import Checkpoints
from penstock.store.upkeep.compaction import Compaction
from penstock.store.upkeep.sealing import Sealing
from penstock.store.vfs import write_all
from penstock.subjects import SubjectFilter


class Removal:
    """Removes messages of one store; see the module."""

    def __init__(
        self,
        log: Log,
        durability: Durability,
        sealing: Sealing,
        checkpoints: Checkpoints,
        compaction: Compaction,
        background: Background,
    ) -> None:
        self._log = log
        self._durability = durability
        self._sealing = sealing
        self._checkpoints = checkpoints
        self._compaction = compaction
        self._background = background

    def erase(self, seq: int) -> bool:
        """Remove a message, make that durable, and overwrite its bytes on the disk."""
        with self._log.lock:
            self._log.health.check_writable()
            try:
                block, _, _ = self._log.ledger.place_of(seq)
            except RecordNotFound:
                return False
            self._log.ledger.remove(seq)
        self._durability.flush()
        with self._compaction.rewriting:
            with self._log.lock:
                # The block may have been rewritten since: with the message or without it.
                is_there = block in self._log.ledger.blocks
                index = self._log.cache.index_of(block) if is_there else None
                ordinal = None if index is None else index.ordinal_of(seq)
                if index is None or ordinal is None:
                    return True
                _, offset, length, *_ = index.entry(ordinal)
                block.erased += 1
                if block.active is not None:
                    block.active.forget_written()
            # The subject goes too, and a checkpoint still counts on it.
            self._checkpoints.drop()
            with self._log.health.changing_blocks():
                self._overwrite(block, offset, length)
        return True

    def _overwrite(self, block: Block, offset: int, length: int) -> None:
        """Put a record of the same length in its place, with noise for all but its trailer."""
        file = self._log.directory.files.open(block.path, "update")
        try:
            seed = (block.seed + offset) & 0xFFFF_FFFF_FFFF_FFFF
            image = _noise_like(file.read_at(offset, length), seed, self._log.settings.random_bytes)
            write_all(file, offset, image)
            file.sync_data()
        finally:
            file.close()

    def purge(
        self,
        subjects: SubjectFilter | None,
        *,
        seq: int = 0,
        keep: int = 0,
        durable: bool = True,
    ) -> int:
        """Remove the wanted messages below `seq` (0: all of them), but the newest `keep`."""
        with self._log.lock:
            self._log.health.check_writable()
            ledger = self._log.ledger
            everything = subjects is None or subjects.everything
            if everything and not seq and not keep:
                removed = ledger.messages
                # Before its subjects go: a sealed block takes their names along.
                self._log.seal_active()
                ledger.clear()
                self._log.expiries.clear()
            else:
                last = seq - 1 if seq else ledger.last_seq
                limit = max(count_from(ledger, subjects, 0) - keep, 0) if keep else -1
                removed = ledger.remove_range(0, last, subjects, limit)[0]
        if durable:
            self._durability.flush()
        else:
            self._durability.changed()
        self._compaction.submit()
        return removed

    def compact(self, seq: int, *, durable: bool = True) -> int:
        """Remove everything below `seq`, which becomes the first sequence."""
        with self._log.lock:
            self._log.health.check_writable()
            beyond = seq > self._log.ledger.last_seq
        if beyond:
            removed = self.purge(None, durable=durable)
            with self._log.lock:
                gap = seq - 1 - self._log.ledger.last_seq
                if gap > 0:
                    self._log.append_skip(self._log.ledger.last_seq + 1, gap)
            if durable:
                self._durability.flush()
            else:
                self._durability.changed()
            return removed
        return self.purge(None, seq=seq, durable=durable) if seq else 0

    def truncate(self, seq: int) -> None:
        """Remove everything above `seq`, which must exist, and go on after it.

        First what is above is removed as any message is; when that is durable the files are cut. A
        crash in between leaves a stream without those messages that still goes on after them.
        """
        with self._compaction.rewriting:
            with self._log.lock:
                self._log.health.check_writable()
                message = self._log.ledger.load(seq)
                last_seq = self._log.ledger.last_seq
                if seq < last_seq:
                    self._log.ledger.remove_range(seq + 1, last_seq)
                    self._log.ledger.removed.add_range(seq + 1, last_seq)
                    self._log.seal_active()
            self._durability.flush()
            if seq == last_seq:
                return
            self._sealing.write_due_indexes()
            with self._durability.exclusive(), self._log.lock:
                self._log.health.check_writable()
                self._cut_back(seq, message.timestamp_ns)
        self._durability.flush()

    def _cut_back(self, seq: int, timestamp_ns: int) -> None:
        """Cut the files behind message `seq`; nothing above it is live any more."""
        ledger = self._log.ledger
        ledger.remove_range(seq + 1, ledger.last_seq)
        last, *later = [block for block in ledger.blocks if block.last_seq >= seq]
        kept = SequenceSet()
        for block in (last, *later):
            index = self._log.cache.index_of(block)
            kept.add_between(index.tombstones, 0, seq)
        for block in later:
            self._durability.release(block)
        self._compaction.cut_block(last, seq, kept)
        last.cut(seq)
        ledger.end_at(seq, timestamp_ns)
        self._durability.commits.go_on_after(min(self._durability.durable_seq, seq))
        with self._log.health.changing_blocks():
            self._durability.high_water.stand_at(last.number, last.bytes)
            self._durability.high_water.write(seq, timestamp_ns, self._log.salt)
            self._durability.high_water.sync()
            # The last of them tells that all are removed: it goes when the others are gone for
            # good.
            for block in later:
                if block is later[-1]:
                    self._log.directory.files.sync_dir(self._log.directory.path)
                self._compaction.forget_block(block)
                self._compaction.unlink_block(block)
            self._log.directory.files.sync_dir(self._log.directory.path)

    def reset(self) -> None:
        """Forget everything, sequences too."""
        self.purge(None)
        self._background.drain()
        with self._compaction.rewriting, self._durability.exclusive(), self._log.lock:
            # A block whose removal failed is still there, and only a later one tells of its end.
            self._log.health.check_writable()
            self._wipe()
        self._durability.flush()

    def _wipe(self) -> None:
        """Remove every file of an emptied stream and begin with sequence 1; under the lock.

        No commit may be under way. The sums go first: without the blocks they would tell of a loss.
        The blocks go in order, so that the last to go is the block that records the purge of all.
        """
        self._checkpoints.note_blocks_going()
        with self._log.health.changing_blocks():
            self._durability.high_water.close()
            self._unlink_all(HIGH_WATER_NAME, STATE_NAME)
            for block in list(self._log.ledger.blocks):
                if block.active is not None and block.active.file is not None:
                    block.active.file.close()
                self._unlink_all(index_name(block.number), block_name(block.number))
        self._durability.disk.forget()
        self._checkpoints.note_removed()
        self._log.start_over()
        self._durability.commits.go_on_after(0)
        self._durability.high_water.stand_at(0, 0)

    def _unlink_all(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._log.directory.files.unlink(self._log.directory.file_path(name))
        self._log.directory.files.sync_dir(self._log.directory.path)


def _noise_like(data: bytes, seed: int, random_bytes: Callable[[int], bytes]) -> bytes:
    try:
        record = decode(data, seed=seed)
    except FormatError:
        # It was damaged before, and its lengths mean nothing.
        return random_bytes(len(data))
    return encode(
        random_bytes(len(record.subject)),
        random_bytes(len(record.headers)),
        random_bytes(len(record.payload)),
        seq=record.seq,
        timestamp_ns=record.timestamp_ns,
        flags=DELETED | record.flags & COMMIT_START,
        expires_ns=record.expires_ns,
        seed=seed,
    )
