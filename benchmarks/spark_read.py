"""Reading streams with Spark: from block files, through the server, filtered, batch by small batch.

In turns with what it is compared with: Spark's own Parquet scan of the same rows, a Spark source
that reads through nats-py (see `spark_nats_py`), a full scan, and a source that lives in the JVM.
Nothing is done with the rows (`noop`), so that reading is all that is measured. Planning is done in
a process of its own, on a directory of ten thousand blocks that are nothing but holes.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from benchmarks import spark_nats_py
from benchmarks.measure import (
    PAYLOAD_BYTES,
    Row,
    Sizes,
    at_least,
    at_most,
    folder_in,
    in_own_process,
    ratio,
    si,
    take_turns,
    timed,
)
from benchmarks.sparse_store import make_sparse_store
from penstock.bench.loops import publish_many
from penstock.bench.servers import OURS, BenchServer, with_jetstream
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.spark.session import open_session

Make = Callable[[], DataFrame]

SUBJECTS = 1000
STREAM = "ORDERS"
SUBJECT = "orders.007.created"
PUBLISHED_AT_ONCE = 100_000
FILTERED_PART = 2
"""Filters are for large streams: of a small one, Spark's own tenth of a second is most of it."""

NATS_PY_PART = 20
"""nats-py reads this part of the rows: it is slower by an order of magnitude."""

GROWTH_ROWS = 1_000
TRIGGERS_COLD = {"full": 5, "quick": 5, "tiny": 1}
TRIGGERS = {"full": 12, "quick": 12, "tiny": 2}
PLANNED_BLOCKS = {"full": 10_000, "quick": 10_000, "tiny": 100}
PLANNED_BLOCK_BYTES = 50_000_000


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with folder_in(folder, "spark-read") as place:
        rows = _planning(sizes, place / "planned")
        with _server(place) as server, _session(place) as spark:
            bench = _Reading(sizes, spark, server.url, place)
            bench.publish()
            rows += [*bench.whole(), *bench.filtered(), bench.growing()]
    return rows


@contextlib.contextmanager
def _server(place: Path) -> Iterator[BenchServer]:
    command = with_jetstream(OURS, place / "store")
    with BenchServer("penstock", command) as server:
        yield server


