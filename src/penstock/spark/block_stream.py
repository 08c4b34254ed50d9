"""Following a block directory that grows, as a Structured Streaming source.

Runs in the driver but for `read`, which runs in tasks, on an instance of its own: whatever a task
needs travels in its partition. A trigger reads what the blocks held when it began, at most as much
as the options allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import UsageError
from penstock.format.block import decode_block_header
from penstock.format.block_index import BlockIndex
from penstock.format.reader import StreamReader
from penstock.spark.block_scan import StretchPartition, scan
from penstock.spark.block_settings import Settings, plan_of
from penstock.spark.positions import Position, check_stream, decode, encode
from penstock.spark.schema import Column


class BlockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one directory; see the module."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        if settings.place.is_go:
            raise UsageError("a directory of Go's server cannot be followed; read it as a batch")
        self._settings = settings
        self._columns = columns
        self._initial: dict[str, Any] | None = None
        self._target: int | None = None

    # In the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where a new query begins; asked for twice, and told the same."""
        if self._initial is None:
            reader = self._settings.place.open()
            first = max(self._settings.wanted.first_seq, _first_seq(reader))
            if self._settings.starts_at_end:
                first = reader.last_seq + 1
            self._initial = self._encoded(reader, first)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Give how much a trigger reads at most."""
        most = self._settings.following.max_offsets_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where the stream ends now: the query stops there."""
        self._target = self._settings.place.open().last_seq + 1

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Give where a trigger that begins at `start` ends."""
        reader = self._settings.place.open()
        begin = self._begin(reader, start)
        end = min(reader.last_seq + 1, self._settings.wanted.last_seq + 1)
        if self._target is not None:
            end = min(end, self._target)
        if isinstance(limit, ReadMaxRows):
            end = min(end, end_of_rows(reader, begin, limit.max_rows))
        return self._encoded(reader, max(begin, end))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where the stream ends, for the query's progress."""
        reader = self._settings.place.open()
        return self._encoded(reader, reader.last_seq + 1)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide what a trigger reads among tasks."""
        reader = self._settings.place.open()
        begin = self._begin(reader, start)
        last = self._position(end).next - 1
        wanted = msgspec.structs.replace(self._settings.wanted, first_seq=begin, last_seq=last)
        if last < begin:
            return []
        stretches = plan_of(msgspec.structs.replace(self._settings, wanted=wanted), reader)
        return [StretchPartition(each) for each in stretches]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a directory is not told how far it was read."""

    def _begin(self, reader: StreamReader, start: dict[str, Any]) -> int:
        return check_stream(
            self._settings.place.stream,
            self._position(start),
            _identity(reader),
            _first_seq(reader),
            fail_on_data_loss=self._settings.following.fail_on_data_loss,
        )

    def _position(self, given: dict[str, Any]) -> Position:
        positions = decode(given)
        name = self._settings.place.stream
        if set(positions) != {name}:
            raise UsageError(f"the checkpoint is of {sorted(positions)}, and this reads {name}")
        return positions[name]

    def _encoded(self, reader: StreamReader, next_seq: int) -> dict[str, Any]:
        return encode({self._settings.place.stream: Position(_identity(reader), next_seq)})

    # In tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        if isinstance(partition, StretchPartition):
            yield from scan(partition.stretch, self._columns, self._settings.on_corrupt)


def end_of_rows(reader: StreamReader, begin: int, rows: int) -> int:
    """Give the first sequence behind `rows` live messages from `begin` on."""
    end = begin
    for block in reader.blocks:
        if block.last_seq < begin or not block.count:
            continue
        first, behind = max(begin, block.base_seq), block.last_seq + 1
        index = reader.load_index(block.number)
        live = _count_live(reader, index, first, behind)
        if live > rows:
            return _end_within(reader, index, (first, behind), rows)
        rows -= live
        end = behind
    return end


def _count_live(reader: StreamReader, index: BlockIndex, first: int, end: int) -> int:
    # A rewritten block has no entries any more of what was removed from it.
    ordinal = index.first_ordinal_from
    removed = sum(
        ordinal(high + 1) - ordinal(low)
        for low, high in reader.removed.ranges_between(first, end - 1)
    )
    return ordinal(end) - ordinal(first) - removed


def _end_within(reader: StreamReader, index: BlockIndex, bounds: tuple[int, int], rows: int) -> int:
    # Halving: how many live messages there are up to a sequence only grows with it.
    first, _ = bounds
    low, high = bounds
    while low + 1 < high:
        middle = (low + high) // 2
        if _count_live(reader, index, first, middle) < rows:
            low = middle
        else:
            high = middle
    return high


def _first_seq(reader: StreamReader) -> int:
    # The first message that is still there; one behind the last for none.
    for block in reader.blocks:
        index = reader.load_index(block.number)
        ordinal = 0
        while ordinal < index.count:
            seq = index.entry(ordinal)[0]
            removed = next(reader.removed.ranges_between(seq, block.last_seq), (seq + 1, 0))
            if removed[0] > seq:
                return seq
            ordinal = index.first_ordinal_from(removed[1] + 1)
    return reader.last_seq + 1


def _identity(reader: StreamReader) -> str:
    # The stream's salt stands in the header of every block.
    if not reader.blocks:
        return ""
    index = reader.load_index(reader.blocks[-1].number)
    return f"{decode_block_header(index.header, reader.folder.path).salt:016x}"
