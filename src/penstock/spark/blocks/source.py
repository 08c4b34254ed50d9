"""The format `penstock-blocks`: a stream's block files as a table, without a server.

    spark.read.format("penstock-blocks").load("/data/jetstream/$G/streams/ORDERS")

Our layout and Go's, on the local disk or any file system that pyarrow knows, also while a server
goes on writing: a table holds what was there when it was planned. A directory that grows can be
followed as a Structured Streaming source: a trigger reads what the blocks held when it began, at
most as much as the options allow.

Everything runs in the driver but `read`, which runs in tasks, on an instance of its own: all that a
task needs is in its partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.format.reader import StreamReader
from penstock.spark.blocks.settings import (
    FORMAT,
    Settings,
    end_of_rows,
    first_seq,
    identity,
    narrowed,
    plan,
    plan_of,
    read_settings,
    times_as_sequences,
)
from penstock.spark.folder import open_folder
from penstock.spark.part import partitions_of, read_partition
from penstock.spark.position import (
    Admission,
    Position,
    StreamState,
    check_stream,
    decode,
    default_limit,
    encode,
)
from penstock.spark.pushdown import narrow
from penstock.spark.schema import Column, requested, spark_schema


class BlockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one directory; see the module."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        if settings.directory.is_go:
            raise UsageError("a directory of Go's server cannot be followed; read it as a batch")
        self._settings = settings
        self._columns = columns
        self._initial: dict[str, Any] | None = None
        self._target: int | None = None
        self._admission = Admission(settings.following)
        self._seen: StreamReader | None = None
        """The directory as it was when the present trigger was planned."""

    # In the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins; Spark calls it twice and must get the same."""
        if self._initial is None:
            reader = self._settings.directory.open()
            first = max(
                times_as_sequences(self._settings, reader).selection.first_seq, first_seq(reader)
            )
            if self._settings.starts_at_end:
                first = reader.last_seq + 1
            self._initial = self._encoded(reader, first)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a trigger reads at most."""
        return default_limit(self._settings.following)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the stream ends now: the query stops there."""
        self._target = self._settings.directory.open().last_seq + 1

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where a trigger that begins at `start` ends."""
        reader = self._seen = self._settings.directory.open()
        begin = self._begin(reader, start)
        end = min(reader.last_seq + 1, self._settings.selection.last_seq + 1)
        if self._target is not None:
            end = min(end, self._target)
        if not isinstance(limit, ReadAllAvailable):
            if self._target is None and self._is_put_off(reader, begin, end):
                return start
            rows = self._admission.rows_max(_message_bytes(reader))
            end = end if rows is None else min(end, end_of_rows(reader, begin, rows))
        return self._encoded(reader, max(begin, end))

    def _is_put_off(self, reader: StreamReader, begin: int, end: int) -> bool:
        least = self._settings.following.min_offsets_per_trigger
        # There are enough if they end before the stream does, or with it.
        is_enough = not least or end_of_rows(reader, begin, least - 1) < end
        return self._admission.waits(least if is_enough else 0)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the stream ends, for the query's progress."""
        reader = self._seen or self._settings.directory.open()
        return self._encoded(reader, reader.last_seq + 1)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the parts of a trigger."""
        reader = self._seen or self._settings.directory.open()
        begin = self._begin(reader, start)
        last = self._position(end).next - 1
        if last < begin:
            return []
        selection = msgspec.structs.replace(
            self._settings.selection, first_seq=begin, last_seq=last
        )
        parts = plan_of(msgspec.structs.replace(self._settings, selection=selection), reader)
        return partitions_of(parts)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a directory keeps no position of a query."""

    def _begin(self, reader: StreamReader, start: dict[str, Any]) -> int:
        at = self._position(start)
        if not reader.blocks:
            # A directory without blocks has no identity, and nothing to read.
            return at.next
        here = StreamState(identity(reader), first_seq(reader), reader.last_seq + 1)
        return check_stream(
            self._settings.directory.stream, at, here, self._settings.following.rules
        )

    def _position(self, given: dict[str, Any]) -> Position:
        positions = decode(given)
        name = self._settings.directory.stream
        if set(positions) != {name}:
            raise UsageError(f"the checkpoint is of {sorted(positions)}, and this reads {name}")
        return positions[name]

    def _encoded(self, reader: StreamReader, next_seq: int) -> dict[str, Any]:
        return encode({self._settings.directory.stream: Position(identity(reader), next_seq)})

    # In tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        return read_partition(partition, self._columns)


def _message_bytes(reader: StreamReader) -> float:
    messages = sum(each.count for each in reader.blocks)
    return sum(each.bytes for each in reader.blocks) / max(messages, 1)


class BlockReader(DataSourceReader):
    """Reads a directory once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns
        self._is_empty = False

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the directory."""
        if self._is_empty:
            return []
        return partitions_of(plan(self._settings))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        return read_partition(partition, self._columns)


class FilteredBlockReader(BlockReader):
    """Reads what a query's filters may match, if pushdown is switched on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow what is read by filters; return all of them, for Spark to check each row."""
        found = narrowed(self._settings, narrow(filters, self._columns))
        self._is_empty = found is None
        self._settings = found or self._settings
        return filters


class BlockSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        settings = read_settings(self.options)
        open_folder(settings.directory.path)
        return spark_schema(settings.content.choose(settings.columns()))

    def reader(self, schema: StructType) -> BlockReader:
        """Return a reader for one batch."""
        settings = read_settings(self.options)
        if settings.starts_at_end:
            raise UsageError(f"{FORMAT}: startingOffsets=latest is for following a directory")
        kind = FilteredBlockReader if settings.pushdown.pushdown else BlockReader
        return kind(settings, requested(schema, settings.columns()))

    def streamReader(self, schema: StructType) -> BlockStreamReader:  # noqa: N802 - Spark's name
        """Return a reader for a streaming query."""
        settings = read_settings(self.options)
        columns = requested(schema, settings.columns())
        return BlockStreamReader(settings, columns)
