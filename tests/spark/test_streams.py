"""Streams as tables through their server, ours and the real one, read by real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.jetstream import JetStream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 1000


def make(streams: JetStream, name: str = "ORDERS", count: int = COUNT, **config: object) -> None:
    subject = name.lower()
    streams.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{subject}.>"], **config})
    publish(streams, subject, 0, count)


def publish(streams: JetStream, subject: str, first: int, end: int) -> None:
    for number in range(first, end):
        headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else None
        streams.client.publish(
            b"%b.%d" % (subject.encode(), number % 50), b"%d" % number, headers=headers
        )
    streams.client.flush()
    # Whatever was published before it has been stored when it is acknowledged.
    streams.publish(f"{subject}.end".encode(), b"-1")


Told = tuple[int, str, bytes, str | None]


def stored(streams: JetStream, name: str = "ORDERS") -> list[Told]:
    """Return the messages of a stream, by the server itself."""
    return [
        (
            each.seq,
            each.subject.decode(),
            each.payload,
            each.headers[18:].partition(b"\r\n")[0].decode() or None,
        )
        for each in streams.each(name)
    ]


def told(frame: DataFrame) -> list[Told]:
    rows = frame.selectExpr("sequence", "subject", "data", "headers['Number'][0]").collect()
    return sorted((row[0], row[1], bytes(row[2]), row[3]) for row in rows)


def load(spark: SparkSession, url: str, **options: str) -> DataFrame:
    given = {"servers": url, "stream": "ORDERS"} | options
    chosen = {name: text for name, text in given.items() if text}
    return spark.read.format("penstock").options(**chosen).load()


@pytest.mark.promise
def test_a_table_holds_what_the_stream_holds(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    make(streams)
    for seq in range(5, COUNT, 50):
        streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": seq})

    frame = load(spark, url, minPartitions="3", fetchBatch="64")

    assert frame.rdd.getNumPartitions() == 3
    assert told(frame) == stored(streams)
    assert list(streams.pages("CONSUMER.NAMES.ORDERS", "consumers", {})) == []


def test_options_choose_messages(spark: SparkSession, url: str, streams: JetStream) -> None:
    make(streams)
    whole = stored(streams)

    for options, is_wanted in (
        ({"subject": "orders.7"}, lambda row: row[1] == "orders.7"),
        ({"subject": "orders.1,orders.2"}, lambda row: row[1] in ("orders.1", "orders.2")),
        ({"startingOffsets": "100", "endingOffsets": "200"}, lambda row: 100 <= row[0] < 200),
        ({"startingOffsets": '{"ORDERS": 990}'}, lambda row: row[0] >= 990),
        ({"endingTimestamp": "2001-01-01"}, lambda _: False),
    ):
        assert told(load(spark, url, **options)) == [row for row in whole if is_wanted(row)]


def test_what_a_filter_leaves_little_of_is_few_tasks(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    make(streams)
    size = {"maxBytesPerPartition": "4k"}

    whole, few = load(spark, url, **size), load(spark, url, subject="orders.7", **size)
    within = load(spark, url, subject="orders.7", endingOffsets="500", **size)

    assert whole.rdd.getNumPartitions() > 5 > few.rdd.getNumPartitions()
    assert within.rdd.getNumPartitions() <= few.rdd.getNumPartitions()
    assert told(few) == [row for row in stored(streams) if row[1] == "orders.7"]


def test_several_streams_are_one_table(spark: SparkSession, url: str, streams: JetStream) -> None:
    make(streams, "A1", 10)
    make(streams, "A2", 20)
    make(streams, "B1", 30)

    by_name = load(spark, url, stream="", streams="A1,B1").groupBy("stream").count()
    by_pattern = load(spark, url, stream="", streamPattern="A.*").groupBy("stream").count()

    assert {tuple(row) for row in by_name.collect()} == {("A1", 11), ("B1", 31)}
    assert {tuple(row) for row in by_pattern.collect()} == {("A1", 11), ("A2", 21)}


@pytest.mark.promise
def test_reading_a_work_queue_takes_nothing_from_it(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    make(streams, count=50, retention="workqueue")

    assert told(load(spark, url)) == stored(streams)
    assert len(stored(streams)) == 51


def test_payloads_that_nobody_asks_for_are_not_sent(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    make(streams, count=20)

    frame = load(spark, url, columns="subject,sequence")

    assert frame.orderBy("sequence").first() == ("orders.0", 1)
    assert frame.count() == 21


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stream": "NONE"}, "stream not found"),
        ({"stream": "a.b"}, "cannot be a stream's name"),
        ({"stream": ""}, "give one of stream, streams and streamPattern"),
        ({"stream": "", "streamPattern": "Z.*"}, "no stream's name matches"),
        ({"stream": "", "streamPattern": "("}, "streamPattern"),
        ({"startingOffset": "1"}, "did you mean startingOffsets"),
        ({"startingOffsets": "soon"}, "soon"),
        ({"servers": "nats://127.0.0.1:1"}, "127.0.0.1:1"),
        ({"user": "a", "token": "b"}, "not several"),
        ({"credsFile": "/none"}, "cannot read the credentials"),
    ],
)
def test_what_is_wrong_is_told_before_any_work(
    spark: SparkSession, url: str, streams: JetStream, options: dict[str, str], reason: str
) -> None:
    make(streams, count=1)

    with pytest.raises(PySparkException) as refused:
        load(spark, url, **options).rdd.getNumPartitions()

    assert reason in str(refused.value)


# Following


def run(spark: SparkSession, url: str, folder: Path, **options: str) -> StreamingQuery:
    """Read what is there into a table of Parquet files, and stop."""
    given = {"servers": url, "stream": "ORDERS", "startingOffsets": "earliest"} | options
    query = (
        spark.readStream.format("penstock")
        .options(**{name: text for name, text in given.items() if text})
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination(200)
    return query


def written(spark: SparkSession, folder: Path) -> list[tuple[str, int]]:
    rows = spark.read.parquet(str(folder / "table")).select("stream", "sequence").collect()
    return sorted(tuple(row) for row in rows)


@pytest.mark.promise
def test_a_query_reads_each_message_once_over_restarts(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    make(streams, count=399)
    first = run(spark, url, tmp_path, maxOffsetsPerTrigger="150")
    publish(streams, "orders", 0, 99)
    run(spark, url, tmp_path)

    assert written(spark, tmp_path) == [("ORDERS", seq) for seq in range(1, 501)]
    rows = [each["numInputRows"] for each in first.recentProgress if each["numInputRows"]]
    assert rows == [150, 150, 100]


def test_limits_count_messages_that_are_there(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    make(streams, count=299)
    streams.call("STREAM.PURGE.ORDERS", {"filter": "orders.1"})
    for seq in range(1, 300):
        if seq % 4 and seq % 50 != 2:
            streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": seq})
    left = [("ORDERS", each[0]) for each in stored(streams)]

    query = run(spark, url, tmp_path, maxOffsetsPerTrigger="30")

    rows = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    assert written(spark, tmp_path) == left
    assert rows == [30] * (len(left) // 30) + [len(left) % 30]


def test_a_stream_that_comes_later_is_read_from_its_beginning(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    make(streams, "A1", 5)
    run(spark, url, tmp_path, stream="", streamPattern="A.*")
    make(streams, "A2", 3)
    run(spark, url, tmp_path, stream="", streamPattern="A.*")

    assert written(spark, tmp_path) == [
        *(("A1", seq) for seq in range(1, 7)),
        *(("A2", seq) for seq in range(1, 5)),
    ]


def test_a_query_that_was_overtaken_says_so_or_goes_on(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    make(streams, count=9)
    run(spark, url, tmp_path)
    publish(streams, "orders", 0, 9)
    streams.call("STREAM.PURGE.ORDERS", {"seq": 16})

    with pytest.raises(StreamingQueryException, match="overtook"):
        run(spark, url, tmp_path)
    run(spark, url, tmp_path, failOnDataLoss="false")

    assert [seq for _, seq in written(spark, tmp_path)] == [*range(1, 11), *range(16, 21)]


def test_a_stream_that_was_made_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    make(streams, count=9)
    run(spark, url, tmp_path)
    streams.call("STREAM.DELETE.ORDERS")
    make(streams, count=30)

    with pytest.raises(StreamingQueryException, match="made anew"):
        run(spark, url, tmp_path)
