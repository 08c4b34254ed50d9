"""Giving disk space back: empty blocks are removed, sparse ones rewritten without what is gone.

A block's tombstones tell of messages in earlier blocks. While such a message still lies in its
block, the tombstone must live on: it moves to the rewritten block, or to the active one before an
empty block is removed. A rewrite goes to a new file that replaces the old one atomically, with a
new generation, so a fresh data key; an index of the old generation no longer fits and is built
anew.

What always holds: a crash at any point leaves the old block or the new one; no removed message
comes back; a damaged stretch is kept aside before its block goes.

None of this may be called under the engine's lock; `engine.rewriting` lets one run at a time.
"""

from __future__ import annotations

import contextlib

from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    decode_block_header,
    encode_block_header,
)
from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import new_data_key, unsealer
from penstock.format.damage import Damage
from penstock.format.envelope import Compression, Place, seal
from penstock.format.layout import block_name, index_name
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.limits import RECORD_OVERHEAD_BYTES_MAX
from penstock.store.active_block import ActiveBlock
from penstock.store.block_account import Block
from penstock.store.checkpoint import drop_checkpoint
from penstock.store.engine import Engine
from penstock.store.vfs import write_all

SPARSE_SHARE = 2
"""A block is rewritten when its live records are less than one part in this many of its bytes."""


def reclaim_now(engine: Engine, *, thorough: bool) -> int:
    """Give disk space back now, of all that was removed so far; returns the bytes."""
    engine.check_writable()
    with engine.lock:
        block = engine.active
        if thorough and block and block.live_disk_bytes < block.bytes - HEADER_BYTES:
            engine.rotate()
    engine.flush()
    engine.background.drain()
    engine.write_due_indexes()
    return reclaim(engine, thorough=thorough)


def reclaim(engine: Engine, *, thorough: bool = False) -> int:
    """Give back what removals left behind; returns the bytes given back.

    A thorough one rewrites every sealed block that holds more than its live records. While a
    snapshot is being read nothing is given back; the commits after it ask again.
    """
    share = 1 if thorough else SPARSE_SHARE
    with engine.rewriting:
        if engine.views:
            with engine.lock:
                engine.ledger.reclaimable = True
            return 0
        gained = _drop_empty_blocks(engine)
        with engine.lock:
            sparse = [block for block in engine.ledger.blocks if _is_sparse(engine, block, share)]
        for block in sparse:
            gained += rewrite(engine, block)
    return gained


def _is_sparse(engine: Engine, block: Block, share: int) -> bool:
    """Tell whether a rewrite of a sealed block would leave less than one part in `share` of it."""
    if block.active is not None or block.index_pinned or not block.live:
        return False
    spare = block.bytes - HEADER_BYTES
    if block.live_disk_bytes * share >= spare:
        return False
    # What is not live may be tombstones that must stay: then nothing is to be had.
    kept_bytes = len(_still_needed(engine, block, []).encode()) + RECORD_OVERHEAD_BYTES_MAX
    return (block.live_disk_bytes + kept_bytes) * share < spare


def _sealed_and_empty(engine: Engine) -> list[Block]:
    return [
        block
        for block in engine.ledger.blocks
        if block.live == 0 and block.active is None and not block.index_pinned
    ]


def _drop_empty_blocks(engine: Engine) -> int:
    with engine.lock:
        empty = _sealed_and_empty(engine)
        if not empty:
            return 0
        for block in empty:
            engine.ledger.removed.update(_still_needed(engine, block, empty))
    _carry_last_seq(engine)
    engine.flush()
    drop_checkpoint(engine)
    with engine.lock:
        # Without threads the flush may have given back some of them itself.
        empty = [block for block in empty if block in engine.ledger.blocks]
        for block in empty:
            _keep_damage_aside(engine, block)
            forget_block(engine, block)
            _forget_damage(engine, block)
    # Nobody knows them any more, and nobody who stores or reads waits for their files to go.
    with engine.changing_blocks():
        for block in empty:
            unlink_block(engine, block)
        engine.files.sync_dir(engine.path)
    return sum(block.bytes for block in empty)


