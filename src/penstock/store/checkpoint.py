"""The checkpoint of a stream: taking it, writing it, and giving it up.

A checkpoint sums up every record to the end of the last block. It is written now and then and at
stop, and dropped before anything happens that would make it lie: the removal or the rewriting of a
block. Without one the next open adds up the block indexes instead.
"""

from __future__ import annotations

import contextlib

from penstock.format.block_summary import BlockSummary
from penstock.format.layout import STATE_NAME
from penstock.format.state import Checkpoint, encode_checkpoint
from penstock.store.block_account import Block
from penstock.store.engine import Engine


def take_checkpoint(engine: Engine) -> Checkpoint:
    """Sum the stream up, under the lock."""
    ledger = engine.ledger
    return Checkpoint(
        salt=engine.salt,
        messages=ledger.messages,
        bytes=ledger.bytes,
        first_seq=ledger.first_seq,
        first_time_ns=ledger.first_time_ns,
        last_seq=ledger.last_seq,
        last_time_ns=ledger.last_time_ns,
        blocks=tuple(_summary(block) for block in ledger.blocks),
        subjects=ledger.table.encode(),
        damage=tuple(engine.damage),
    )


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


def write_checkpoint(engine: Engine) -> None:
    """Write a checkpoint of what is durable; not under the lock."""
    with engine.rewriting:
        engine.replace_file(STATE_NAME, encode_checkpoint(_settled(engine)))
        with engine.lock:
            engine.checkpoint_on_disk = True


def _settled(engine: Engine) -> Checkpoint:
    """Give a checkpoint all of which is durable."""
    while True:
        with engine.lock:
            state = take_checkpoint(engine)
            changes = engine.block_changes
        engine.flush()
        with engine.lock:
            # Without threads the flush may have rewritten or removed blocks itself.
            if engine.block_changes == changes:
                engine.sealed_since_checkpoint = 0
                return state


def drop_checkpoint(engine: Engine) -> None:
    """Give up the checkpoint before it would lie; its absence is durable when this returns.

    Whoever holds `rewriting` need not hold the lock: nobody else writes a checkpoint meanwhile.
    """
    engine.block_changes += 1
    if not engine.checkpoint_on_disk:
        return
    with engine.changing_blocks():
        with contextlib.suppress(FileNotFoundError):
            engine.files.unlink(engine.file_path(STATE_NAME))
        engine.files.sync_dir(engine.path)
    engine.checkpoint_on_disk = False
