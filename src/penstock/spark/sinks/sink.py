"""The format `penstock` for writing: each row is published, and stored by a stream.

    frame.write.format("penstock").mode("append").option("subject", "orders.new").save()
    query.writeStream.format("penstock").option("delivery", "exactly-once")…

Columns: `subject` (or the option), `data` (binary or text; `value` too), and optionally `headers`
and `msg_id`. A task waits for the stream's acknowledgement of each of its rows. A row that the
stream refuses fails the task, and so the query.

    delivery        at-least-once: a task that is run again publishes its rows again
                    dedupe: with a message id each, so that a stream drops what it had within its
                    duplicate window; ids are `msg_id`, or the query's batch, the task and the row
                    exactly-once: in atomic batches with fences, see `exact_sink`

`write_ordered` sorts a frame so that its rows come in the same order each time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.errors import UsageError
from penstock.limits import SINK_SUBJECTS_KNOWN_MAX
from penstock.spark.connection import ask, streams_of
from penstock.spark.sinks.exact_sink import ExactWriter, UnconfirmedRows
from penstock.spark.sinks.fences import (
    Committed,
    FenceSubjects,
    check_query,
    check_sink_id,
    read_committed,
    write_committed,
)
from penstock.spark.sinks.settings import Delivery, Sink
from penstock.subjects import SubjectFilter, is_literal


class Published(WriterCommitMessage):
    """The result of a task: rows that it stored, rows that were there, and the sink and query."""

    def __init__(self, rows: int, duplicates: int, sink_id: str = "", query: str = "") -> None:
        self.rows = rows
        self.duplicates = duplicates
        self.sink_id = sink_id
        self.query = query


class _Task:
    """Which partition of which batch a task writes, from Spark's task context."""

    def __init__(self) -> None:
        context = TaskContext.get()
        if context is None:
            raise UsageError("rows are written in tasks, and this is none")
        self.partition = context.partitionId()
        batch = context.getLocalProperty("streaming.sql.batchId")
        self.batch = None if batch is None else int(batch)
        self.query = context.getLocalProperty("sql.streaming.queryId") or ""


def write_rows(
    sink: Sink,
    batches: Iterator[pa.RecordBatch],
    *,
    is_streaming: bool,
    is_end_sure: bool = True,
) -> Published:
    """Publish a task's rows; raise RefusedByServer, UsageError, NotTheSameRows or OSError.

    The end of rows that come from Spark is never sure: see `ExactWriter`.
    """
    if sink.is_exact:
        return _write_exactly(sink, batches, is_streaming=is_streaming, is_end_sure=is_end_sure)
    id_start = None
    if sink.target.delivery is Delivery.DEDUPE and not sink.shape.id_column:
        id_start = _id_start(sink)
    count = 0
    with streams_of(sink.connection) as streams:
        streams.client.set_timeout(sink.target.publish_timeout_ms / 1000)
        with streams.client.publishing_rows(in_flight=sink.target.max_in_flight) as publisher:
            for batch in batches:
                publisher.publish(sink.shape.rows(batch, id_start, count))
                count += batch.num_rows
        streams.client.set_timeout(sink.connection.request_timeout_ms / 1000)
    return Published(count - publisher.duplicates, publisher.duplicates)


def _id_start(sink: Sink) -> bytes:
    task = _Task()
    query = sink.target.sink_id or task.query
    batch = task.batch if sink.target.version is None else sink.target.version
    if batch is None or not query:
        raise UsageError("delivery=dedupe of a batch needs the column msg_id, or msgIdColumn")
    return f"{query}:{batch}:{task.partition}:".encode()


