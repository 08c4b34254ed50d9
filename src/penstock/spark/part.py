"""Parts of streams: what one task reads, and how a stream is divided into such parts.

Every format and every job divides its input into `StreamPart`s in the driver. Spark carries each to
a task as a `StreamPartition`, which reads it. Where a part is, its source says: a range of blocks
of a directory, a stream of a server, files of an archive. There is one class for each, beside the
code that reads it: `BlockRange`, `ServerStream`, `ArchiveFiles`, `ArchiveUnion`, and for buckets
`BlockKeys` and `BucketKeys`.

A stream is divided by what its blocks, files or sequences cost. Blocks of a directory and files of
an archive are grouped (`group_units`); the sequences of a server's stream are divided
(`split_range`).

Invariants: a plan depends on the stream and the options alone, never on the clock or on how many
cores there are, so that the same job makes the same parts everywhere. A part holds all that a task
needs, as small frozen structs that can be pickled, so that a task that is run again reads the same
messages. Loaded by executors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from penstock.format.reader import (
    PICKED_GAP_BYTES,
    PICKED_PART,
    SEQ_MAX,
    TIME_MAX,
    TIME_MIN,
    BlockInfo,
    Selection,
)
from penstock.spark.arrow import needs_of
from penstock.spark.options import Batches, PayloadCompression, Range, Size
from penstock.spark.schema import Column
from penstock.subjects import SubjectFilter

# How a stream is divided

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


# What one task reads


class MessageSelection(msgspec.Struct, frozen=True):
    """Which messages are read, and in batches of which size."""

    first_seq: int = 0
    last_seq: int = SEQ_MAX
    first_ns: int = TIME_MIN
    last_ns: int = TIME_MAX
    subjects: tuple[bytes, ...] | None = None
    """Patterns of which a message's subject matches one; None for any subject."""

    rows_max: int = 16_384
    bytes_max: int = 8 * 1024 * 1024
    packed: PayloadCompression = PayloadCompression.NONE
    fail_on_data_loss: bool = True
    include_deleted: bool = False
    """Whether messages are read, too, that were removed and are still in their blocks."""

    @classmethod
    def of(
        cls,
        wanted: Range,
        batches: Batches,
        packed: PayloadCompression = PayloadCompression.NONE,
        fail_on_data_loss: bool = True,
    ) -> MessageSelection:
        """Return the selection that options ask for; raise UsageError if one is wrong."""
        subjects = wanted.subjects()
        return cls(
            wanted.first_seq(),
            max(wanted.end_seq() - 1, 0),
            wanted.first_ns(),
            wanted.last_ns(),
            None if subjects is None else subjects.patterns,
            batches.arrow_batch_rows,
            batches.arrow_batch_bytes,
            packed,
            fail_on_data_loss,
        )

    @property
    def end(self) -> int:
        """The sequence behind the last that is read."""
        return self.last_seq + 1

    @property
    def selects_times(self) -> bool:
        """True if messages are left out by their time."""
        return (self.first_ns, self.last_ns) != (TIME_MIN, TIME_MAX)

    def subject_texts(self) -> tuple[str, ...]:
        """Return the patterns of subjects as text; none for any subject."""
        return tuple(each.decode() for each in self.subjects or ())

    def subject_filter(self) -> SubjectFilter | None:
        """Return the filter of subjects; None for any subject."""
        return None if self.subjects is None else SubjectFilter(self.subjects)

    def between(self, first: int, last: int) -> MessageSelection:
        """Return the selection without sequences below `first` or above `last`."""
        return replace(
            self, first_seq=max(self.first_seq, first), last_seq=min(self.last_seq, last)
        )

    def for_reader(self, columns: Sequence[Column]) -> Selection:
        """Return the selection as readers of blocks take it, with what the columns need."""
        needs = needs_of(columns)
        return Selection(
            first_seq=self.first_seq,
            last_seq=self.last_seq,
            first_ns=self.first_ns,
            last_ns=self.last_ns,
            subjects=self.subject_filter(),
            headers=needs.headers,
            payloads=needs.payloads,
            rows_max=self.rows_max,
            bytes_max=self.bytes_max,
        )


class PartSource(Protocol):
    """Where the messages of a part are."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        ...

    @property
    def last_seq(self) -> int:
        """The last sequence that the source can hold."""
        ...

    @property
    def count(self) -> int:
        """How many messages there are, removed ones included; 0 if only a server knows."""
        ...

    @property
    def bytes(self) -> int:
        """How many bytes there are to read; 0 if only a server knows."""
        ...

    def read(
        self, selection: MessageSelection, columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected messages; raise CorruptStore or DataLoss. Called in tasks."""
        ...


class StreamPart(msgspec.Struct, frozen=True):
    """A part of one stream that one task reads."""

    source: PartSource
    selection: MessageSelection

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.source.stream

    @property
    def last_seq(self) -> int:
        """The last sequence that the part answers for."""
        return min(self.source.last_seq, self.selection.last_seq)

    @property
    def count(self) -> int:
        """How many messages the source holds; 0 if only a server knows."""
        return self.source.count

    @property
    def bytes(self) -> int:
        """How many bytes the source holds; 0 if only a server knows."""
        return self.source.bytes

    def between(self, first: int, last: int) -> StreamPart:
        """Return the part without sequences below `first` or above `last`."""
        return replace(self, selection=self.selection.between(first, last))

    def read(self, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        """Yield the part's messages; raise CorruptStore or DataLoss. Called in tasks."""
        return self.source.read(self.selection, columns)


class StreamPartition(InputPartition):
    """A part, as Spark carries it to a task."""

    def __init__(self, part: StreamPart) -> None:
        self.part = part


def partitions_of(parts: Sequence[StreamPart]) -> list[InputPartition]:
    """Return parts as Spark carries them to tasks."""
    return [StreamPartition(each) for each in parts]


def read_partition(
    partition: InputPartition, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a partition; none for the partition that Spark makes if there is no
    part."""
    if isinstance(partition, StreamPartition):
        yield from partition.part.read(columns)
