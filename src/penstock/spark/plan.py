"""The planner: how a stream is divided among tasks, by what its blocks, files or sequences cost.

Blocks of a directory and files of an archive are grouped (`group_units`); the sequences of a
server's stream are divided (`split_range`). Each group or division becomes a `StreamPart`.

Invariant: a plan depends on the stream and the options alone, never on the clock or on how many
cores there are, so that the same job makes the same parts everywhere. Pure; no Spark types.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from penstock.format.reader import PICKED_GAP_BYTES, PICKED_PART, BlockInfo
from penstock.spark.options import Size

BYTES_PER_PART = 256 * 1024 * 1024
"""A task costs some 60 ms before its first row. With less to do, that would be most of its time."""


INDEX_BYTES_PER_ENTRY = 4
"""The most that an entry of an index costs: it has 32 bytes, which are read eight times as fast as
a record's. For few subjects, and on a local disk, only the selected entries are read."""


class Splitting(msgspec.Struct, frozen=True, rename="camel"):
    """Options: how large a part may be, and how many parts there are at least."""

    min_partitions: int = 1
    max_records_per_partition: int = 0
    max_bytes_per_partition: Size = Size(BYTES_PER_PART)
    ordered_by_subject: bool = False
    """Whether one task reads all messages of a subject; then a stream is one part."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that are too small."""
        if self.min_partitions < 1:
            raise ValueError("minPartitions must be at least 1")
        if self.max_records_per_partition < 0:
            raise ValueError("maxRecordsPerPartition must not be negative")


Unit = TypeVar("Unit")


class Weighed(msgspec.Struct, Generic[Unit], frozen=True):
    """A unit of work that is not divided (a block, a file), and what it costs to read it."""

    unit: Unit
    bytes: int
    """How many bytes there are to read, or what takes as long."""

    count: int
    """How many messages it yields."""


def weigh_block(block: BlockInfo, selected: int) -> Weighed[BlockInfo]:
    """Return a block with the cost of reading `selected` of its messages."""
    if selected * PICKED_PART > block.count:
        return Weighed(block, block.bytes, selected)
    # The index is gone through, an order of magnitude faster than records, and each message read.
    each = block.bytes // block.count + PICKED_GAP_BYTES
    return Weighed(block, block.count * INDEX_BYTES_PER_ENTRY + selected * each, selected)


def group_units(units: Sequence[Weighed[Unit]], splitting: Splitting) -> list[list[Unit]]:
    """Return groups of consecutive units, each no heavier than the options allow.

    A group has at least one unit. If there are fewer groups than the options want, units are
    divided evenly into so many groups, or into one for each unit.
    """
    if not units or splitting.ordered_by_subject:
        return [[each.unit for each in units]] if units else []
    most_bytes = max(splitting.max_bytes_per_partition, 1)
    most_records = splitting.max_records_per_partition or sum(each.count for each in units) + 1
    wished = min(splitting.min_partitions, len(units))
    groups = _packed(units, most_bytes, most_records)
    if len(groups) < wished:
        groups = _evenly(units, wished)
    return groups


def _packed(units: Sequence[Weighed[Unit]], most_bytes: int, most_records: int) -> list[list[Unit]]:
    groups: list[list[Unit]] = []
    size = records = 0
    for each in units:
        size += each.bytes
        records += each.count
        if not groups or size > most_bytes or records > most_records:
            groups.append([])
            size, records = each.bytes, each.count
        groups[-1].append(each.unit)
    return groups


def _evenly(units: Sequence[Weighed[Unit]], wished: int) -> list[list[Unit]]:
    # Each group takes units until it has its share of what is left; the last takes the rest.
    groups: list[list[Unit]] = []
    left_bytes = sum(each.bytes for each in units)
    first = 0
    for groups_left in range(wished, 1, -1):
        share = left_bytes / groups_left
        size = units[first].bytes
        end = first + 1
        while len(units) - end >= groups_left and size + units[end].bytes / 2 <= share:
            size += units[end].bytes
            end += 1
        left_bytes -= size
        groups.append([each.unit for each in units[first:end]])
        first = end
    return [*groups, [each.unit for each in units[first:]]]


def split_range(
    first: int, end: int, *, records: int, size: int, splitting: Splitting
) -> list[tuple[int, int]]:
    """Return even divisions of the sequences from `first` up to `end`, each within the options.

    `records` and `size` are estimates of the messages and bytes of the whole range. Each division
    is its first sequence and the one behind its last.
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
    marks = [first + (end - first) * number // count for number in range(count + 1)]
    return list(itertools.pairwise(marks))
