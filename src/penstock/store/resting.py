"""Leaving a directory that opens quickly, when a store stops.

All is made durable and summed up in a checkpoint. The block that is being written is sealed, if it
is long enough: with its index on disk the next open finds it covered by the checkpoint as any
other, neither walks through it nor keeps its index in memory, and goes on in a new one.

Called when nothing comes in any more; under no lock.
"""

from __future__ import annotations

import contextlib

from penstock.store.checkpoint import write_checkpoint
from penstock.store.engine import Engine, writing


def come_to_rest(engine: Engine) -> None:
    """Make everything durable, and sum it up for the next open; raises."""
    engine.flush()
    engine.background.drain()
    _seal_last_block(engine)
    write_checkpoint(engine)
    engine.high_water.sync()


def _seal_last_block(engine: Engine) -> None:
    with engine.rewriting, engine.lock:
        block = engine.active
        if block is None or block.bytes < engine.config.resting_bytes_min or engine.volatile:
            return
        index = writing(block).index
        index.freeze()
        # Without an index the next open builds it again, as for any block.
        with contextlib.suppress(OSError):
            engine.replace_index(block.number, index.encode())
        block.expiring = index.expiry_count
        engine.release(block)
