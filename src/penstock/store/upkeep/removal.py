"""Removing messages on request: delete, erase, purge, compact, truncate.

Each takes the log's lock for the bookkeeping and gives it back before anything is flushed; the
disk space comes back through `compaction`. Deletes are appended facts: a tombstone goes to the disk
in the commit that the caller waits for.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from operator import attrgetter

from penstock.errors import FormatError, RecordNotFound
from penstock.format.layout import HIGH_WATER_NAME, STATE_NAME, block_name, index_name
from penstock.format.record import COMMIT_START, DELETED, decode, encode
from penstock.format.sequence_set import SequenceSet
from penstock.limits import REMOVED_AT_ONCE, SEQUENCE_MAX
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
        self._compaction.spare_room()
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
        self._compaction.spare_room()
        with self._log.lock:
            removed = sum(self._purge_slices(subjects, seq, keep))
        self._settle(durable=durable)
        return removed

    def _settle(self, *, durable: bool) -> None:
        if durable:
            self._durability.flush()
        else:
            self._durability.changed()
        self._compaction.submit()

    def purge_in_slices(
        self, subjects: SubjectFilter | None, *, seq: int = 0, keep: int = 0
    ) -> Generator[None, None, int]:
        """Remove what `purge` would, some messages at a time; return how many.

        Between two slices messages may come and go; what comes stays.
        """
        self._compaction.spare_room()
        return self._in_slices(self._purge_slices(subjects, seq, keep))

    def _in_slices(self, slices: Iterator[int]) -> Generator[None, None, int]:
        purged = 0
        for removed in slices:
            purged += removed
            self._durability.changed()
            yield
        self._compaction.submit()
        return purged

    def _purge_slices(self, subjects: SubjectFilter | None, seq: int, keep: int) -> Iterator[int]:
        log, ledger = self._log, self._log.ledger
        everything = subjects is None or subjects.everything
        with log.lock:
            log.health.check_writable()
            last = seq - 1 if seq else ledger.last_seq
            removed = ledger.messages
            if everything and not seq and not keep:
                # Before its subjects go: a sealed block takes their names along.
                log.seal_active()
                ledger.clear()
                log.expiries.clear()
        if everything and not seq and not keep:
            yield removed
            return
        start, too_many = 0, _TooMany(log, subjects, keep)
        while start <= last:
            with log.lock:
                log.health.check_writable()
                # One block at a time: its index may have to be read.
                place = bisect_left(ledger.blocks, start, key=attrgetter("last_seq"))
                is_last = place >= len(ledger.blocks) - 1
                end = last if is_last else min(ledger.blocks[place].last_seq, last)
                limit = min(too_many.count(), REMOVED_AT_ONCE)
                removed = ledger.remove_range(start, end, subjects, limit)[0] if limit else 0
                too_many.removed(removed)
                if removed < REMOVED_AT_ONCE:
                    start = last + 1 if removed == limit else end + 1
            yield removed

    def compact(self, seq: int, *, durable: bool = True) -> int:
        """Remove everything below `seq`, which becomes the first sequence."""
        with self._log.lock:
            removed = sum(self._compact_slices(seq))
        self._settle(durable=durable)
        return removed

    def compact_in_slices(self, seq: int) -> Generator[None, None, int]:
        """Remove what `compact` would, as `purge_in_slices` does."""
        self._compaction.spare_room()
        return self._in_slices(self._compact_slices(seq))

    def _compact_slices(self, seq: int) -> Iterator[int]:
        log = self._log
        with log.lock:
            log.health.check_writable()
            beyond, removed = seq - 1 - log.ledger.last_seq, 0
            if beyond >= 0:
                removed = sum(self._purge_slices(None, 0, 0))
                if beyond:
                    log.append_skip(log.ledger.last_seq + 1, beyond)
        yield removed
        if seq and beyond < 0:
            yield from self._purge_slices(None, seq, 0)

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


class _TooMany:
    """How many of the wanted messages of a moment are there beside the newest, which stay."""

    def __init__(self, log: Log, subjects: SubjectFilter | None, keep: int) -> None:
        self._log = log
        self._subjects = subjects
        self._last = log.ledger.last_seq
        self._keep = keep
        self._seen = (-1, -1)
        self._count = SEQUENCE_MAX

    def count(self) -> int:
        """Return their number now; under the lock."""
        ledger = self._log.ledger
        if self._keep and self._seen != (ledger.messages, ledger.last_seq):
            # Others have stored or removed messages.
            later = count_from(ledger, self._subjects, self._last + 1)
            there = count_from(ledger, self._subjects, 0) - later
            self._count = max(there - self._keep, 0)
        return self._count

    def removed(self, count: int) -> None:
        """Note that so many of them were removed."""
        self._count -= count
        self._seen = (self._log.ledger.messages, self._log.ledger.last_seq)


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