def forget_block(engine: Engine, block: Block) -> None:
    """Know no more of a block without live messages, whose files are to go; under the lock."""
    engine.cache.forget(block)
    engine.ledger.drop_block(block)


def unlink_block(engine: Engine, block: Block) -> None:
    """Remove the files of a block that was forgotten, the index first.

    So an index without its block always tells that the block was lost.
    """
    # One that was never committed has no file yet, and one that was not sealed no index.
    for path in (engine.file_path(index_name(block.number)), block.path):
        with contextlib.suppress(FileNotFoundError):
            engine.files.unlink(path)


def _still_needed(engine: Engine, block: Block, going: list[Block]) -> SequenceSet:
    """Give the sequences of a block's tombstones whose messages may still lie in other blocks."""
    needed = SequenceSet()
    tombstones = engine.cache.index_of(block).tombstones
    for other in engine.ledger.blocks:
        # A block without removed messages has no use for tombstones: it was rewritten since.
        if other is block or other in going or other.number > block.number or not other.dead_count:
            continue
        for low, high in tombstones.ranges_between(other.base_seq, other.last_seq):
            needed.add_range(low, high)
    return needed


def _carry_last_seq(engine: Engine) -> None:
    """Have a block after the sealed ones: its header tells the last sequence when they do not.

    The last message's time is told by the mark, which so far was synced in the system's own time.
    """
    with engine.lock:
        is_needed = engine.active is None
        if is_needed:
            engine.new_block()
    if is_needed:
        engine.flush()
    engine.high_water.sync()


def _keep_damage_aside(engine: Engine, block: Block) -> None:
    damaged = [each for each in engine.damage if each.block == block.number]
    if not damaged:
        return
    file = engine.files.open(block.path, "read")
    try:
        kept_to = 0
        for each in sorted(damaged, key=lambda damage: (damage.offset, -damage.length)):
            start = max(each.offset, kept_to)
            data = file.read_at(start, max(each.offset + each.length - start, 0))
            if data:
                engine.quarantine(f"{block.number:06d}-{start}", data)
                kept_to = start + len(data)
    finally:
        file.close()


def _forget_damage(engine: Engine, block: Block) -> None:
    engine.damage = [each for each in engine.damage if each.block != block.number]


def rewrite(engine: Engine, block: Block) -> int:
    """Replace a sealed block by one with its live and whole records; returns the bytes saved."""
    _carry_last_seq(engine)
    with engine.lock:
        if block not in engine.ledger.blocks or block.active is not None:
            return 0
        old = engine.cache.index_of(block)
        dead = block.dead_bitmap
        erased = block.erased
        kept = _still_needed(engine, block, [])
    data = _read_block(engine, block)
    header, fresh = _rewritten(
        engine, block, data, old, dead=dead, kept=kept, last_seq=block.last_seq
    )
    temporary = _write_aside(engine, block, fresh)
    try:
        # What is left out must be gone for good before its bytes are: a message that gave way to
        # one that never became durable is still wanted.
        engine.flush()
        with engine.lock:
            if (
                block not in engine.ledger.blocks
                or block.generation != old.generation
                or block.erased != erased
            ):
                # Rewritten or erased in meanwhile: what was read then must not come back.
                engine.files.unlink(temporary)
                return 0
            replace_block(engine, block, temporary, (header, old, fresh.index))
    except OSError:
        with contextlib.suppress(OSError):
            engine.files.unlink(temporary)
        raise
    return len(data) - block.bytes


def _read_block(engine: Engine, block: Block) -> bytes:
    file = engine.files.open(block.path, "read")
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def _write_aside(engine: Engine, block: Block, fresh: ActiveBlock) -> str:
    """Write a block's next generation beside it; give the path."""
    temporary = f"{block.path}.{engine.unique()}.tmp"
    target = engine.files.open(temporary, "create")
    try:
        image = fresh.take()
        assert image is not None, "a block has its header at the least"
        write_all(target, 0, memoryview(image))
        target.sync_data()
    except OSError:
        with contextlib.suppress(OSError):
            engine.files.unlink(temporary)
        raise
    finally:
        target.close()
    return temporary


