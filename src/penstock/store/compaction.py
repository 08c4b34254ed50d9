"""Giving disk space back: empty blocks are removed, sparse ones rewritten without what is gone.

A block's tombstones tell of messages in earlier blocks. While such a message still lies in its
block, the tombstone must live on: it moves to the rewritten block, or to the active one before an
empty block is removed. A rewrite goes to a new file that replaces the old one atomically, with a
new generation, so a fresh data key; an index of the old generation no longer fits and is built anew.

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
from penstock.store.active_block import ActiveBlock
from penstock.store.checkpoint import drop_checkpoint
from penstock.store.engine import Engine
from penstock.store.ledger import Block
from penstock.store.vfs import write_all

SPARSE_SHARE = 2
"""A block is rewritten when its live records are less than one part in this many of its bytes."""


def reclaim(engine: Engine) -> int:
    """Give back what removals left behind; returns the bytes given back."""
    with engine.rewriting:
        gained = _drop_empty_blocks(engine)
        with engine.lock:
            sparse = [
                block
                for block in engine.ledger.blocks
                if block.active is None
                and not block.index_pinned
                and block.live
                and block.live_disk_bytes * SPARSE_SHARE < block.bytes - HEADER_BYTES
            ]
        for block in sparse:
            gained += _rewrite(engine, block)
    return gained


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
    engine.flush()
    gained = 0
    with engine.lock:
        drop_checkpoint(engine)
        for block in empty:
            gained += block.bytes
            _keep_damage_aside(engine, block)
            engine.cache.forget(block)
            engine.ledger.drop_block(block)
            with contextlib.suppress(FileNotFoundError):
                engine.files.unlink(engine.file_path(index_name(block.number)))
            engine.files.unlink(block.path)
        engine.files.sync_dir(engine.path)
    return gained


def _still_needed(engine: Engine, block: Block, going: list[Block]) -> SequenceSet:
    """Give the sequences of a block's tombstones whose messages may still lie in other blocks."""
    needed = SequenceSet()
    index = engine.cache.index_of(block)
    for first, last in index.tombstones.ranges():
        for other in engine.ledger.blocks:
            if other is block or other in going or other.number > block.number:
                continue
            low, high = max(first, other.base_seq), min(last, other.last_seq)
            if low <= high:
                needed.add_range(low, high)
    return needed


def _keep_damage_aside(engine: Engine, block: Block) -> None:
    damaged = [each for each in engine.damage if each.block == block.number]
    if not damaged:
        return
    file = engine.files.open(block.path, "read")
    try:
        for each in damaged:
            data = file.read_at(each.offset, each.length)
            engine.quarantine(f"{block.number:06d}-{each.offset}", data)
    finally:
        file.close()
    engine.damage = [each for each in engine.damage if each not in damaged]


def _rewrite(engine: Engine, block: Block) -> int:
    with engine.lock:
        if block not in engine.ledger.blocks or block.active is not None:
            return 0
        old = engine.cache.index_of(block)
        dead = block.dead_bitmap
        erased = block.erased
        kept = _still_needed(engine, block, [])
    file = engine.files.open(block.path, "read")
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    header, fresh = _rewritten(engine, block, data, old, dead, kept)
    temporary = f"{block.path}.{engine.unique()}.tmp"
    target = engine.files.open(temporary, "create")
    try:
        write_all(target, 0, memoryview(fresh.take()))
        target.sync_data()
    except OSError:
        with contextlib.suppress(OSError):
            engine.files.unlink(temporary)
        raise
    finally:
        target.close()
    with engine.lock:
        if block.erased != erased:
            # A record was overwritten in the old file meanwhile: its bytes must not come back.
            engine.files.unlink(temporary)
            return 0
        _keep_damage_aside(engine, block)
        drop_checkpoint(engine)
        engine.files.rename(temporary, engine.file_path(block_name(block.number)))
        engine.files.sync_dir(engine.path)
        index = fresh.index
        index.freeze()
        image = index.encode()
        engine.replace_file(index_name(block.number), image)
        engine.cache.forget(block)
        engine.ledger.replace_index(block, old, index, header.seed)
        block.header = header
        block.expiring = index.expiry_count
        block.index = BlockIndex.load(image, block.path)
        engine.cache.admit(block)
    return len(data) - index.block_bytes


def _rewritten(
    engine: Engine, block: Block, data: bytes, old: BlockIndex, dead: bytes, kept: SequenceSet
) -> tuple[BlockHeader, ActiveBlock]:
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
    needs_reseal = before.cipher or engine.config.cipher or (
        engine.config.compression is not Compression.NONE
    )
    damaged = fresh.copy_live(data, block.seed, old, dead, reseal if needs_reseal else None)
    if kept:
        fresh.append_tombstone(kept, block.last_seq, engine.clock.now_ns())
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
