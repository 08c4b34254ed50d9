"""The jobs `verify` and `stats` over a large store, beside hashing the same files.

All files are in the page cache. The jobs run in a session on two cores that has worked before, as a
driver's does: planning, tasks and results are in the time, the start of the JVM is not. Hashing is
one thread's, as in `store_scan`; the rate of both cores stands beside it.
"""

from __future__ import annotations

import multiprocessing
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.baselines import hash_files
from benchmarks.measure import (
    PAYLOAD_BYTES,
    Row,
    Sizes,
    at_least,
    block_bytes,
    block_files,
    folder_in,
    in_own_process,
    ratio,
    si,
    take_turns,
    timed,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCANS = 6
"""The store is so many times as large as the one that is scanned without Spark: 2 GB in full."""


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    from penstock.spark.session import open_session

    with folder_in(folder, "jobs") as place:
        count = int(in_own_process("build", str(place), sizes.scanned * SCANS, 100)["messages"])
        spark = open_session(master="local[2]", conf={"spark.driver.memory": "1g"})
        try:
            return _measure(spark, sizes, place, count)
        finally:
            spark.stop()


def _measure(spark: SparkSession, sizes: Sizes, place: Path, count: int) -> list[Row]:
    size = block_bytes(place)
    files = block_files(place)
    for job in (_verify, _stats):
        # The workers' first tasks load what they need.
        job(spark, place, count)
    hashed, hashed_by_two, verified, counted = (
        [size / seconds for seconds in taken]
        for taken in take_turns(
            sizes.rounds,
            lambda: hash_files(files),
            lambda: _hash_by_two(files),
            lambda: timed(_verify, spark, place, count),
            lambda: timed(_stats, spark, place, count),
        )
    )
    both = si(statistics.median(hashed_by_two), "B/s")

    def row(name: str, ours: list[float]) -> Row:
        median = statistics.median(ours)
        return Row(
            "spark-jobs",
            f"{name} over {si(size, 'B')} of {PAYLOAD_BYTES} B messages, of xxhash over the files",
            ratio(ours, hashed),
            "x",
            at_least(0.4),
            f"{si(median, 'B/s')}, {si(median * count / size, 'msg/s')}; "
            f"xxhash {si(statistics.median(hashed), 'B/s')}, on both cores {both}",
            {"penstock": ours, "xxhash": hashed, "xxhash on both cores": hashed_by_two},
        )

    return [row("verify", verified), row("stats by subject and hour", counted)]


def _hash_by_two(files: list[Path]) -> float:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(len, [(), ()])
        return timed(pool.map, hash_files, [files[::2], files[1::2]])


def _verify(spark: SparkSession, place: Path, count: int) -> None:
    from penstock.spark.jobs.verify import verify

    report = verify(spark, [str(place)])
    assert report.counts["messages"] == count, report
    assert not report.findings, report


def _stats(spark: SparkSession, place: Path, count: int) -> None:
    from penstock.spark.jobs.job import Input
    from penstock.spark.jobs.stats import StatsRequest, stats

    report = stats(
        spark, Input("penstock-blocks", {"path": str(place)}), request=StatsRequest(by_hour=True)
    )
    assert report.counts["messages"] == count, report
