"""Following streams through their server, as a Structured Streaming source.

Runs in the driver but for `read`, which runs in tasks, on an instance of its own: whatever a task
needs travels in its partition. Nothing is acknowledged and no state is left on the server: where a
query is, its checkpoint says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.connecting import streams_of
from penstock.spark.positions import Position, check_stream, decode, encode
from penstock.spark.schema import Column
from penstock.spark.stream_counts import end_of_rows
from penstock.spark.stream_read import RangePartition, read_range
from penstock.spark.stream_settings import (
    Settings,
    StreamFacts,
    find_streams,
    named_position,
    ranges_of,
)


class StreamFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams; see the module."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns
        self._initial: dict[str, Any] | None = None
        self._target: dict[str, int] | None = None

    # In the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where a new query begins; asked for twice, and told the same."""
        if self._initial is None:
            text = self._settings.wanted.starting_offsets
            self._initial = encode(
                {
                    facts.name: Position(
                        facts.created, named_position(text, "startingOffsets", facts, "latest")
                    )
                    for facts in find_streams(self._settings)
                }
            )
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Give how much a trigger reads at most."""
        most = self._settings.following.max_offsets_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where the streams end now: the query stops there."""
        self._target = {each.name: each.last_seq + 1 for each in find_streams(self._settings)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Give where a trigger that begins at `start` ends."""
        begins = decode(start)
        every = find_streams(self._settings)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = {}
        waiting = len(every)
        for facts in every:
            begin = self._begin(facts, begins)
            end = facts.last_seq + 1
            if self._target is not None:
                # A stream that came since is for the next query.
                end = min(end, self._target.get(facts.name, begin))
            end = max(begin, end)
            if rows is not None and end > begin:
                # Each takes its share of what is left, so that one long stream starves no other.
                end, taken = self._limited(facts, begin, end, max(rows // waiting, 1))
                rows = max(rows - taken, 0)
            waiting -= 1
            ends[facts.name] = Position(facts.created, end)
        return encode(ends)

    def _limited(self, facts: StreamFacts, begin: int, end: int, rows: int) -> tuple[int, int]:
        with streams_of(self._settings.connection) as streams:
            return end_of_rows(streams, facts, begin, end, rows)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where the streams end, for the query's progress."""
        return encode(
            {
                each.name: Position(each.created, each.last_seq + 1)
                for each in find_streams(self._settings)
            }
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide what a trigger reads among tasks."""
        begins, ends = decode(start), decode(end)
        return [
            RangePartition(each)
            for facts in find_streams(self._settings)
            if facts.name in ends
            for each in ranges_of(
                self._settings, facts, self._begin(facts, begins), ends[facts.name].next
            )
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a server is not told how far it was read."""

    def _begin(self, facts: StreamFacts, begins: dict[str, Position]) -> int:
        at = begins.get(facts.name)
        # A stream that came since the query began is read from its beginning.
        if at is None:
            return facts.first_seq
        return check_stream(
            facts.name,
            at,
            facts.created,
            facts.first_seq,
            fail_on_data_loss=self._settings.following.fail_on_data_loss,
        )

    # In tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        if isinstance(partition, RangePartition):
            yield from read_range(partition.wanted, self._columns)
