"""How a flow's frame is written: the columns that its sink takes, and a batch at a time.

Streams and buckets are written batch by batch, because Spark's own writers of Python formats take
rows in mode append alone. The rows of a batch that is run again come in the same order, which after
a shuffle they do only once they are sorted. Tables of Parquet are written by Spark's file sink.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, StringType

from penstock.errors import UsageError
from penstock.spark.pipelines.batches import BatchWriter, FormatWriter
from penstock.spark.pipelines.ends import KvOutput, Mode, Output, TableFormat, TableOutput


class Writing(NamedTuple):
    """What starts a query, and what writes its batches where they are written by us."""

    starter: DataStreamWriter
    batches: BatchWriter | None = None


def writing_of(
    frame: DataFrame, output: Output, mode: Mode, options: Mapping[str, str], checkpoint: str
) -> Writing:
    """Give what writes a frame; raises UsageError where it does not fit its sink.

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
    """Give what writes a frame of messages to one of our formats, a batch at a time."""
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
        # Loaded where it is used: it is an extra of its own.
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
    """Give the column `value`: a column of the frame, or all of its own as JSON."""
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
    """Tell whether rows pass from task to task, in an order that is left to chance."""
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        frame.explain()
    return "Exchange" in plan.getvalue()
