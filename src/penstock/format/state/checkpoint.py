"""The checkpoint `stream.state` and the mark `high.water`: their bytes.

Checkpoint, little-endian, all under one XXH64 at the end:

    magic "PNSTKSTA", version u16, zero u16, block count u32, salt u64,
    messages u64, bytes u64, first seq u64, first time i64, last seq u64, last time i64,
    subject section length u64, damage section length u64
    a summary of each block, as block.pyx has it
    subject section, damage section, XXH64

It holds the sum of every record up to the last listed block's file bytes. It is derived: if it
is in doubt, recovery drops it and reads the blocks.

High water: two slots of 64 bytes, written in turn, the newer valid one counts:

    magic "PHWM", version u16, zero u16, turn u64, last seq u64, last time i64,
    salt of the stream u64, block u32, zero u32, end of what is durable in that block u64, XXH64

Pure; any thread.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import msgspec

from penstock.errors import CorruptStore, FormatError, UnsupportedVersion
from penstock.format.block import BlockSummary, decode_summaries, encode_summary
from penstock.format.damage import Damage, decode_damage, encode_damage
from penstock.format.hashing import xxh64

STATE_MAGIC = b"PNSTKSTA"
STATE_VERSION = 1
HIGH_WATER_MAGIC = b"PHWM"
HIGH_WATER_VERSION = 1
HIGH_WATER_SLOT_BYTES = 64

_STATE = struct.Struct("<8sHxxIQQQQqQqQQ")
_SLOT = struct.Struct("<4sHxxQQqQI4xQ")
_CHECKSUM = struct.Struct("<Q")

# `bytes` is also a field below, so the type goes by another name there.
_Bytes: TypeAlias = bytes


class Checkpoint(msgspec.Struct, frozen=True):
    """The state of a stream up to the end of the last block that it lists."""

    salt: int
    messages: int
    bytes: int
    first_seq: int
    first_time_ns: int
    last_seq: int
    last_time_ns: int
    blocks: tuple[BlockSummary, ...]
    subjects: _Bytes
    damage: tuple[Damage, ...]


class HighWater(msgspec.Struct, frozen=True):
    """The highest sequence that was ever durable, and how far the log is.

    It is written after each sync and synced itself only now and then: after a power cut it may tell
    less than is durable, never more.
    """

    turn: int
    last_seq: int
    last_time_ns: int
    salt: int = 0
    """The stream's salt, for blocks whose headers are lost; 0 where it is not known."""

    block: int = 0
    block_bytes: int = 0
    """What block `block` holds up to here is durable."""


def encode_checkpoint(state: Checkpoint) -> bytes:
    """Return the bytes of `stream.state`."""
    damage = encode_damage(state.damage)
    parts = [
        _STATE.pack(
            STATE_MAGIC,
            STATE_VERSION,
            len(state.blocks),
            state.salt,
            state.messages,
            state.bytes,
            state.first_seq,
            state.first_time_ns,
            state.last_seq,
            state.last_time_ns,
            len(state.subjects),
            len(damage),
        )
    ]
    parts += map(encode_summary, state.blocks)
    parts += [state.subjects, damage]
    body = b"".join(parts)
    return body + _CHECKSUM.pack(xxh64(body))


def decode_checkpoint(data: bytes, path: str) -> Checkpoint:
    """Read `stream.state`; raises CorruptStore, or UnsupportedVersion where it is newer."""
    if len(data) < _STATE.size + 8 or data[:8] != STATE_MAGIC:
        raise CorruptStore(path, 0, "not a stream checkpoint")
    if _CHECKSUM.unpack_from(data, len(data) - 8)[0] != xxh64(memoryview(data)[:-8]):
        raise CorruptStore(path, 0, "checkpoint checksum differs")
    version = int.from_bytes(data[8:10], "little")
    if version != STATE_VERSION:
        raise UnsupportedVersion(path, version, STATE_VERSION)
    _, _, count, *totals, subjects, damage = _STATE.unpack_from(data)
    blocks, at = decode_summaries(data, _STATE.size, len(data) - 8, count, path)
    if at + subjects + damage + 8 != len(data):
        raise CorruptStore(path, at, "checkpoint sections do not fill the file")
    try:
        damages = decode_damage(data[at + subjects : at + subjects + damage])
    except FormatError as error:
        raise CorruptStore(path, at, error.reason) from error
    fields = [*totals, tuple(blocks), data[at : at + subjects], tuple(damages)]
    return Checkpoint(*fields)


def encode_high_water(mark: HighWater) -> bytes:
    """Return one slot of `high.water`; it belongs at slot `turn % 2`."""
    body = _SLOT.pack(
        HIGH_WATER_MAGIC,
        HIGH_WATER_VERSION,
        mark.turn,
        mark.last_seq,
        mark.last_time_ns,
        mark.salt,
        mark.block,
        mark.block_bytes,
    )
    return body + _CHECKSUM.pack(xxh64(body))


def decode_high_water(data: bytes, path: str) -> HighWater | None:
    """Return the newer of the valid slots, or None where neither is valid.

    Raises UnsupportedVersion where a valid slot is of a newer format.
    """
    newest: HighWater | None = None
    for start in (0, HIGH_WATER_SLOT_BYTES):
        slot = data[start : start + HIGH_WATER_SLOT_BYTES]
        if len(slot) < HIGH_WATER_SLOT_BYTES or slot[:4] != HIGH_WATER_MAGIC:
            continue
        if _CHECKSUM.unpack_from(slot, _SLOT.size)[0] != xxh64(slot[: _SLOT.size]):
            continue
        _, version, *fields = _SLOT.unpack_from(slot)
        if version != HIGH_WATER_VERSION:
            raise UnsupportedVersion(path, version, HIGH_WATER_VERSION)
        mark = HighWater(*fields)
        if newest is None or mark.turn > newest.turn:
            newest = mark
    return newest
