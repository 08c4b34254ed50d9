"""A Spark driver that copies a stream exactly once, for tests that kill it.

    python -m tests.spark.exactly_once_driver URL FOLDER MASTER

Follows the stream IN of the server in small batches and publishes its messages again, to OUT, until
nothing is left. Some tasks fail half-way when they are run first, and one stands still where there
is another executor that can run it too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import penstock.spark

ROWS_PER_BATCH = 8_000


class TaskFailed(Exception):
    """What a task says that is meant to fail."""


def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on, and fail in the middle of them at the first attempt."""
    context = TaskContext.get()
    assert context is not None
    batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
    fails = context.attemptNumber() == 0 and (batch + context.partitionId()) % 3 == 1
    for number, each in enumerate(batches):
        if fails and number == 1:
            raise TaskFailed
        yield each


def standing_still(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on, and stand still in the middle of the first task until Spark ends it."""
    context = TaskContext.get()
    assert context is not None
    stands = context.attemptNumber() == 0 and context.partitionId() == 0
    for number, each in enumerate(batches):
        yield each
        if stands and number == 1:
            threading.Event().wait()


def copied(source: DataFrame) -> DataFrame:
    return source.selectExpr("concat('out.', sequence % 7) as subject", "data")


def session(master: str) -> SparkSession:
    made = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.minTaskRuntime", "500ms")
        .config("spark.speculation.quantile", "0.5")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    penstock.spark.register(made)
    return made


def follow(spark: SparkSession, url: str, folder: str) -> None:
    """Copy what is left to copy."""
    source = (
        spark.readStream.format("penstock")
        .options(servers=url, stream="IN", startingOffsets="earliest", minPartitions="3")
        .option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH))
        .load()
    )
    rows = copied(source)
    query = (
        rows.mapInArrow(failing, rows.schema)
        .writeStream.format("penstock")
        .options(servers=url, stream="OUT", delivery="exactly-once", sinkId="copy")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def copy_once(spark: SparkSession, url: str) -> None:
    """Copy everything in one batch, with a task that hangs."""
    source = (
        spark.read.format("penstock").options(servers=url, stream="IN", minPartitions="3").load()
    )
    rows = copied(source)
    rows.mapInArrow(standing_still, rows.schema).write.format("penstock").mode("append").options(
        servers=url, stream="OUT", delivery="exactly-once", sinkId="copy", version="1"
    ).save()


def main(url: str, folder: str, master: str) -> None:
    """Copy."""
    spark = session(master)
    if master.startswith("spark:"):
        copy_once(spark, url)
    else:
        follow(spark, url, folder)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
