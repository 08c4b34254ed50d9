"""The format `penstock`: streams as tables, through their server.

    spark.read.format("penstock").option("stream", "ORDERS").load()
    spark.readStream.format("penstock").option("streams", "A,B").load()

Works with Penstock's server and with any other NATS server. A table holds what the streams held
when it was planned. A streaming query acknowledges nothing and keeps its position in its checkpoint
alone, so that reading leaves nothing behind on the server.

With `ackConsumer` a query shows its position as a durable consumer, which delivers nothing and is
moved after each batch: `penstock consumer` and any monitoring of consumers then show how many
messages are left. It lags by a batch, and the last batch of a query that ends is not shown. The
query itself never reads it.

Everything runs in the driver but `read`, which runs in tasks, on an instance of its own: all that a
task needs is in its partition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError
from penstock.spark.connection import BROKEN, ask
from penstock.spark.part import StreamPartition, partitions_of, read_partition
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
from penstock.spark.schema import MESSAGE_COLUMNS, Column, requested, spark_schema
from penstock.spark.sinks.settings import read_sink
from penstock.spark.sinks.sink import RowStreamWriter, RowWriter
from penstock.spark.streams.facts import StreamFacts, end_of_rows
from penstock.spark.streams.settings import (
    FORMAT,
    Settings,
    begin_of,
    find_streams,
    plan,
    plan_stream,
    read_settings,
    rules_of,
)


def note_progress(streams: JetStream, consumer: str, places: Mapping[str, int]) -> None:
    """Move the consumer of each stream to the next sequence; create it if there is none."""
    for stream, next_seq in places.items():
        # A server does not answer a request to move a consumer that does not exist.
        if _is_there(streams, stream, consumer):
            streams.call(f"CONSUMER.RESET.{stream}.{consumer}", {"seq": max(next_seq, 1)})
        else:
            _make(streams, stream, consumer, next_seq)


def _is_there(streams: JetStream, stream: str, consumer: str) -> bool:
    try:
        streams.call(f"CONSUMER.INFO.{stream}.{consumer}")
    except ApiError as error:
        if error.err_code != error_codes.CONSUMER_NOT_FOUND.err_code:
            raise
        return False
    return True


def _make(streams: JetStream, stream: str, consumer: str, next_seq: int) -> None:
    config = {
        "durable_name": consumer,
        "description": "moved by a Spark query as it goes on",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(next_seq, 1),
        "ack_policy": "explicit",
    }
    streams.call(
        f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config}
    )


class StreamFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams; see the module."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns
        self._initial: dict[str, Any] | None = None
        self._target: dict[str, int] | None = None
        self._seen: list[StreamFacts] | None = None
        """The streams as they were when the present trigger was planned."""

        self._admission = Admission(settings.following)

    # In the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins; Spark calls it twice and must get the same."""
        if self._initial is None:
            self._initial = encode(
                {
                    facts.name: Position(facts.created, begin_of(self._settings, facts, "latest"))
                    for facts in find_streams(self._settings)
                }
            )
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a trigger reads at most."""
        return default_limit(self._settings.following)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the streams end now: the query stops there."""
        self._target = {each.name: each.end for each in find_streams(self._settings)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where a trigger that begins at `start` ends."""
        begins = decode(start)
        every = self._seen = self._streams(begins)
        spans = {facts.name: self._span(facts, begins) for facts in every}
        if not isinstance(limit, ReadAllAvailable):
            if self._target is None and self._admission.waits(self._waiting_rows(every, spans)):
                return start
            spans = self._limited(every, spans)
        ends = {facts.name: Position(facts.created, spans[facts.name][1]) for facts in every}
        # A stream that is gone keeps its position, should it come back.
        return encode({name: at for name, at in begins.items() if name not in ends} | ends)

    def _streams(self, begins: dict[str, Position]) -> list[StreamFacts]:
        is_gone_fine = not self._settings.following.fail_on_data_loss
        return find_streams(self._settings, maybe_gone=begins if is_gone_fine else ())

    def _span(self, facts: StreamFacts, begins: dict[str, Position]) -> tuple[int, int]:
        begin = self._begin(facts, begins)
        end = facts.end
        if self._target is not None:
            # A stream that was created since is for the next query.
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
                # Each stream gets its share of what is left, so that a long one
                # does not starve others.
                share = max(rows // (len(every) - place), 1)
                end, taken = self._end_of_rows(facts, begin, end, share)
                rows = max(rows - taken, 0)
            limited[facts.name] = (begin, end)
        return limited

    def _waiting_rows(self, every: list[StreamFacts], spans: dict[str, tuple[int, int]]) -> int:
        # Counted no further than the option needs.
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
        """Return where the streams end, for the query's progress."""
        every = self._seen if self._seen is not None else find_streams(self._settings)
        return encode({each.name: Position(each.created, each.end) for each in every})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the parts of a trigger."""
        begins, ends = decode(start), decode(end)
        every = self._seen if self._seen is not None else self._streams(begins)
        return [
            StreamPartition(each)
            for facts in every
            if facts.name in ends
            for each in plan_stream(
                self._settings, facts, self._begin(facts, begins), ends[facts.name].next
            )
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Show the query's position on the server, if the options name a consumer for that."""
        consumer = self._settings.source.ack_consumer
        if not consumer:
            return
        places = {name: at.next for name, at in decode(end).items()}
        # The position is only shown: the query goes on without.
        with contextlib.suppress(ApiError, *BROKEN):
            ask(
                self._settings.connection,
                lambda streams: note_progress(streams, consumer, places),
            )

    def _begin(self, facts: StreamFacts, begins: dict[str, Position]) -> int:
        at = begins.get(facts.name)
        # A stream that was created since the query began is read from its beginning.
        if at is None:
            return facts.first_seq
        here = StreamState(facts.created, facts.first_seq, facts.end)
        return check_stream(facts.name, at, here, rules_of(self._settings, facts))

    # In tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        return read_partition(partition, self._columns)


class StreamBatchReader(DataSourceReader):
    """Reads streams once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the streams."""
        return partitions_of(plan(self._settings))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        return read_partition(partition, self._columns)


class FilteredStreamReader(StreamBatchReader):
    """Reads what a query's filters may match, if pushdown is switched on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow what is read by filters; return all of them, for Spark to check each row."""
        found = narrow(filters, self._columns)
        self._settings = msgspec.structs.replace(self._settings, pushed=found)
        return filters


class StreamSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that the options ask for; raise UsageError if a stream is missing."""
        settings = read_settings(self.options)
        find_streams(settings)
        return spark_schema(settings.content.choose(settings.content.known(MESSAGE_COLUMNS)))

    def reader(self, schema: StructType) -> StreamBatchReader:
        """Return a reader for one batch."""
        settings = read_settings(self.options)
        kind = FilteredStreamReader if settings.pushdown.pushdown else StreamBatchReader
        return kind(settings, requested(schema, settings.content.known(MESSAGE_COLUMNS)))

    def streamReader(self, schema: StructType) -> StreamFollower:  # noqa: N802 - Spark's name
        """Return a reader for a streaming query."""
        settings = read_settings(self.options)
        columns = requested(schema, settings.content.known(MESSAGE_COLUMNS))
        return StreamFollower(settings, columns)

    def writer(self, schema: StructType, overwrite: bool) -> RowWriter:
        """Return a writer that publishes a frame."""
        return RowWriter(read_sink(self.options, schema, overwrites=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowStreamWriter:  # noqa: N802
        """Return a writer that publishes a query's batches."""
        return RowStreamWriter(
            read_sink(self.options, schema, overwrites=overwrite, is_streaming=True)
        )
