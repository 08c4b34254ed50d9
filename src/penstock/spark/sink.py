"""The format `penstock` for writing: each row is published, and taken by a stream.

    frame.write.format("penstock").mode("append").option("subject", "orders.new").save()
    query.writeStream.format("penstock").option("delivery", "dedupe")…

Columns: `subject` (or the option), `data` (binary or text; `value` too), and where they are there
`headers` and `msg_id`. A task waits for the stream's acknowledgement of each of its rows; what a
stream refuses fails the task, and so the query.

    delivery        at-least-once: a task that is run again publishes its rows again
                    dedupe: with a message id each, so that a stream drops what it had within its
                    duplicate window; ids are `msg_id`, or the query's batch, the task and the row
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from penstock.errors import UsageError
from penstock.spark.connecting import ALIASES, Connection, streams_of
from penstock.spark.options import Options

FORMAT = "penstock"
PAYLOADS = ("data", "value", "content")


class Delivery(StrEnum):
    """What is promised of a row."""

    AT_LEAST_ONCE = "at-least-once"
    DEDUPE = "dedupe"


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """Where rows go, and with which promise."""

    subject: str = ""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    sink_id: str = ""
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4096


class Published(WriterCommitMessage):
    """What one task did."""

    def __init__(self, rows: int, duplicates: int) -> None:
        self.rows = rows
        self.duplicates = duplicates


class Sink(msgspec.Struct, frozen=True):
    """Everything that a task needs to publish."""

    connection: Connection
    target: Target
    payload: str
    has_headers: bool
    has_id: bool

    def write(self, batches: Iterator[pa.RecordBatch]) -> Published:
        """Publish every row; raises RefusedByServer, UsageError, OSError."""
        rows = duplicates = 0
        with streams_of(self.connection) as streams:
            for batch in batches:
                duplicates += streams.client.publish_rows(
                    self._subjects(batch),
                    self._header_blocks(batch, rows),
                    column_bytes(batch.column(self.payload), self.payload),
                    in_flight=self.target.max_in_flight,
                )
                rows += batch.num_rows
        return Published(rows, duplicates)

    def _subjects(self, batch: pa.RecordBatch) -> tuple[memoryview, memoryview]:
        if self.target.subject:
            return column_bytes(pa.repeat(self.target.subject, batch.num_rows), "subject")
        return column_bytes(batch.column("subject"), "subject")

    def _header_blocks(
        self, batch: pa.RecordBatch, before: int
    ) -> tuple[memoryview, memoryview] | None:
        wants_ids = self.target.delivery is Delivery.DEDUPE
        if not wants_ids and not self.has_headers:
            return None
        every = batch.column("headers").to_pylist() if self.has_headers else [None] * len(batch)
        ids = self._ids(batch, before) if wants_ids else [None] * len(batch)
        blocks = [header_block(each, id_) for each, id_ in zip(every, ids, strict=True)]
        return column_bytes(pa.array(blocks, pa.binary()), "headers")

    def _ids(self, batch: pa.RecordBatch, before: int) -> list[str]:
        if self.has_id:
            return [str(each) for each in batch.column("msg_id").to_pylist()]
        context = TaskContext.get()
        if context is None:
            raise UsageError("delivery=dedupe needs the column msg_id outside of a task")
        run = context.getLocalProperty("streaming.sql.batchId")
        query = self.target.sink_id or context.getLocalProperty("sql.streaming.queryId")
        if run is None or not query:
            raise UsageError("delivery=dedupe of a batch needs the column msg_id")
        start = f"{query}:{run}:{context.partitionId()}:"
        return [f"{start}{before + row}" for row in range(batch.num_rows)]


def header_block(headers: Sequence[tuple[str, list[str]]] | None, message_id: str | None) -> bytes:
    """Write headers as they are sent; raises UsageError for what would be something else."""
    lines = []
    if message_id is not None:
        lines.append(("Nats-Msg-Id", message_id))
    for name, values in headers or ():
        lines += [(name, value) for value in values or ()]
    if not lines:
        return b""
    for name, value in lines:
        if not name or any(letter in name for letter in ":\r\n") or "\r" in value or "\n" in value:
            raise UsageError(f"no header: {name!r}: {value!r}")
    text = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"NATS/1.0\r\n{text}\r\n".encode()


def column_bytes(column: pa.Array, name: str) -> tuple[memoryview, memoryview]:
    """Give a column's offsets (int32) and its bytes; raises UsageError where a row is null."""
    if column.null_count:
        raise UsageError(f"column {name} is null in a row")
    plain = column.cast(pa.binary())
    if plain.offset:
        plain = pa.concat_arrays([plain])
    _, offsets, data = plain.buffers()
    places = memoryview(offsets.slice(0, (len(plain) + 1) * 4)).cast("i")
    return places, memoryview(b"" if data is None else data).cast("B")


def read_sink(given: Mapping[str, str], schema: StructType) -> Sink:
    """Read the options of the format and the columns of a frame; raises UsageError."""
    options = Options(FORMAT, given, ALIASES)
    connection = options.group(Connection)
    target = options.group(Target)
    options.finish()
    names = {field.name: field.dataType for field in schema.fields}
    payloads = [each for each in PAYLOADS if each in names]
    if len(payloads) != 1:
        raise UsageError(f"{FORMAT}: the frame needs one of the columns {', '.join(PAYLOADS)}")
    _check_type(names, payloads[0], (BinaryType, StringType))
    if not target.subject:
        if "subject" not in names:
            raise UsageError(f"{FORMAT}: give the option subject, or a column subject")
        _check_type(names, "subject", (StringType,))
    if "headers" in names:
        _check_type(names, "headers", (MapType,))
    return Sink(connection, target, payloads[0], "headers" in names, "msg_id" in names)


def _check_type(names: Mapping[str, Any], name: str, kinds: tuple[type, ...]) -> None:
    if not isinstance(names[name], kinds):
        raise UsageError(f"{FORMAT}: column {name} cannot be {names[name].simpleString()}")


class RowWriter(DataSourceArrowWriter):
    """Publishes a frame."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish a task's rows."""
        return self._sink.write(iterator)


class RowStreamWriter(DataSourceStreamArrowWriter):
    """Publishes what a query yields."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish a task's rows."""
        return self._sink.write(iterator)