@contextlib.contextmanager
def _session(place: Path) -> Iterator[SparkSession]:
    cloudpickle.register_pickle_by_value(spark_nats_py)  # type: ignore[no-untyped-call]
    conf = {
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    spark = open_session(master="local[2]", name="penstock bench", conf=conf)
    spark.dataSource.register(spark_nats_py.NatsSource)
    try:
        yield spark
    finally:
        spark.stop()


# Planning


def _planning(sizes: Sizes, place: Path) -> list[Row]:
    blocks = PLANNED_BLOCKS[sizes.name]
    make_sparse_store(place, blocks=blocks, block_bytes=PLANNED_BLOCK_BYTES)
    runs = [in_own_process("plan", str(place)) for _ in range(sizes.rounds)]
    what = f"planning {blocks:,} blocks, {si(blocks * PLANNED_BLOCK_BYTES, 'B')}"
    seconds, grown, filtered = (
        [run[key] for run in runs] for key in ("seconds", "grown_mb", "filtered_seconds")
    )
    detail = f"{runs[0]['parts']:.0f} parts; by one subject in {statistics.median(filtered):.2g} s"
    return [
        Row("spark-read", what, statistics.median(seconds), "s", at_most(5), detail),
        Row(
            "spark-read", f"{what}: memory", statistics.median(grown), "MB", at_most(500),
            "what planning added to the process",
        ),
    ]  # fmt: skip


class _Reading:
    """One stream, and the ways to read it."""

    def __init__(self, sizes: Sizes, spark: SparkSession, url: str, place: Path) -> None:
        self._sizes = sizes
        self._spark = spark
        self._url = url
        self._place = place
        self._count = sizes.scanned
        self._every = sizes.opened_large * FILTERED_PART
        self._blocks = f"{place}/store/jetstream/$G/streams/{STREAM}"

    def publish(self) -> None:
        """Fill the stream, its messages of a thousand subjects in no order."""
        with Client.connect(self._url, timeout_s=300) as client:
            JetStream(client).call(
                f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": ["orders.>"]}
            )
            with client.publishing_rows(in_flight=4096) as publisher:
                for first in range(0, self._every, PUBLISHED_AT_ONCE):
                    publisher.publish(_rows(min(PUBLISHED_AT_ONCE, self._every - first), first))

    # Ways to read

    def _read_blocks(self, **options: str) -> DataFrame:
        reading = self._spark.read.format("penstock-blocks").option("stream", STREAM)
        return reading.options(**options).load(self._blocks)

    def _read_stream(self, **options: str) -> DataFrame:
        given = {"servers": self._url, "stream": STREAM, **options}
        return self._spark.read.format("penstock").options(**given).load()

    def _read_nats_py(self, parts: int) -> DataFrame:
        given = {
            "servers": self._url, "stream": STREAM, "parts": str(parts),
            "last": str(self._count // NATS_PY_PART),
        }  # fmt: skip
        return self._spark.read.format(spark_nats_py.NAME).options(**given).load()

    # What is measured

    def whole(self) -> list[Row]:
        """All columns of a part of the stream that is small enough for Parquet and nats-py."""
        end = str(self._count + 1)
        parquet = str(self._place / "parquet")
        self._read_blocks(endingOffsets=end, minPartitions="4").write.parquet(parquet)
        ways: dict[str, Make] = {
            "parquet": lambda: self._spark.read.parquet(parquet),
            "blocks": lambda: self._read_blocks(endingOffsets=end, minPartitions="4"),
            "server": lambda: self._read_stream(endingOffsets=end),
        }
        few: dict[str, Make] = {
            "nats-py": lambda: self._read_nats_py(2),
            "nats-py, one core": lambda: self._read_nats_py(1),
        }
        for way in (*ways.values(), *few.values()):
            _noop(way())
        taken = take_turns(
            self._sizes.rounds, *(_timing(way) for way in (*ways.values(), *few.values()))
        )
        counts = [self._count] * len(ways) + [self._count // NATS_PY_PART] * len(few)
        rates = {
            name: [count / seconds for seconds in times]
            for name, count, times in zip((*ways, *few), counts, taken, strict=True)
        }
        return _whole_rows(rates)

    def filtered(self) -> list[Row]:
        """One subject in a thousand of the whole stream, by an option and by SQL."""
        spark = self._spark
        columns = "(subject string, sequence long, time_ns long, data binary)"
        wanted = {}
        for source, given in (
            ("penstock-blocks", f"`path` = '{self._blocks}', `minPartitions` = '2'"),
            ("penstock", f"`servers` = '{self._url}'"),
        ):
            table = source.replace("-", "_")
            spark.sql(f"CREATE TABLE {table} {columns} USING `{source}`")
            wanted[source] = (
                f"SELECT * FROM {table} WITH ({given}, `stream` = '{STREAM}', "
                f"`pushdown` = 'true') WHERE subject = '{SUBJECT}'"
            )
        return [
            *self._filtered_rows(
                "penstock-blocks",
                lambda: self._read_blocks(minPartitions="4"),
                lambda: self._read_blocks(subject=SUBJECT, minPartitions="2"),
                lambda: spark.sql(wanted["penstock-blocks"]),
            ),
            *self._filtered_rows(
                "penstock",
                lambda: self._read_stream(minPartitions="2"),
                lambda: self._read_stream(subject=SUBJECT),
                lambda: spark.sql(wanted["penstock"]),
            ),
        ]

    def _filtered_rows(self, name: str, full: Make, by_option: Make, by_sql: Make) -> list[Row]:
        assert by_option().count() == by_sql().count() > 0
        whole, option, sql = take_turns(
            min(self._sizes.rounds, 3), _timing(full), _timing(by_option), _timing(by_sql)
        )
        return [
            _filter_row(f"{name}, {how}", whole, times, self._every)
            for how, times in (("option", option), ("SQL", sql))
        ]

    def growing(self) -> Row:
        """What a trigger costs that reads a thousand new messages."""
        with Client.connect(self._url, timeout_s=300) as client:
            streams = JetStream(client)
            streams.call("STREAM.CREATE.GROWING", {"name": "GROWING", "subjects": ["growing.>"]})
            ours = self._spark.readStream.format("penstock").options(
                servers=self._url, stream="GROWING", startingOffsets="earliest"
            )
            theirs = self._spark.readStream.format("rate-micro-batch").options(
                rowsPerBatch=str(GROWTH_ROWS), numPartitions="1"
            )
            body = b"x" * PAYLOAD_BYTES
            # The first round warms up both.
            (_, *mine), (_, *jvm) = take_turns(
                min(self._sizes.rounds, 3) + 1,
                lambda: self._trigger_ms(
                    ours.load(), lambda: publish_many(client.wire, b"growing.on", body, GROWTH_ROWS)
                ),
                lambda: self._trigger_ms(theirs.load(), lambda: None),
            )
        return Row(
            "spark-read",
            f"micro-batch of {GROWTH_ROWS:,} new rows, of a source in the JVM",
            ratio(mine, jvm),
            "x",
            at_most(1.5),
            f"{statistics.median(mine):.0f} ms; rate-micro-batch {statistics.median(jvm):.0f} ms",
            {"penstock": mine, "rate-micro-batch": jvm},
        )

    def _trigger_ms(self, frame: DataFrame, grow: Callable[[], None]) -> float:
        checkpoint = self._place / f"checkpoint-{time.monotonic_ns()}"
        writing = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writing.start()
        taken: dict[int, float] = {}
        cold, warm = TRIGGERS_COLD[self._sizes.name], TRIGGERS[self._sizes.name]
        try:
            while len(taken) < cold + warm:
                grow()
                before = len(taken)
                while len(taken) == before:
                    time.sleep(0.01)
                    taken |= {
                        each["batchId"]: each["durationMs"]["triggerExecution"]
                        for each in query.recentProgress
                        if each["numInputRows"]
                    }
        finally:
            query.stop()
        return statistics.median(taken[batch] for batch in sorted(taken)[cold:])


def _rows(count: int, seed: int) -> Rows:
    chance = random.Random(seed)
    names = [f"orders.{number:03d}.created".encode() for number in range(SUBJECTS)]
    width = len(names[0])
    return Rows(
        (
            array("i", range(0, (count + 1) * width, width)),
            b"".join(chance.choices(names, k=count)),
        ),
        None,
        (
            array("i", range(0, (count + 1) * PAYLOAD_BYTES, PAYLOAD_BYTES)),
            chance.randbytes(count * PAYLOAD_BYTES),
        ),
    )


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timing(make: Make) -> Callable[[], float]:
    return lambda: timed(lambda: _noop(make()))


def _whole_rows(rates: dict[str, list[float]]) -> list[Row]:
    def row(what: str, ours: str, theirs: str, goal: float) -> Row:
        detail = ", ".join(
            f"{name} {si(statistics.median(rates[name]), 'rows/s')}" for name in (ours, theirs)
        )
        samples = {name: rates[name] for name in (ours, theirs)}
        value = ratio(rates[ours], rates[theirs])
        return Row("spark-read", what, value, "x", at_least(goal), detail, samples)

    of = f"{PAYLOAD_BYTES} B messages, all columns"
    return [
        row(f"penstock-blocks, {of}: of spark.read.parquet", "blocks", "parquet", 0.6),
        row(f"penstock-blocks, {of}: of nats-py in a Spark source", "blocks", "nats-py", 10),
        Row(
            "spark-read",
            f"penstock, {of}: one reading core",
            statistics.median(rates["server"]),
            "rows/s",
            at_least(300_000),
            "",
            {"penstock": rates["server"]},
        ),
        row(f"penstock, {of}: of nats-py, one core each", "server", "nats-py, one core", 4),
    ]


def _filter_row(name: str, whole: list[float], times: list[float], count: int) -> Row:
    detail = (
        f"{statistics.median(whole):.2f} s and {statistics.median(times):.2f} s, {count:,} rows"
    )
    return Row(
        "spark-read",
        f"one subject in {SUBJECTS:,}: {name}, faster than the full scan",
        ratio(whole, times),
        "x",
        at_least(20),
        detail,
        {"whole": whole, "filtered": times},
    )
