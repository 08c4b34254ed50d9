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
    SupportsTriggerAvailableNow,
)

from penstock.errors import UsageError
from penstock.format.reader import StreamReader
from penstock.spark.admission import Admission, default_limit
from penstock.spark.blocks.positions import end_of_rows, first_seq, identity
from penstock.spark.blocks.scan import StretchPartition, scan
from penstock.spark.blocks.settings import Settings, placed, plan_of
from penstock.spark.positions import Here, Position, check_stream, decode, encode
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
        self._admission = Admission(settings.following)
        self._seen: StreamReader | None = None
        """The directory as the trigger that is being made found it."""

    # In the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where a new query begins; asked for twice, and told the same."""
        if self._initial is None:
            reader = self._settings.place.open()
            first = max(placed(self._settings, reader).wanted.first_seq, first_seq(reader))
            if self._settings.starts_at_end:
                first = reader.last_seq + 1
            self._initial = self._encoded(reader, first)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Give how much a trigger reads at most."""
        return default_limit(self._settings.following)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where the stream ends now: the query stops there."""
        self._target = self._settings.place.open().last_seq + 1

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Give where a trigger that begins at `start` ends."""
        reader = self._seen = self._settings.place.open()
        begin = self._begin(reader, start)
        end = min(reader.last_seq + 1, self._settings.wanted.last_seq + 1)
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
        # So many are there where they end before what there is, or just with it.
        is_enough = not least or end_of_rows(reader, begin, least - 1) < end
        return self._admission.waits(least if is_enough else 0)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where the stream ends, for the query's progress."""
        reader = self._seen or self._settings.place.open()
        return self._encoded(reader, reader.last_seq + 1)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide what a trigger reads among tasks."""
        reader = self._seen or self._settings.place.open()
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
        at = self._position(start)
        if not reader.blocks:
            # Nothing tells which stream it is, nor is there anything to read.
            return at.next
        here = Here(identity(reader), first_seq(reader), reader.last_seq + 1)
        return check_stream(self._settings.place.stream, at, here, self._settings.following.rules)

    def _position(self, given: dict[str, Any]) -> Position:
        positions = decode(given)
        name = self._settings.place.stream
        if set(positions) != {name}:
            raise UsageError(f"the checkpoint is of {sorted(positions)}, and this reads {name}")
        return positions[name]

    def _encoded(self, reader: StreamReader, next_seq: int) -> dict[str, Any]:
        return encode({self._settings.place.stream: Position(identity(reader), next_seq)})

    # In tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        if isinstance(partition, StretchPartition):
            yield from scan(partition.stretch, self._columns, self._settings.on_corrupt)


def _message_bytes(reader: StreamReader) -> float:
    messages = sum(each.count for each in reader.blocks)
    return sum(each.bytes for each in reader.blocks) / max(messages, 1)
