"""How a flow's frame is written: the columns that its sink takes, and batch by batch.

Streams, buckets and Delta tables are written batch by batch, because Spark's own writers of Python
formats take rows in mode append alone. A batch that is run again after a crash has the same number,
so that a writer can skip it; its rows must come in the same order, so after a shuffle they are
sorted. Parquet tables are written by Spark's file sink.

Errors are passed on in one line: Spark's parsing of a long trace can end its own thread, and a
query whose thread has ended so looks as if it were done.

Called by Spark in the driver; through Spark Connect a copy runs on the server's side.
"""

from __future__ import annotations

import contextlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, StringType

from penstock.errors import PenstockError, UsageError
from penstock.spark.failures import first_line
from penstock.spark.pipelines.pipeline import (
    EXACTLY_ONCE,
    KvOutput,
    Mode,
    Output,
    TableFormat,
    TableOutput,
)


class BatchFailed(PenstockError):
    """A batch could not be written."""


class BatchWriter(ABC):
    """Writes the batches of one query; see the module."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._query_id = ""
        self.failure = ""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; raise BatchFailed."""
        try:
            self.write(batch, batch_id)
        except Exception as error:  # noqa: BLE001 - Spark's edge: whatever it is becomes one line
            self.failure = first_line(error)
            raise BatchFailed(self.failure) from None

    @abstractmethod
    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch, unless it was written."""

    def query_id(self, batch: DataFrame) -> str:
        """Return the id of the query, which is stored in its checkpoint.

        A query with a new checkpoint counts its batches anew, and must not be taken for the old
        one.
        """
        if not self._query_id:
            noted = batch.sparkSession.read.text(f"{self._checkpoint}/metadata").first()
            assert noted is not None, "Spark writes it before the first batch"
            self._query_id = json.loads(noted[0])["id"]
        return self._query_id


class FormatWriter(BatchWriter):
    """Writes to one of our formats."""

    def __init__(
        self, format_name: str, options: Mapping[str, str], checkpoint: str, order: list[str]
    ) -> None:
        """Create a writer; rows are sorted by the columns of `order`, if there are any."""
        super().__init__(checkpoint)
        self._format = format_name
        self._options = dict(options)
        self._order = order

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        options = dict(self._options)
        if options.get("delivery") == EXACTLY_ONCE:
            options |= {"sinkId": self.query_id(batch), "version": str(batch_id)}
        if self._order:
            batch = batch.sortWithinPartitions(*self._order)
        batch.write.format(self._format).mode("append").options(**options).save()


class Writing(NamedTuple):
    """A query that can be started, and the writer of its batches if we write them."""

    starter: DataStreamWriter
    batches: BatchWriter | None = None


def writing_of(
    frame: DataFrame, output: Output, mode: Mode, options: Mapping[str, str], checkpoint: str
) -> Writing:
    """Return a query that writes a frame; raise UsageError if the frame does not fit its sink.

    `options` are those of the connection.
    """
    if isinstance(output, TableOutput):
        return _to_table(frame, output, mode, checkpoint)
    if isinstance(output, KvOutput):
        output.key.check(frame.columns, "key")
        ready = frame.select(output.key.value().alias("key"), _payload(frame, output.payload))
        return by_batch(
            ready,
            "penstock-kv",
            {**options, "bucket": output.bucket, **output.options},
            mode,
            checkpoint,
        )
    output.subject.check(frame.columns, "subject")
    columns = [output.subject.value().alias("subject"), _payload(frame, output.payload)]
    if output.headers:
        _check_column(frame, output.headers)
        columns.append(F.col(f"`{output.headers}`").alias("headers"))
    return by_batch(
        frame.select(*columns), "penstock", {**options, **output.options}, mode, checkpoint
    )


def by_batch(
    ready: DataFrame, format_name: str, options: Mapping[str, str], mode: Mode, checkpoint: str
) -> Writing:
    """Return a query that writes a frame of messages to one of our formats, batch by batch."""
    order = [each for each in ready.columns if each != "headers"]
    is_shuffled = mode is not Mode.APPEND or _is_shuffled(ready)
    writer = FormatWriter(format_name, options, checkpoint, order if is_shuffled else [])
    return _each_batch(ready, mode, writer, checkpoint)


def _each_batch(ready: DataFrame, mode: Mode, writer: BatchWriter, checkpoint: str) -> Writing:
    starter = ready.writeStream.outputMode(mode).foreachBatch(writer)
    return Writing(starter.option("checkpointLocation", checkpoint), writer)


def _to_table(frame: DataFrame, output: TableOutput, mode: Mode, checkpoint: str) -> Writing:
    names = _own_columns(frame)
    for each in output.partition_by:
        if each not in names:
            raise UsageError(f"partition by {each!r}: the frame has {', '.join(names)}")
    own = frame.select(*[F.col(f"`{each}`") for each in names])
    if output.format is TableFormat.DELTA:
        # Loaded only if needed: deltalake is an extra.
        from penstock.spark.pipelines.delta import DeltaWriter

        return _each_batch(own, mode, DeltaWriter(output.path, mode, checkpoint), checkpoint)
    files = own.writeStream.format("parquet").option("path", output.path)
    files = files.option("checkpointLocation", checkpoint)
    return Writing(files.partitionBy(*output.partition_by) if output.partition_by else files)


def _own_columns(frame: DataFrame) -> list[str]:
    names = [each for each in frame.columns if not each.startswith("_")]
    if not names:
        raise UsageError("the frame has no column to write: names that begin with _ do not count")
    return names


def _payload(frame: DataFrame, column: str) -> Column:
    """Return the column `value`: a column of the frame, or all of its columns as JSON."""
    if not column:
        own = F.struct(*[F.col(f"`{each}`") for each in _own_columns(frame)])
        return F.to_json(own, {"ignoreNullFields": "false"}).alias("value")
    _check_column(frame, column)
    kind = frame.schema[column].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise UsageError(f"payload: column {column} cannot be {kind.simpleString()}")
    return F.col(f"`{column}`").alias("value")


def _check_column(frame: DataFrame, name: str) -> None:
    if name not in frame.columns:
        raise UsageError(f"the frame has no column {name!r}, but {', '.join(frame.columns)}")


def _is_shuffled(frame: DataFrame) -> bool:
    """Return True if rows are shuffled, and so come in any order."""
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        frame.explain()
    return "Exchange" in plan.getvalue()
