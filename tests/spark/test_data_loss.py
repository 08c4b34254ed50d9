"""What a query does when messages, streams or servers go away under it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from penstock.bench.loops import publish_many
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import AuthorizationError, UsageError
from penstock.spark.part import StreamPart
from penstock.spark.position import DataLoss
from penstock.spark.schema import DATA, SEQUENCE, SUBJECT
from penstock.spark.streams.settings import bounds_of, find_streams, plan_stream, read_settings
from penstock.testing.servers import server_process

COLUMNS = [SEQUENCE, SUBJECT, DATA]


def make(streams: JetStream, count: int = 100, **config: object) -> None:
    streams.call("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})
    publish(streams, count)


def publish(streams: JetStream, count: int) -> None:
    for number in range(count - 1):
        streams.client.publish(b"s.%d" % (number % 10), b"%d" % number)
    # Whatever was published before it has been stored when it is acknowledged.
    streams.publish(b"s.last", b"last")


def planned(url: str, **options: str) -> list[StreamPart]:
    settings = read_settings({"servers": url, "stream": "S", **options})
    [facts] = find_streams(settings)
    return plan_stream(settings, facts, *bounds_of(settings, facts))


def rows(ranges: list[StreamPart]) -> list[tuple[int, str, bytes]]:
    return [
        (row["sequence"], row["subject"], row["data"])
        for each in ranges
        for batch in each.read(COLUMNS)
        for row in batch.to_pylist()
    ]


def stored(streams: JetStream) -> list[tuple[int, str, bytes]]:
    """Return what the server itself says is in the stream."""
    return [(each.seq, each.subject.decode(), each.payload) for each in streams.each("S")]


LENIENT = {"failOnDataLoss": "false"}


# Between planning and reading


def test_what_was_purged_since_planning_fails_the_task_or_is_left_out(
    url: str, streams: JetStream
) -> None:
    make(streams)
    strict, lenient = planned(url), planned(url, **LENIENT)

    streams.call("STREAM.PURGE.S", {"seq": 41})

    with pytest.raises(DataLoss, match=r"sequence 1 was to be read, and the first .* is 41"):
        rows(strict)
    assert rows(lenient) == stored(streams)


def test_gaps_within_are_no_loss(url: str, streams: JetStream) -> None:
    make(streams)
    ranges = planned(url)

    for seq in range(2, 100, 3):
        streams.call("STREAM.MSG.DELETE.S", {"seq": seq})

    assert rows(ranges) == stored(streams)


def test_what_newer_messages_of_a_subject_replaced_is_no_loss(url: str, streams: JetStream) -> None:
    make(streams, max_msgs_per_subject=1)
    ranges = planned(url)
    before = stored(streams)

    publish(streams, 5)

    found = rows(ranges)
    assert 0 < len(found) < len(before)
    assert found == [row for row in stored(streams) if row in before]


def test_a_stream_that_was_made_anew_since_planning_is_not_read(
    url: str, streams: JetStream
) -> None:
    make(streams)
    ranges = planned(url, **LENIENT)

    streams.call("STREAM.DELETE.S")
    make(streams)

    with pytest.raises(DataLoss, match="made anew"):
        rows(ranges)


def test_a_stream_that_went_since_planning_fails_the_task_or_is_empty(
    url: str, streams: JetStream
) -> None:
    make(streams)
    strict, lenient = planned(url), planned(url, **LENIENT)

    streams.call("STREAM.DELETE.S")

    with pytest.raises(DataLoss, match="went while"):
        rows(strict)
    assert rows(lenient) == []


# While it is read


def test_a_purge_while_a_range_is_read_fails_the_task(url: str, streams: JetStream) -> None:
    make(streams, 2000)
    [strict] = planned(url, arrowBatchRows="100", fetchBatch="100")
    reading = strict.read(COLUMNS)
    next(reading)

    streams.call("STREAM.PURGE.S", {"seq": 1900})

    with pytest.raises(DataLoss, match="the first that is left is 1900"):
        list(reading)


def test_a_purge_of_what_was_read_already_is_no_loss(url: str, streams: JetStream) -> None:
    make(streams)
    [strict] = planned(url)
    reading = strict.read(COLUMNS)
    first = next(reading)

    streams.call("STREAM.PURGE.S", {"seq": 50})

    assert first.num_rows == 100
    assert list(reading) == []


def test_messages_whose_time_is_up_while_they_are_planned_are_no_surprise(
    url: str, streams: JetStream
) -> None:
    make(streams, 50, max_age=0, allow_msg_ttl=True)
    for number in range(50):
        streams.publish(b"s.ttl", b"%d" % number, headers=b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n")
    publish(streams, 20)
    ranges = planned(url, minPartitions="3")

    _wait_for_messages(streams, 70)

    assert rows(ranges) == stored(streams)


def _wait_for_messages(streams: JetStream, count: int) -> None:
    # Servers remove by their own clocks: they are asked until they have.
    while streams.call("STREAM.INFO.S")["state"]["messages"] > count:
        threading.Event().wait(0.05)


# Servers that come and go


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("kind", ["penstock", "nats-server"])
def test_a_range_goes_on_where_it_was_when_the_server_is_started_again(
    kind: str, tmp_path: Path
) -> None:
    port = free_port()
    server = server_process(kind, store_dir=tmp_path, port=port)
    with server, Client.connect(server.url, timeout_s=60) as client:
        streams = JetStream(client)
        make(streams, 5000)
        expected = stored(streams)
        given = {"arrowBatchRows": "500", "fetchBatch": "100", "retries": "50"}
        [wanted] = planned(server.url, **given)
        reading = wanted.read(COLUMNS)
        first = next(reading)
        server.stop()
    with server_process(kind, store_dir=tmp_path, port=port):
        rest = list(reading)

    found = [
        (row["sequence"], row["subject"], row["data"])
        for batch in (first, *rest)
        for row in batch.to_pylist()
    ]
    assert len(found) == 5000
    assert found == expected


def test_a_server_that_stays_away_is_told_after_the_tries_that_were_asked_for(
    tmp_path: Path,
) -> None:
    server = server_process("penstock", store_dir=tmp_path)
    with server, Client.connect(server.url, timeout_s=60) as client:
        make(JetStream(client), 5000)
        given = {"arrowBatchRows": "500", "fetchBatch": "100", "retries": "1"}
        [wanted] = planned(server.url, **given)
        reading = wanted.read(COLUMNS)
        next(reading)
        server.stop()

        with pytest.raises(ConnectionError):
            list(reading)


def test_wrong_credentials_are_told_at_once_and_not_tried_again(tmp_path: Path) -> None:
    settings = 'authorization { user: "a", password: "right" }'
    with server_process("penstock", store_dir=tmp_path, settings=settings) as server:
        (tmp_path / "secret").write_text("right\n")
        known = {"servers": server.url, "stream": "S", "user": "a", "retries": "100"}

        with pytest.raises(AuthorizationError):
            find_streams(read_settings({**known, "password": "wrong"}))
        with pytest.raises(UsageError, match="stream not found"):
            find_streams(read_settings({**known, "passwordFile": str(tmp_path / "secret")}))


# Sparse streams


def test_a_stream_of_which_little_is_left_is_divided_by_what_is_there(
    url: str, streams: JetStream
) -> None:
    streams.call("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 1})
    streams.publish(b"s.first", b"first")
    publish(streams, 3000)
    left = stored(streams)
    ranges = planned(url, minPartitions="4")

    each = [len(rows([part])) for part in ranges]

    assert (len(left), left[0][0]) == (12, 1)
    assert each == [3, 3, 3, 3]
    assert rows(ranges) == left


@pytest.mark.parametrize(
    ("first", "end"), [("0", "1000000"), ("50", "50"), ("60", "50"), ("101", "900")]
)
def test_ranges_beyond_what_is_there_are_cut_to_it(
    url: str, streams: JetStream, first: str, end: str
) -> None:
    make(streams)

    found = rows(planned(url, startingOffsets=first, endingOffsets=end))

    assert found == [row for row in stored(streams) if int(first) <= row[0] < int(end)]


# Following, with Spark


def run(spark: SparkSession, url: str, folder: Path, **options: str) -> Any:
    """Read what is there into a table of Parquet files, and stop."""
    given = {"servers": url, "stream": "S", "startingOffsets": "earliest"} | options
    query = (
        spark.readStream.format("penstock")
        .options(**given)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination(200)
    return query


def written(spark: SparkSession, folder: Path) -> list[tuple[int, str, bytes]]:
    table = spark.read.parquet(str(folder / "table")).select("sequence", "subject", "data")
    return sorted((row[0], row[1], bytes(row[2])) for row in table.collect())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_query_that_ends_with_what_is_there_ends_though_the_stream_grows(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    make(streams, 400)
    at_start = stored(streams)
    is_over = threading.Event()

    def grow() -> None:
        with Client.connect(url, timeout_s=60) as client:
            while not is_over.wait(0.02):
                publish_many(client.wire, b"s.more", b"more", 5)
                client.flush()

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        query = run(spark, url, tmp_path, maxOffsetsPerTrigger="100")
    finally:
        is_over.set()
        growing.join()

    assert not query.isActive
    found = written(spark, tmp_path)
    assert found[: len(at_start)] == at_start
    assert [row[0] for row in found] == list(range(1, len(found) + 1))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stream_that_was_made_anew_is_begun_anew_only_if_that_is_allowed(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    make(streams, 30)
    run(spark, url, tmp_path)
    streams.call("STREAM.DELETE.S")
    make(streams, 10)

    with pytest.raises(StreamingQueryException, match="made anew"):
        run(spark, url, tmp_path, **LENIENT)
    run(spark, url, tmp_path, allowRecreatedStream="true")

    assert len(written(spark, tmp_path)) == 40


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_wrong_with_the_server_is_told_before_any_work(
    spark: SparkSession, tmp_path: Path
) -> None:
    reading = spark.read.format("penstock").option("stream", "S").option("retries", "0")

    with pytest.raises(PySparkException, match="cannot connect"):
        reading.option("servers", f"nats://127.0.0.1:{free_port()}").load()
