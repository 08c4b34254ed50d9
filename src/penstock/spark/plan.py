"""How a stream is divided among tasks: stretches of blocks, by their weight.

A plan depends on the blocks and the options alone, never on the clock or on how many cores there
are, so that the same job makes the same parts everywhere. Pure; no Spark types.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from penstock.errors import UsageError
from penstock.format.reader import BlockInfo

BYTES_PER_PART = 256 * 1024 * 1024
"""A task costs some 60 ms before its first row: with less to do, the waiting is most of it."""


class Splitting(msgspec.Struct, frozen=True, rename="camel"):
    """How large parts may get, and how many there shall be at least."""

    min_partitions: int = 1
    max_records_per_partition: int = 0
    max_bytes_per_partition: int = BYTES_PER_PART

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.min_partitions < 1:
            raise ValueError("minPartitions must be at least 1")
        if self.max_records_per_partition < 0:
            raise ValueError("maxRecordsPerPartition must not be negative")


def group_blocks(blocks: Sequence[BlockInfo], splitting: Splitting) -> list[list[BlockInfo]]:
    """Give stretches of consecutive blocks, each no heavier than it may be.

    A block is the least that a part can be. Where there are fewer parts than wished for, the
    limits are lowered until there are enough, or one for each block.
    """
    if not blocks:
        return []
    most_bytes = max(splitting.max_bytes_per_partition, 1)
    most_records = splitting.max_records_per_partition or sum(each.count for each in blocks) + 1
    wished = min(splitting.min_partitions, len(blocks))
    parts = _packed(blocks, most_bytes, most_records)
    if len(parts) < wished:
        parts = _evenly(blocks, wished)
    return parts


def _packed(
    blocks: Sequence[BlockInfo], most_bytes: int, most_records: int
) -> list[list[BlockInfo]]:
    parts: list[list[BlockInfo]] = []
    size = records = 0
    for block in blocks:
        size += block.bytes
        records += block.count
        if not parts or size > most_bytes or records > most_records:
            parts.append([])
            size, records = block.bytes, block.count
        parts[-1].append(block)
    return parts


def _evenly(blocks: Sequence[BlockInfo], wished: int) -> list[list[BlockInfo]]:
    # Each part takes blocks until it has its share of what is left.
    parts: list[list[BlockInfo]] = []
    left_bytes = sum(each.bytes for each in blocks)
    rest = list(blocks)
    for parts_left in range(wished, 0, -1):
        share = left_bytes / parts_left
        taken = [rest.pop(0)]
        size = taken[0].bytes
        while len(rest) >= parts_left and size + rest[0].bytes / 2 <= share:
            size += rest[0].bytes
            taken.append(rest.pop(0))
        left_bytes -= size
        parts.append(taken)
    if rest:
        raise UsageError("blocks were left over")
    return parts


def split_range(
    first: int, end: int, *, records: int, size: int, splitting: Splitting
) -> list[tuple[int, int]]:
    """Divide sequences evenly into parts that hold about as much as they may.

    `records` and `size` are what the whole range is thought to hold.
    """
    if end <= first:
        return []
    most_records = splitting.max_records_per_partition
    wished = max(
        splitting.min_partitions,
        -(-size // max(splitting.max_bytes_per_partition, 1)),
        -(-records // most_records) if most_records else 1,
    )
    count = min(wished, end - first)
    marks = [first + (end - first) * place // count for place in range(count + 1)]
    return list(itertools.pairwise(marks))