def replace_block(
    engine: Engine,
    block: Block,
    temporary: str,
    generation: tuple[BlockHeader, BlockIndex, BlockIndex],
) -> None:
    """Put a block's next generation in its place: (its header, the old index, its own)."""
    header, old, index = generation
    _keep_damage_aside(engine, block)
    drop_checkpoint(engine)
    engine.files.rename(temporary, engine.file_path(block_name(block.number)))
    # The file is another one from here on, whatever fails: so must the ledger be.
    _forget_damage(engine, block)
    engine.cache.forget(block)
    index.freeze()
    engine.ledger.replace_index(block, old, index, header.seed)
    block.header = header
    block.expiring = index.expiry_count
    block.index = index
    block.index_pinned = True
    with engine.changing_blocks():
        engine.files.sync_dir(engine.path)
    image = index.encode()
    engine.replace_index(block.number, image)
    block.index = BlockIndex.load(image, block.path)
    block.index_pinned = False
    engine.cache.admit(block)


def cut_block(engine: Engine, block: Block, seq: int, removed: SequenceSet) -> None:
    """Rewrite a sealed block without what is above `seq`, and with tombstones of `removed`.

    Under the lock, with no commit under way: what is above is dead, and durably so.
    """
    old = engine.cache.index_of(block)
    data = _read_block(engine, block)
    header, fresh = _rewritten(
        engine, block, data, old, dead=block.dead_bitmap, kept=removed, last_seq=seq
    )
    temporary = _write_aside(engine, block, fresh)
    try:
        replace_block(engine, block, temporary, (header, old, fresh.index))
    except OSError:
        with contextlib.suppress(OSError):
            engine.files.unlink(temporary)
        raise


def _rewritten(
    engine: Engine,
    block: Block,
    data: bytes,
    old: BlockIndex,
    *,
    dead: bytes,
    kept: SequenceSet,
    last_seq: int,
) -> tuple[BlockHeader, ActiveBlock]:
    """Build a block's next generation: its live records, `kept` as tombstones, to `last_seq`."""
    name = engine.config.name.encode()
    before = decode_block_header(old.header, block.path)
    generation = before.generation + 1
    key, wrapped = new_data_key(
        engine.config.cipher, name, engine.key, block.number, generation, engine.random_bytes
    )
    header = before.next_generation(
        created_ns=engine.clock.now_ns(), cipher=engine.config.cipher, wrapped_key=wrapped
    )
    open_old = unsealer(before, name, engine.key, block.path)

    def reseal(
        seq: int, timestamp_ns: int, subject: bytes, headers: bytes, payload: bytes
    ) -> bytes:
        plain_headers, plain_payload = open_old(seq, timestamp_ns, subject, headers, payload)
        place = Place(name, seq, timestamp_ns, subject)
        compression = engine.config.compression
        return seal(plain_headers, plain_payload, place, compression=compression, key=key)

    index = BlockIndex(
        block.number, generation, block.base_seq, encode_block_header(header), SubjectTable()
    )
    fresh = ActiveBlock(index, block.path, header.seed)
    needs_reseal = (
        before.cipher or engine.config.cipher or (engine.config.compression is not Compression.NONE)
    )
    damaged = fresh.copy_live(data, block.seed, old, dead, reseal if needs_reseal else None)
    if kept:
        fresh.append_tombstone(kept, last_seq, engine.clock.now_ns())
    elif fresh.index.last_seq < last_seq:
        # The next block begins after `last_seq`, and nothing may seem to be missing in between.
        first = fresh.index.last_seq + 1
        fresh.append_skip(first, last_seq - first + 1, engine.clock.now_ns())
    for ordinal in damaged:
        _lose(engine, block, old, ordinal)
    return header, fresh


def _lose(engine: Engine, block: Block, old: BlockIndex, ordinal: int) -> None:
    seq, offset, length, *_ = old.entry(ordinal)
    with engine.lock:
        engine.report_damage(
            Damage(block.number, offset, length, "record checksum differs", seq, seq)
        )
        engine.ledger.remove(seq)
