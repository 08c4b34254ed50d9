"""How a stream is divided among tasks: stretches of blocks, by their weight.

A plan depends on the blocks and the options alone, never on the clock or on how many cores there
are, so that the same job makes the same parts everywhere. Pure; no Spark types.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from penstock.format.reader import PICKED_GAP_BYTES, PICKED_PART, BlockInfo
from penstock.spark.options import Size

BYTES_PER_PART = 256 * 1024 * 1024
"""A task costs some 60 ms before its first row: with less to do, the waiting is most of it."""


INDEX_BYTES_PER_ENTRY = 4
"""What an entry of an index weighs at the most: it has 32 bytes, and goes by eight times as fast as
a record's bytes do. Of few subjects, and on a local disk, only the wanted ones are read."""


class Splitting(msgspec.Struct, frozen=True, rename="camel"):
    """How large parts may get, and how many there shall be at least."""

    min_partitions: int = 1
    max_records_per_partition: int = 0
    max_bytes_per_partition: Size = Size(BYTES_PER_PART)
    ordered_by_subject: bool = False
    """Whether all messages of a subject are for one task: then a stream is one part."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.min_partitions < 1:
            raise ValueError("minPartitions must be at least 1")
        if self.max_records_per_partition < 0:
            raise ValueError("maxRecordsPerPartition must not be negative")


class Weighty(Protocol):
    """What takes a task some time: bytes to go through, and messages to give."""

    @property
    def bytes(self) -> int:
        """How many bytes there are to read, or what takes as long."""
        ...

    @property
    def count(self) -> int:
        """How many messages there are to give."""
        ...


Block = TypeVar("Block", bound=Weighty)


class PickedBlock(msgspec.Struct, frozen=True):
    """A block of which a filter wants some messages, and what it takes to read those."""

    block: BlockInfo
    bytes: int
    count: int


def picked_block(block: BlockInfo, wanted: int) -> PickedBlock:
    """Weigh a block of which so many messages are wanted."""
    if wanted * PICKED_PART > block.count:
        return PickedBlock(block, block.bytes, wanted)
    # The index is gone through, an order of magnitude faster than records, and each message read.
    each = block.bytes // block.count + PICKED_GAP_BYTES
    return PickedBlock(block, block.count * INDEX_BYTES_PER_ENTRY + wanted * each, wanted)


def group_blocks(blocks: Sequence[Block], splitting: Splitting) -> list[list[Block]]:
    """Give stretches of consecutive blocks, each no heavier than it may be.

    A block is the least that a part can be. Where there are fewer parts than wished for, the
    limits are lowered until there are enough, or one for each block.
    """
    if not blocks or splitting.ordered_by_subject:
        return [list(blocks)] if blocks else []
    most_bytes = max(splitting.max_bytes_per_partition, 1)
    most_records = splitting.max_records_per_partition or sum(each.count for each in blocks) + 1
    wished = min(splitting.min_partitions, len(blocks))
    parts = _packed(blocks, most_bytes, most_records)
    if len(parts) < wished:
        parts = _evenly(blocks, wished)
    return parts


def _packed(blocks: Sequence[Block], most_bytes: int, most_records: int) -> list[list[Block]]:
    parts: list[list[Block]] = []
    size = records = 0
    for block in blocks:
        size += block.bytes
        records += block.count
        if not parts or size > most_bytes or records > most_records:
            parts.append([])
            size, records = block.bytes, block.count
        parts[-1].append(block)
    return parts


def _evenly(blocks: Sequence[Block], wished: int) -> list[list[Block]]:
    # Each part takes blocks until it has its share of what is left; the last takes the rest.
    parts: list[list[Block]] = []
    left_bytes = sum(each.bytes for each in blocks)
    first = 0
    for parts_left in range(wished, 1, -1):
        share = left_bytes / parts_left
        size = blocks[first].bytes
        end = first + 1
        while len(blocks) - end >= parts_left and size + blocks[end].bytes / 2 <= share:
            size += blocks[end].bytes
            end += 1
        left_bytes -= size
        parts.append(list(blocks[first:end]))
        first = end
    return [*parts, list(blocks[first:])]


def split_range(
    first: int, end: int, *, records: int, size: int, splitting: Splitting
) -> list[tuple[int, int]]:
    """Divide sequences evenly into parts that hold about as much as they may.

    `records` and `size` are what the whole range is thought to hold.
    """
    if end <= first:
        return []
    if splitting.ordered_by_subject:
        return [(first, end)]
    most_records = splitting.max_records_per_partition
    wished = max(
        splitting.min_partitions,
        -(-size // max(splitting.max_bytes_per_partition, 1)),
        -(-records // most_records) if most_records else 1,
    )
    count = min(wished, end - first)
    marks = [first + (end - first) * place // count for place in range(count + 1)]
    return list(itertools.pairwise(marks))