def _write_exactly(
    sink: Sink, batches: Iterator[pa.RecordBatch], *, is_streaming: bool, is_end_sure: bool
) -> Published:
    task = _Task()
    query = task.query if is_streaming else ""
    batch = task.batch if is_streaming else sink.target.version
    sink_id = sink.target.sink_id or query
    if batch is None or not sink_id:
        raise UsageError("delivery=exactly-once: Spark tells neither the query nor the batch")
    check_sink_id(sink_id)
    place = FenceSubjects(sink.target.stream, sink.fence_prefix, sink_id)
    if ask(sink.connection, functools.partial(_is_complete, place, batch, query)):
        return Published(0, 0, sink_id, query)
    rows = UnconfirmedRows(_checked_rows(sink, batches))
    writer = ExactWriter(place, task.partition, batch, query, rows, is_end_sure=is_end_sure)
    connect = functools.partial(streams_of, sink.connection)
    writer.run(connect, sink.target.publish_timeout_ms / 1000)
    return Published(writer.written, writer.rows - writer.written, sink_id, query)


def _is_complete(place: FenceSubjects, batch: int, query: str, streams: JetStream) -> bool:
    committed = read_committed(streams, place)
    if committed is not None:
        check_query(place, query, committed.query)
    return committed is not None and committed.batch >= batch


def _checked_rows(sink: Sink, batches: Iterator[pa.RecordBatch]) -> Iterator[Rows]:
    """Yield rows as messages; raise UsageError for subjects that the stream does not take.

    A row in another stream would not be stored together with its fence.
    """
    taken, known = SubjectFilter(sink.stream_subjects), set[str]()
    fences = f"{sink.fence_prefix}."
    for batch in batches:
        for subject in pc.unique(sink.shape.subjects(batch)).to_pylist():
            if subject is None or subject in known:
                continue
            data = subject.encode()
            if not is_literal(data) or not taken.matches(data) or subject.startswith(fences):
                raise UsageError(
                    f"delivery=exactly-once: stream {sink.target.stream} does not take a row with "
                    f"the subject {subject!r}"
                )
            if len(known) >= SINK_SUBJECTS_KNOWN_MAX:
                known.clear()
            known.add(subject)
        yield sink.shape.rows(batch)


def _finish(sink: Sink, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    """Mark a batch as complete when all tasks are done; purge what it replaces."""
    told = [each for each in messages if isinstance(each, Published)]
    if sink.is_exact and told:
        place = FenceSubjects(sink.target.stream, sink.fence_prefix, told[0].sink_id)
        committed = Committed(batch, told[0].query)
        with streams_of(sink.connection) as streams:
            write_committed(streams, place, committed, len(messages))
    if sink.purges_to:
        with streams_of(sink.connection) as streams:
            streams.call(f"STREAM.PURGE.{sink.target.stream}", {"seq": sink.purges_to + 1})


class RowWriter(DataSourceArrowWriter):
    """Publishes a frame."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish a task's rows."""
        return write_rows(self._sink, iterator, is_streaming=False, is_end_sure=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Finish the batch: all rows are stored."""
        _finish(self._sink, messages, self._sink.target.version or 0)


class RowStreamWriter(DataSourceStreamArrowWriter):
    """Publishes a query's batches."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish a task's rows."""
        return write_rows(self._sink, iterator, is_streaming=True, is_end_sure=False)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Finish a batch: all its rows are stored."""
        _finish(self._sink, messages, batchId)


def write_ordered(
    frame: DataFrame, *columns: str, by: str = "subject", partitions: int | None = None
) -> DataFrame:
    """Return a frame whose rows of one `by` are written by one task, sorted by columns.

    Without columns they are sorted by `sequence`. If the columns tell all rows of a task apart, its
    rows come in the same order each time. With a fixed number of `partitions` they are also divided
    in the same way, on any cluster. Raise UsageError for a column that is missing.
    """
    keys = columns or ("sequence",)
    missing = [name for name in (by, *keys) if name not in frame.columns]
    if missing:
        raise UsageError(f"to be written in order a frame needs the column {missing[0]}")
    if partitions is None:
        return frame.repartition(by).sortWithinPartitions(*keys)
    return frame.repartition(partitions, by).sortWithinPartitions(*keys)
