"""How one block follows on another, and what is lost where it does not.

Shared by whoever takes stock of a directory and whoever verifies it. Pure; any thread.
"""

from __future__ import annotations

from penstock.format.block import BlockHeader
from penstock.format.block_index import BlockIndex
from penstock.format.damage import Damage
from penstock.format.index_head import IndexHead
from penstock.format.record import DELETED

TAIL_REASON = "no whole record up to the end"


def ends_early(
    header: BlockHeader, index: BlockIndex | IndexHead, tail_bytes: int, following: BlockHeader
) -> bool:
    """Tell whether a block lacks records that it had when the next one was begun."""
    if tail_bytes:
        return True
    # As first written, a block accounts for every sequence up to the next one's base.
    return (
        header.generation == 0
        and header.number + 1 == following.number
        and index.last_seq + 1 < following.base_seq
    )


def follows(header: BlockHeader, previous: BlockIndex) -> bool:
    """Tell whether a block was begun after the last record of the one before."""
    if previous.generation or header.previous_checksum in (0, previous.last_checksum):
        return True
    if not previous.count:
        return False
    # An erased record has another checksum than it had then.
    _, offset, length, _, _, flags, _ = previous.entry(previous.count - 1)
    return offset + length == previous.block_bytes and flags & DELETED != 0


def tail_damage(index: BlockIndex | IndexHead, size: int, last_seq: int) -> Damage:
    """Tell of the end of a block whose records are lost, up to a sequence."""
    return Damage(index.number, index.block_bytes, size, TAIL_REASON, index.last_seq + 1, last_seq)
