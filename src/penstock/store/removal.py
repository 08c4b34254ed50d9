"""Removing messages on request: delete, erase, purge, compact, truncate.

Each takes the engine's lock for the bookkeeping and gives it back before anything is flushed; the
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
from penstock.store.block_account import Block
from penstock.store.checkpoint import drop_checkpoint
from penstock.store.compaction import cut_block, forget_block, unlink_block
from penstock.store.engine import Engine
from penstock.store.questions import count_from
from penstock.store.vfs import write_all
from penstock.subjects import SubjectFilter


def erase(engine: Engine, seq: int) -> bool:
    """Remove a message, make that durable, and overwrite its bytes on the disk."""
    with engine.lock:
        engine.check_writable()
        try:
            block, _, _ = engine.ledger.place_of(seq)
        except RecordNotFound:
            return False
        engine.ledger.remove(seq)
    engine.flush()
    with engine.rewriting:
        with engine.lock:
            # The block may have been rewritten since: with the message or without it.
            is_there = block in engine.ledger.blocks
            index = engine.cache.index_of(block) if is_there else None
            ordinal = None if index is None else index.ordinal_of(seq)
            if index is None or ordinal is None:
                return True
            _, offset, length, *_ = index.entry(ordinal)
            block.erased += 1
            if block.active is not None:
                block.active.forget_written()
        # The subject goes too, and a checkpoint still counts on it.
        drop_checkpoint(engine)
        with engine.changing_blocks():
            _overwrite(engine, block, offset, length)
    return True


def _overwrite(engine: Engine, block: Block, offset: int, length: int) -> None:
    """Put a record of the same length in its place, with noise for everything but its trailer."""
    file = engine.files.open(block.path, "update")
    try:
        seed = (block.seed + offset) & 0xFFFF_FFFF_FFFF_FFFF
        image = _noise_like(file.read_at(offset, length), seed, engine.random_bytes)
        write_all(file, offset, image)
        file.sync_data()
    finally:
        file.close()


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


def purge(
    engine: Engine,
    subjects: SubjectFilter | None,
    *,
    seq: int = 0,
    keep: int = 0,
    durable: bool = True,
) -> int:
    """Remove the wanted messages below `seq` (0: all of them), but the newest `keep`."""
    with engine.lock:
        engine.check_writable()
        ledger = engine.ledger
        everything = subjects is None or subjects.everything
        if everything and not seq and not keep:
            removed = ledger.messages
            # Before its subjects go: a sealed block takes their names along.
            engine.seal_active()
            ledger.clear()
            engine.expiries.clear()
        else:
            last = seq - 1 if seq else ledger.last_seq
            limit = max(count_from(ledger, subjects, 0) - keep, 0) if keep else -1
            removed = ledger.remove_range(0, last, subjects, limit)[0]
    if durable:
        engine.flush()
    else:
        engine.changed()
    engine.background.submit(engine.reclaim_job)
    return removed


def compact(engine: Engine, seq: int, *, durable: bool = True) -> int:
    """Remove everything below `seq`, which becomes the first sequence."""
    with engine.lock:
        engine.check_writable()
        beyond = seq > engine.ledger.last_seq
    if beyond:
        removed = purge(engine, None, durable=durable)
        with engine.lock:
            gap = seq - 1 - engine.ledger.last_seq
            if gap > 0:
                engine.append_skip(engine.ledger.last_seq + 1, gap)
        if durable:
            engine.flush()
        else:
            engine.changed()
        return removed
    return purge(engine, None, seq=seq, durable=durable) if seq else 0


def truncate(engine: Engine, seq: int) -> None:
    """Remove everything above `seq`, which must exist, and go on after it.

    First what is above is removed as any message is; when that is durable the files are cut. A
    crash in between leaves a stream without those messages that still goes on after them.
    """
    with engine.rewriting:
        with engine.lock:
            engine.check_writable()
            message = engine.ledger.load(seq)
            last_seq = engine.ledger.last_seq
            if seq < last_seq:
                engine.ledger.remove_range(seq + 1, last_seq)
                engine.ledger.removed.add_range(seq + 1, last_seq)
                engine.seal_active()
        engine.flush()
        if seq == last_seq:
            return
        engine.write_due_indexes()
        with engine.committer.exclusive(), engine.lock:
            engine.check_writable()
            _cut_back(engine, seq, message.timestamp_ns)
    engine.flush()


def _cut_back(engine: Engine, seq: int, timestamp_ns: int) -> None:
    """Cut the files behind message `seq`; nothing above it is live any more."""
    ledger = engine.ledger
    ledger.remove_range(seq + 1, ledger.last_seq)
    last, *later = [block for block in ledger.blocks if block.last_seq >= seq]
    kept = SequenceSet()
    for block in (last, *later):
        index = engine.cache.index_of(block)
        for low, high in index.tombstones.ranges_between(0, seq):
            kept.add_range(low, high)
    for block in later:
        engine.release(block)
    cut_block(engine, last, seq, kept)
    last.cut(seq)
    ledger.cut(seq, timestamp_ns)
    engine.durable_seq = min(engine.durable_seq, seq)
    with engine.changing_blocks():
        engine.high_water.place = (last.number, last.bytes)
        engine.high_water.write(seq, timestamp_ns, engine.salt)
        engine.high_water.sync()
        # The last of them tells that all are removed: it goes when the others are gone for good.
        for block in later:
            if block is later[-1]:
                engine.files.sync_dir(engine.path)
            forget_block(engine, block)
            unlink_block(engine, block)
        engine.files.sync_dir(engine.path)


def reset(engine: Engine) -> None:
    """Forget everything, sequences too."""
    purge(engine, None)
    engine.background.drain()
    with engine.rewriting, engine.committer.exclusive(), engine.lock:
        # A block whose removal failed is still there, and only a later one tells of its end.
        engine.check_writable()
        _wipe(engine)
    engine.flush()


def _wipe(engine: Engine) -> None:
    """Remove every file of an emptied stream and begin with sequence 1; under the lock.

    No commit may be under way. The sums go first: without the blocks they would tell of a loss. The
    blocks go in order, so that the last to go is the one that tells that all of the stream was
    purged.
    """
    engine.block_changes += 1
    with engine.changing_blocks():
        engine.high_water.close()
        _unlink_all(engine, HIGH_WATER_NAME, STATE_NAME)
        for block in list(engine.ledger.blocks):
            if block.active is not None and block.active.file is not None:
                block.active.file.close()
            _unlink_all(engine, index_name(block.number), block_name(block.number))
    engine.disk.forget()
    engine.checkpoint_on_disk = False
    engine.start_over()
    engine.durable_seq = 0
    engine.high_water.place = (0, 0)


def _unlink_all(engine: Engine, *names: str) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            engine.files.unlink(engine.file_path(name))
    engine.files.sync_dir(engine.path)
