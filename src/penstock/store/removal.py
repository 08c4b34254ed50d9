"""Removing messages on request: delete, erase, purge, compact, truncate.

Each takes the engine's lock for the bookkeeping and gives it back before anything is flushed; the
disk space comes back through `compaction`. Deletes are appended facts: a tombstone goes to the disk
in the commit that the caller waits for.
"""

from __future__ import annotations

import contextlib

from penstock.errors import RecordNotFound
from penstock.format.block import HEADER_BYTES
from penstock.format.block_index import BlockIndex
from penstock.format.layout import index_name
from penstock.format.record import DELETED, decode, encode
from penstock.format.sequence_set import SequenceSet
from penstock.store.block_cache import build_index
from penstock.store.checkpoint import drop_checkpoint
from penstock.store.engine import Engine
from penstock.store.ledger import Block
from penstock.store.vfs import write_all
from penstock.subjects import SubjectFilter


def erase(engine: Engine, seq: int) -> bool:
    """Remove a message, make that durable, and overwrite its bytes on the disk."""
    with engine.lock:
        engine.check_writable()
        try:
            block, offset, length = engine.ledger.place_of(seq)
        except RecordNotFound:
            return False
        engine.ledger.remove(seq)
    engine.flush()
    with engine.rewriting, engine.lock:
        if block not in engine.ledger.blocks:
            return True
        _overwrite(engine, block, offset, length)
    return True


def _overwrite(engine: Engine, block: Block, offset: int, length: int) -> None:
    """Put a record of the same length in its place, with noise for everything but its trailer."""
    block.erased += 1
    if block.active is not None:
        block.active.forget_written()
    file = engine.files.open(block.path, "update")
    try:
        seed = (block.seed + offset) & 0xFFFF_FFFF_FFFF_FFFF
        record = decode(file.read_at(offset, length), seed=seed)
        noise = engine.random_bytes
        image = encode(
            noise(len(record.subject)),
            noise(len(record.headers)),
            noise(len(record.payload)),
            seq=record.seq,
            timestamp_ns=record.timestamp_ns,
            flags=DELETED,
            expires_ns=record.expires_ns,
            seed=seed,
        )
        write_all(file, offset, image)
        file.sync_data()
    finally:
        file.close()


def purge(
    engine: Engine, subjects: SubjectFilter | None, *, seq: int = 0, keep: int = 0
) -> int:
    """Remove the wanted messages below `seq` (0: all of them), but the newest `keep`."""
    with engine.lock:
        engine.check_writable()
        ledger = engine.ledger
        everything = subjects is None or subjects.everything
        if everything and not seq and not keep:
            removed = ledger.messages
            ledger.clear()
            engine.wheel.clear()
            engine.seal_active()
        else:
            last = seq - 1 if seq else ledger.last_seq
            wanted = ledger.count_from(subjects, 0)
            limit = max(wanted - keep, 0) if keep else -1
            removed = ledger.remove_range(0, last, subjects, limit)[0]
    engine.flush()
    engine.background.submit(engine.reclaim_job)
    return removed


def compact(engine: Engine, seq: int) -> int:
    """Remove everything below `seq`, which becomes the first sequence."""
    with engine.lock:
        engine.check_writable()
        beyond = seq > engine.ledger.last_seq
    if beyond:
        removed = purge(engine, None)
        with engine.lock:
            gap = seq - 1 - engine.ledger.last_seq
            if gap > 0:
                engine.append_skip(engine.ledger.last_seq + 1, gap)
        engine.flush()
        return removed
    return purge(engine, None, seq=seq) if seq else 0


def truncate(engine: Engine, seq: int) -> None:
    """Remove everything above `seq`, which must exist, and go on after it."""
    engine.flush()
    with engine.rewriting, engine.lock:
        engine.check_writable()
        message = engine.ledger.load(seq)
        engine.seal_active()
    engine.flush()
    engine.write_due_indexes()
    with engine.rewriting, engine.lock:
        ledger = engine.ledger
        carried = _tombstones_up_to(engine, seq)
        ledger.remove_range(seq + 1, ledger.last_seq)
        drop_checkpoint(engine)
        engine.mark_high_water(seq, message.timestamp_ns)
        engine.sync_high_water()
        for block in reversed(list(ledger.blocks)):
            if block.base_seq > seq:
                _unlink(engine, block)
        engine.files.sync_dir(engine.path)
        _cut(engine, ledger.blocks[-1], seq)
        ledger.cut(seq, message.timestamp_ns)
        ledger.removed.update(carried)
        engine.durable_seq = min(engine.durable_seq, seq)
    engine.flush()


def _tombstones_up_to(engine: Engine, seq: int) -> SequenceSet:
    """Give what the tombstones of the blocks that will be cut tell of messages that stay."""
    carried = SequenceSet()
    for block in engine.ledger.blocks:
        if block.last_seq < seq:
            continue
        for first, last in engine.cache.index_of(block).tombstones.ranges():
            if first <= seq:
                carried.add_range(first, min(last, seq))
    return carried


def _unlink(engine: Engine, block: Block) -> None:
    engine.cache.forget(block)
    engine.ledger.drop_block(block)
    with contextlib.suppress(FileNotFoundError):
        engine.files.unlink(engine.file_path(index_name(block.number)))
    engine.files.unlink(block.path)


def _cut(engine: Engine, block: Block, seq: int) -> None:
    """Shorten a sealed block to the end of message `seq`, and its index with it."""
    old = engine.cache.index_of(block)
    ordinal = old.ordinal_of(seq)
    assert ordinal is not None, "the message was loaded a moment ago"
    _, offset, length, *_ = old.entry(ordinal)
    engine.cache.forget(block)
    with contextlib.suppress(FileNotFoundError):
        engine.files.unlink(engine.file_path(index_name(block.number)))
    file = engine.files.open(block.path, "update")
    try:
        file.truncate(max(offset + length, HEADER_BYTES))
        file.sync_data()
        data = file.read_at(0, file.size())
    finally:
        file.close()
    index = build_index(data, block)
    image = index.encode()
    engine.replace_file(index_name(block.number), image)
    engine.ledger.replace_index(block, old, index, block.seed)
    block.cut(seq)
    block.index = BlockIndex.load(image, block.path)
    engine.cache.admit(block)

