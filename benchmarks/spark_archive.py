"""Archiving with Spark: Parquet written by the workers, beside Spark's own writing of it.

Both read the same block files with the same reader, in the same parts, and keep the same columns:
what differs is whether the rows go through the JVM. The archive hashes its rows and its files and
syncs them besides; Spark's way does neither. Without a goal: checking the archive, reading it as a
table, and rebuilding the blocks from it.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import (
    PAYLOAD_BYTES,
    Row,
    Sizes,
    at_least,
    folder_in,
    in_own_process,
    ratio,
    si,
    take_turns,
    timed,
)
from penstock.spark.jobs.archive import archive
from penstock.spark.jobs.job import Input
from penstock.spark.jobs.restore_files import restore_blocks
from penstock.spark.jobs.verify import check_archive
from penstock.spark.session import open_session

SUBJECTS = 100
PARTS = "4"
COLUMNS = "sequence,timestamp,time_ns,subject,headers_raw,data"
"""What the archive keeps."""


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    with folder_in(folder, "spark-archive") as place, _session(place) as spark:
        store = place / "store"
        count = int(in_own_process("build", str(store), sizes.scanned, SUBJECTS)["messages"])
        bench = _Archiving(spark, store, place, count)
        return bench.rows(sizes.rounds)


@contextlib.contextmanager
def _session(place: Path) -> Iterator[SparkSession]:
    conf = {
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    spark = open_session(master="local[2]", name="penstock bench", conf=conf)
    try:
        yield spark
    finally:
        spark.stop()


class _Archiving:
    """One store, and what is done with it."""

    def __init__(self, spark: SparkSession, store: Path, place: Path, count: int) -> None:
        self._spark = spark
        self._options = {"path": str(store), "stream": "stream", "minPartitions": PARTS}
        self._archive = place / "archive"
        self._parquet = place / "parquet"
        self._restored = place / "restored"
        self._count = count

    def archive(self) -> None:
        """Archive the store."""
        source = Input("penstock-blocks", self._options)
        report = archive(self._spark, source, str(self._archive))
        assert report.counts["messages"] == self._count, report

    def write(self) -> None:
        """Write the same with Spark."""
        reading = self._spark.read.format("penstock-blocks").options(**self._options)
        reading.option("columns", COLUMNS).load().write.parquet(str(self._parquet))

    def check(self) -> None:
        """Read and check every file."""
        assert not check_archive(self._spark, str(self._archive)).findings

    def restore(self) -> None:
        """Make blocks of the archive."""
        restore_blocks(str(self._archive), str(self._restored))

    def table(self) -> DataFrame:
        """Return the archive as a table."""
        reading = self._spark.read.format("penstock-archive").option("minPartitions", PARTS)
        return reading.load(str(self._archive))

    def parquet(self) -> DataFrame:
        """Return what Spark wrote as a table."""
        return self._spark.read.parquet(str(self._parquet))

    def rows(self, rounds: int) -> list[Row]:
        """Measure all of it, in turns."""
        names = ("archive", "write", "check", "restore", "table", "parquet")
        ways: tuple[Callable[[], float], ...] = (
            lambda: _anew(self._archive, self.archive),
            lambda: _anew(self._parquet, self.write),
            lambda: timed(self.check),
            lambda: _anew(self._restored, self.restore),
            lambda: timed(_noop, self.table()),
            lambda: timed(_noop, self.parquet()),
        )
        for way in ways:
            way()
        taken = zip(names, take_turns(rounds, *ways), strict=True)
        rates = {name: [self._count / seconds for seconds in times] for name, times in taken}
        of = f"{PAYLOAD_BYTES} B messages"
        return [
            _row(f"archive to Parquet, {of}: of df.write.parquet", rates, "archive", "write", 2.5),
            _row(f"penstock-archive, {of}: of spark.read.parquet", rates, "table", "parquet", None),
            _rate(f"check-archive, {of}", rates["check"]),
            _rate(f"restore blocks, {of}, one core", rates["restore"]),
        ]


def _anew(path: Path, action: Callable[[], None]) -> float:
    shutil.rmtree(path, ignore_errors=True)
    return timed(action)


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _row(
    what: str, rates: dict[str, list[float]], ours: str, theirs: str, goal: float | None
) -> Row:
    detail = ", ".join(si(statistics.median(rates[name]), "rows/s") for name in (ours, theirs))
    return Row(
        "spark-archive",
        what,
        ratio(rates[ours], rates[theirs]),
        "x",
        None if goal is None else at_least(goal),
        detail,
        {name: rates[name] for name in (ours, theirs)},
    )


def _rate(what: str, rates: list[float]) -> Row:
    return Row("spark-archive", what, statistics.median(rates), "rows/s", None, "", {what: rates})
