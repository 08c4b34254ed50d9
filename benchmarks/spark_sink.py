"""Writing to a stream with Spark: at least once, and exactly once, every ack after a sync.

In turns, two tasks on two cores that Spark, its Python workers and the server share. Rows are made
by Spark itself, so that writing is what is measured; the stream is made anew for each run, and what
is in it is counted afterwards.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import (
    PAYLOAD_BYTES,
    SUBJECTS,
    Row,
    Sizes,
    at_least,
    folder_in,
    si,
    take_turns,
    timed,
)
from penstock.bench.servers import OURS, BenchServer, with_jetstream
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.spark.session import open_session

GOALS = {"at-least-once": 150_000, "exactly-once": 100_000}
STREAM = "SINK"


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with (
        folder_in(folder, "spark-sink") as place,
        BenchServer("penstock", with_jetstream(OURS, place / "store")) as server,
        Client.connect(server.url, timeout_s=300) as client,
    ):
        conf = {"spark.driver.memory": "2g", "spark.sql.warehouse.dir": str(place / "warehouse")}
        spark = open_session(master="local[2]", name="penstock bench", conf=conf)
        try:
            writing = _Writing(spark, server.url, JetStream(client), sizes.scanned)
            for delivery in GOALS:
                # Workers start, and compile what they run.
                writing.write(delivery)
            taken = take_turns(
                sizes.rounds,
                *(lambda each=each: timed(lambda: writing.write(each)) for each in GOALS),
            )
        finally:
            spark.stop()
    rates = [[sizes.scanned / seconds for seconds in times] for times in taken]
    return [
        Row(
            "spark-sink",
            f"{delivery}, {PAYLOAD_BYTES} B messages, synced",
            statistics.median(rate),
            "rows/s",
            at_least(goal),
            f"{si(sizes.scanned, 'rows')} by two tasks",
            {"penstock": rate},
        )
        for (delivery, goal), rate in zip(GOALS.items(), rates, strict=True)
    ]


class _Writing:
    """One server's stream, written to again and again."""

    def __init__(self, spark: SparkSession, url: str, streams: JetStream, count: int) -> None:
        self._frame = _frame(spark, count)
        self._url = url
        self._streams = streams
        self._count = count
        self._versions = itertools.count(1)

    def write(self, delivery: str) -> None:
        """Write all rows to an empty stream."""
        subjects = ["sink.>", f"_fence.{STREAM}.>"]
        config = {"name": STREAM, "subjects": subjects, "allow_atomic": True}
        self._streams.call(f"STREAM.CREATE.{STREAM}", config)
        options = {"servers": self._url, "stream": STREAM, "delivery": delivery}
        if delivery == "exactly-once":
            options |= {"sinkId": "bench", "version": str(next(self._versions))}
        self._frame.write.format("penstock").mode("append").options(**options).save()
        stored = sum(count for _, count in self._streams.subjects(STREAM, "sink.>"))
        assert stored == self._count, f"{stored:,} rows of {self._count:,} are in the stream"
        self._streams.call(f"STREAM.DELETE.{STREAM}")


def _frame(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, numPartitions=2).selectExpr(
        f"concat('sink.', id % {SUBJECTS}) as subject",
        f"cast(rpad(cast(id as string), {PAYLOAD_BYTES}, 'x') as binary) as data",
    )
