"""Block directories followed by Structured Streaming."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import FormatError
from penstock.format.reader import StreamReader
from penstock.spark.blocks.settings import end_of_rows
from penstock.spark.options import Rules
from penstock.spark.position import (
    DataLoss,
    Position,
    StreamState,
    check_stream,
    decode,
    encode,
)
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

CONFIG = StoreConfig(name="S", block_bytes=4096)


def add(path: Path, first: int, end: int) -> None:
    with FileStore.open(str(path), CONFIG) as store:
        for number in range(first, end):
            store.store(b"s.%d" % (number % 5), b"", b"%d" % number)


def run(spark: SparkSession, folder: Path, **options: str) -> StreamingQuery:
    """Read what is there into a table of Parquet files, and stop."""
    options.setdefault("stream", "S")
    query = (
        spark.readStream.format("penstock-blocks")
        .options(**options)
        .load(str(folder / "store"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination(200)
    return query


def written(spark: SparkSession, folder: Path) -> list[int]:
    rows = spark.read.parquet(str(folder / "table")).selectExpr("cast(data as string)").collect()
    return sorted(int(row[0]) for row in rows)


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_query_reads_each_message_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path / "store", 0, 400)
    first = run(spark, tmp_path, maxOffsetsPerTrigger="150")
    add(tmp_path / "store", 400, 500)
    run(spark, tmp_path, maxOffsetsPerTrigger="150")
    run(spark, tmp_path)

    assert written(spark, tmp_path) == list(range(500))
    assert [each["numInputRows"] for each in first.recentProgress if each["numInputRows"]] == [
        150,
        150,
        100,
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_query_that_was_overtaken_says_so_or_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path / "store", 0, 200)
    run(spark, tmp_path)
    add(tmp_path / "store", 200, 400)
    with FileStore.open(str(tmp_path / "store"), CONFIG) as store:
        store.compact(301)
        store.reclaim(thorough=True)

    with pytest.raises(StreamingQueryException, match="overtook"):
        run(spark, tmp_path)
    run(spark, tmp_path, failOnDataLoss="false")

    assert written(spark, tmp_path) == [*range(200), *range(300, 400)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stream_that_was_made_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    add(tmp_path / "store", 0, 50)
    run(spark, tmp_path)
    with FileStore.open(str(tmp_path / "store"), CONFIG) as store:
        store.delete()
    add(tmp_path / "store", 0, 200)

    with pytest.raises(StreamingQueryException, match="made anew"):
        run(spark, tmp_path, failOnDataLoss="false")


@pytest.mark.parametrize("begin", [1, 37, 300])
@pytest.mark.parametrize("rows", [1, 30, 199, 10_000])
def test_rows_are_counted_as_messages_that_are_there(tmp_path: Path, begin: int, rows: int) -> None:
    add(tmp_path, 0, 400)
    with FileStore.open(str(tmp_path), CONFIG) as store:
        for seq in range(1, 400):
            if seq % 4:
                store.remove(seq)
    live = [seq for seq in range(begin, 401) if seq % 4 == 0]

    end = end_of_rows(StreamReader(str(tmp_path)), begin, rows)

    taken = [seq for seq in live if seq < end]
    assert taken == live[:rows]


def test_positions_come_back_as_they_were() -> None:
    positions = {"B": Position("x", 7), "A": Position("", 1)}

    assert decode(encode(positions)) == positions
    assert list(encode(positions)["streams"]) == ["A", "B"]


@pytest.mark.parametrize("given", [{}, {"v": 2, "streams": {}}, {"v": 1, "streams": {"a": 1}}])
def test_what_is_no_position_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(FormatError):
        decode(given)


def test_a_query_goes_on_where_it_was_or_at_the_first_that_is_left() -> None:
    strict, lenient = Rules(), Rules(fail_on_data_loss=False)

    assert check_stream("S", Position("x", 5), StreamState("x", 3, 20), strict) == 5
    assert check_stream("S", Position("", 5), StreamState("x", 9, 20), lenient) == 9
    with pytest.raises(DataLoss, match="overtook"):
        check_stream("S", Position("x", 5), StreamState("x", 9, 20), strict)


@pytest.mark.parametrize("now", [StreamState("y", 1, 20), StreamState("x", 1, 4)])
def test_another_stream_of_the_name_is_begun_anew_only_if_that_is_allowed(now: StreamState) -> None:
    at = Position("x", 5)

    with pytest.raises(DataLoss, match="made anew"):
        check_stream("S", at, now, Rules(fail_on_data_loss=False))
    assert check_stream("S", at, now, Rules(allow_recreated_stream=True)) == 1
