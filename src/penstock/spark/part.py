"""A part of a stream that one task reads: where it is, and which of its messages are read.

Every format and every job divides its input into `StreamPart`s in the driver. Spark carries each to
a task as a `StreamPartition`, which reads it. Where a part is, its source says: a range of blocks
of a directory, a stream of a server, files of an archive. There is one class for each, beside the
code that reads it: `BlockRange`, `ServerStream`, `ArchiveFiles`, `ArchiveUnion`, and for buckets
`BlockKeys` and `BucketKeys`.

Invariant: a part holds all that a task needs, as small frozen structs that can be pickled, so that
a task that is run again reads the same messages. Loaded by executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from penstock.format.reader import SEQ_MAX, TIME_MAX, TIME_MIN, Selection
from penstock.spark.arrow import needs_of
from penstock.spark.options import Batches, PayloadCompression, Range
from penstock.spark.schema import Column
from penstock.subjects import SubjectFilter


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
