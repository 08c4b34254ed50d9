"""Damage of a block: its offset, the sequences it may have cost, and its bytes on disk.

One entry in an index or a checkpoint:

    block u32, offset u64, length u64, first sequence u64, last sequence u64,
    reason (u16 length, UTF-8)

The sequences are those that nothing else in the block accounts for between the neighbours that are
whole; some of them may never have existed. `last_seq` below `first_seq` means that none is missing.

Pure; any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from penstock.errors import FormatError

_FIXED = struct.Struct("<IQQQQH")


class Damage(msgspec.Struct, frozen=True):
    """One damaged stretch of a block file."""

    block: int
    offset: int
    length: int
    reason: str
    first_seq: int
    last_seq: int

    def is_at(self, other: Damage) -> bool:
        """Return True if both are at one offset of a block and cost the same sequences."""
        return (self.block, self.offset, self.first_seq, self.last_seq) == (
            other.block,
            other.offset,
            other.first_seq,
            other.last_seq,
        )

    def __str__(self) -> str:
        """Say it in a line for people."""
        if self.last_seq < self.first_seq:
            cost = "no sequence missing"
        elif self.last_seq == self.first_seq:
            cost = f"sequence {self.first_seq}"
        else:
            cost = f"sequences {self.first_seq} to {self.last_seq}"
        return (
            f"block {self.block}, offset {self.offset}, {self.length} bytes: {self.reason} ({cost})"
        )


def encode_damage(damage: Sequence[Damage]) -> bytes:
    """Encode a list of damage; an empty list takes no bytes."""
    parts = []
    for each in damage:
        reason = each.reason.encode()[:0xFFFF]
        parts.append(
            _FIXED.pack(
                each.block, each.offset, each.length, each.first_seq, each.last_seq, len(reason)
            )
        )
        parts.append(reason)
    return b"".join(parts)


def decode_damage(data: bytes) -> list[Damage]:
    """Decode what `encode_damage` gave; raises FormatError."""
    damage = []
    at = 0
    while at < len(data):
        if at + _FIXED.size > len(data):
            raise FormatError("damage list cut off", offset=at)
        block, offset, length, first_seq, last_seq, size = _FIXED.unpack_from(data, at)
        at += _FIXED.size
        if at + size > len(data):
            raise FormatError("damage list cut off", offset=at)
        reason = data[at : at + size].decode(errors="replace")
        damage.append(Damage(block, offset, length, reason, first_seq, last_seq))
        at += size
    return damage
