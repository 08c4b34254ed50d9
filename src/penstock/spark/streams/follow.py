"""Following streams through their server, as a Structured Streaming source.

Runs in the driver but for `read`, which runs in tasks, on an instance of its own: whatever a task
needs travels in its partition. Nothing is acknowledged and no state is left on the server: where a
query is, its checkpoint says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from penstock.client.jetstream import JetStream
from penstock.errors import ApiError
from penstock.spark.admission import Admission, default_limit
from penstock.spark.connecting import BROKEN, ask
from penstock.spark.positions import Here, Position, check_stream, decode, encode
from penstock.spark.schema import Column
from penstock.spark.streams.counts import end_of_rows
from penstock.spark.streams.facts import StreamFacts
from penstock.spark.streams.progress import note_progress
from penstock.spark.streams.read import RangePartition, read_range
from penstock.spark.streams.settings import Settings, begin_of, find_streams, ranges_of, rules_of


class StreamFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams; see the module."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns
        self._initial: dict[str, Any] | None = None
        self._target: dict[str, int] | None = None
        self._seen: list[StreamFacts] | None = None
        """The streams as the trigger that is being made found them."""

        self._admission = Admission(settings.following)

    # In the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where a new query begins; asked for twice, and told the same."""
        if self._initial is None:
            self._initial = encode(
                {
                    facts.name: Position(facts.created, begin_of(self._settings, facts, "latest"))
                    for facts in find_streams(self._settings)
                }
            )
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Give how much a trigger reads at most."""
        return default_limit(self._settings.following)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where the streams end now: the query stops there."""
        self._target = {each.name: each.end for each in find_streams(self._settings)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Give where a trigger that begins at `start` ends."""
        begins = decode(start)
        every = self._seen = self._streams(begins)
        spans = {facts.name: self._span(facts, begins) for facts in every}
        if not isinstance(limit, ReadAllAvailable):
            if self._target is None and self._admission.waits(self._waiting_rows(every, spans)):
                return start
            spans = self._limited(every, spans)
        ends = {facts.name: Position(facts.created, spans[facts.name][1]) for facts in every}
        # A stream that is gone keeps its place, should it come back.
        return encode({name: at for name, at in begins.items() if name not in ends} | ends)

    def _streams(self, begins: dict[str, Position]) -> list[StreamFacts]:
        is_gone_fine = not self._settings.following.fail_on_data_loss
        return find_streams(self._settings, maybe_gone=begins if is_gone_fine else ())

    def _span(self, facts: StreamFacts, begins: dict[str, Position]) -> tuple[int, int]:
        begin = self._begin(facts, begins)
        end = facts.end
        if self._target is not None:
            # A stream that came since is for the next query.
            end = min(end, self._target.get(facts.name, begin))
        return begin, max(begin, end)

    def _limited(
        self, every: list[StreamFacts], spans: dict[str, tuple[int, int]]
    ) -> dict[str, tuple[int, int]]:
        size = sum(each.bytes for each in every) / max(sum(each.messages for each in every), 1)
        rows = self._admission.rows_max(size)
        if rows is None:
            return spans
        limited = {}
        for place, facts in enumerate(every):
            begin, end = spans[facts.name]
            if end > begin:
                # Each takes its share of what is left, so that one long stream starves no other.
                share = max(rows // (len(every) - place), 1)
                end, taken = self._end_of_rows(facts, begin, end, share)
                rows = max(rows - taken, 0)
            limited[facts.name] = (begin, end)
        return limited

    def _waiting_rows(self, every: list[StreamFacts], spans: dict[str, tuple[int, int]]) -> int:
        # How many messages wait, as far as that matters.
        least = self._settings.following.min_offsets_per_trigger
        if not least:
            return 0
        return sum(
            self._end_of_rows(facts, *spans[facts.name], least)[1]
            for facts in every
            if spans[facts.name][1] > spans[facts.name][0]
        )

    def _end_of_rows(self, facts: StreamFacts, begin: int, end: int, rows: int) -> tuple[int, int]:
        def find(streams: JetStream) -> tuple[int, int]:
            return end_of_rows(streams, facts, begin, end, rows)

        return ask(self._settings.connection, find)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Give where the streams end, for the query's progress."""
        every = self._seen if self._seen is not None else find_streams(self._settings)
        return encode({each.name: Position(each.created, each.end) for each in every})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide what a trigger reads among tasks."""
        begins, ends = decode(start), decode(end)
        every = self._seen if self._seen is not None else self._streams(begins)
        return [
            RangePartition(each)
            for facts in every
            if facts.name in ends
            for each in ranges_of(
                self._settings, facts, self._begin(facts, begins), ends[facts.name].next
            )
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the server how far the query is, where a consumer is named for that."""
        consumer = self._settings.source.ack_consumer
        if not consumer:
            return
        places = {name: at.next for name, at in decode(end).items()}
        # It is for people to look at; the query goes on without.
        with contextlib.suppress(ApiError, *BROKEN):
            ask(
                self._settings.connection,
                lambda streams: note_progress(streams, consumer, places),
            )

    def _begin(self, facts: StreamFacts, begins: dict[str, Position]) -> int:
        at = begins.get(facts.name)
        # A stream that came since the query began is read from its beginning.
        if at is None:
            return facts.first_seq
        here = Here(facts.created, facts.first_seq, facts.end)
        return check_stream(facts.name, at, here, rules_of(self._settings, facts))

    # In tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        if isinstance(partition, RangePartition):
            yield from read_range(partition.wanted, self._columns)
