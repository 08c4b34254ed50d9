"""Options of reading streams: where they begin and end, how they are read, how much at a time."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from penstock.client.jetstream import JetStream
from penstock.client.wire import ReceivedMessage
from penstock.errors import FormatError, UsageError
from penstock.format.columns import ColumnBuilder
from penstock.limits import PAYLOAD_BYTES_MAX
from penstock.spark.arrow import unpack
from penstock.spark.connection import Connection
from penstock.spark.options import Following, Options, PayloadCompression, Size
from penstock.spark.part import StreamPart
from penstock.spark.position import Admission, decode, default_limit
from penstock.spark.schema import DATA, HEADER_MAP, SEQUENCE, SUBJECT, TIME_NS
from penstock.spark.streams.read import read_direct_message
from penstock.spark.streams.settings import bounds_of, find_streams, plan_stream, read_settings
from penstock.spark.streams.source import StreamFollower
from penstock.testing.clock import FakeClock

COLUMNS = [SEQUENCE, SUBJECT, TIME_NS, HEADER_MAP, DATA]


def make(streams: JetStream, name: str = "S", count: int = 100, **config: object) -> None:
    subject = name.lower().encode()
    streams.call(
        f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **config}
    )
    for number in range(count - 1):
        headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else None
        streams.client.publish(b"%b.%d" % (subject, number % 10), b"%d" % number, headers=headers)
    # Whatever was published before it has been stored when it is acknowledged.
    streams.publish(subject + b".last", b"last")


def planned(url: str, **options: str) -> list[StreamPart]:
    settings = read_settings({"servers": url, **({"stream": "S"} | options)})
    return [
        each
        for facts in find_streams(settings)
        for each in plan_stream(settings, facts, *bounds_of(settings, facts))
    ]


def rows(url: str, **options: str) -> list[dict[str, Any]]:
    return [
        row
        for each in planned(url, **options)
        for batch in each.read(COLUMNS)
        for row in batch.to_pylist()
    ]


def sequences(url: str, **options: str) -> list[int]:
    return [row["sequence"] for row in rows(url, **options)]


# Where it begins and ends


def test_times_say_where_a_stream_begins_and_ends(url: str, streams: JetStream) -> None:
    make(streams)
    every = rows(url)
    middle = every[40]["time_ns"]
    first = next(row["sequence"] for row in every if row["time_ns"] >= middle)
    by_time = json.dumps({"S": str(middle // 1_000_000)})
    coarse = next(row["sequence"] for row in every if row["time_ns"] >= middle // 10**6 * 10**6)

    begun = sequences(url, startingOffsetsByTimestamp=by_time, startingOffsets="90")
    ended = sequences(url, endingOffsetsByTimestamp=by_time)

    assert first >= coarse
    assert begun == list(range(coarse, 101))
    assert ended == list(range(1, coarse))
    # A time for all streams counts over those for each.
    assert sequences(url, startingTimestamp="2001-01-01", startingOffsetsByTimestamp=by_time) == [
        *range(1, 101)
    ]


def test_a_time_behind_the_last_message_is_an_error_or_the_end(
    url: str, streams: JetStream
) -> None:
    make(streams)
    future = {"startingOffsetsByTimestamp": '{"S": "2100-01-01T00:00:00Z"}'}

    with pytest.raises(UsageError, match="no message from then on"):
        planned(url, **future)
    assert sequences(url, **future, startingOffsetsByTimestampStrategy="latest") == []
    assert sequences(url, startingTimestamp="2100-01-01") == []


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsetsByTimestamp": "soon"},
        {"startingOffsetsByTimestamp": '{"S": "soon"}'},
        {"endingOffsetsByTimestamp": '{"S": [1]}'},
        {"startingOffsetsByTimestampStrategy": "never"},
        {"readMode": "blocks"},
        {"maxTriggerDelay": "soon"},
        {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
        {"maxBytesPerTrigger": "-1"},
        {"maxBytesPerPartition": "lots"},
        {"retries": "-1"},
        {"jsDomain": "hub", "jsApiPrefix": "$JS.hub.API"},
        {"jsApiPrefix": "a b"},
        {"schemaStyle": "mine"},
        {"payloadCompression": "gzip"},
        {"ackConsumer": "a.b"},
    ],
)
def test_what_an_option_cannot_be_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        read_settings({"stream": "S", **options})


# How it is read


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
@pytest.mark.parametrize("is_direct", [True, False])
def test_messages_come_the_same_with_a_consumer_and_without(
    url: str, streams: JetStream, retention: str, is_direct: bool
) -> None:
    make(streams, count=500, retention=retention, allow_direct=is_direct)
    for seq in range(5, 500, 50):
        streams.call("STREAM.MSG.DELETE.S", {"seq": seq})
    expected = [
        (each.seq, each.subject.decode(), each.payload, "Number" if each.headers else None)
        for each in streams.each("S")
    ]

    for mode in ("auto", "direct") if is_direct else ("auto",):
        found = rows(url, readMode=mode, fetchBatch="100")
        assert [
            (
                row["sequence"],
                row["subject"],
                row["data"],
                row["headers"][0][0] if row["headers"] else None,
            )
            for row in found
        ] == expected
        one = sequences(url, readMode=mode, subject="s.7")
        assert one == [row[0] for row in expected if row[1] == "s.7"]
        assert sequences(url, readMode=mode, subject="s.7,s.8", endingOffsets="100") == [
            row[0] for row in expected if row[1] in ("s.7", "s.8") and row[0] < 100
        ]
    assert len(list(streams.each("S"))) == len(expected)


def test_who_reads_directly_makes_no_consumer(url: str, streams: JetStream) -> None:
    make(streams, allow_direct=True)
    streams.call("STREAM.PURGE.S", {"filter": "s.1"})
    advised = streams.client.subscribe(b"$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.>")
    small = {"subject": "s.7", "maxBytesPerPartition": "1k"}

    direct = sequences(url, readMode="direct", **small)
    told = streams.client.subscribe(b"told")
    streams.client.publish(b"told", b"")
    first = streams.client.next_of_any()
    assert sequences(url, readMode="consumer", **small) == direct

    # The first that was heard of was not a consumer's making, but then there is one.
    assert first.sid == told
    assert streams.client.next_message(advised).payload


def test_a_mode_that_a_stream_does_not_allow_is_refused(url: str, streams: JetStream) -> None:
    make(streams, retention="workqueue")

    with pytest.raises(UsageError, match="would take its messages"):
        planned(url, readMode="consumer")
    with pytest.raises(UsageError, match="does not allow direct gets"):
        planned(url, readMode="direct")


def test_what_a_server_adds_to_a_gotten_message_is_taken_off_again() -> None:
    added = (
        b"Nats-Stream: S\r\nNats-Subject: s.1\r\nNats-Sequence: 7\r\n"
        b"Nats-Time-Stamp: 2026-07-20T12:30:00.5Z\r\nNats-Num-Pending: 3\r\n"
        b"Nats-Last-Sequence: 6\r\n\r\n"
    )
    own = b"NATS/1.0\r\nNats-Stream: OTHER\r\nA: b\r\n"

    bare = read_direct_message(_answer(b"NATS/1.0\r\n" + added))
    full = read_direct_message(_answer(own + added))

    assert (bare.seq, bare.subject, bare.headers) == (7, b"s.1", b"")
    assert bare.time_ns % 10**9 == 500_000_000
    assert full.headers == own + b"\r\n"
    with pytest.raises(FormatError):
        read_direct_message(_answer(own + b"\r\n"))


def _answer(headers: bytes) -> ReceivedMessage:
    return ReceivedMessage(subject=b"_INBOX.1", sid=b"1", reply=b"", headers=headers, payload=b"x")


def test_another_prefix_reaches_the_same_streams(url: str, streams: JetStream) -> None:
    make(streams)

    assert len(sequences(url, jsApiPrefix="$JS.API.")) == 100
    with pytest.raises(Exception, match="nobody answers"):
        planned(url, jsDomain="nowhere", retries="0")


def test_all_messages_of_a_subject_can_be_kept_together(url: str, streams: JetStream) -> None:
    make(streams)
    make(streams, "T")

    parts = planned(url, stream="", streams="S,T", minPartitions="8", orderedBySubject="true")

    assert [(part.stream, part.selection.first_seq, part.selection.end) for part in parts] == [
        ("S", 1, 101),
        ("T", 1, 101),
    ]


# Payloads


def test_packed_payloads_are_unpacked(url: str, streams: JetStream) -> None:
    streams.call("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for number in range(10):
        headers = b"NATS/1.0\r\nNumber: 1\r\n\r\n"
        streams.publish(b"s.1", zlib.compress(b"payload %d" % number), headers=headers)
    streams.publish(b"s.1", b"")

    found = rows(url, payloadCompression="zlib")

    assert [row["data"] for row in found] == [*(b"payload %d" % n for n in range(10)), b""]
    assert found[0]["headers"] == [("Number", ["1"])]


@pytest.mark.parametrize("packed", [b"no zlib", zlib.compress(b"whole")[:-3]])
def test_a_payload_that_is_not_packed_is_told_with_its_sequence(packed: bytes) -> None:
    builder = ColumnBuilder()
    builder.append(7, 0, 0, b"s", b"", packed)

    with pytest.raises(FormatError, match="sequence 7"):
        unpack(builder.take(0), PayloadCompression.ZLIB)


def test_a_payload_that_would_unpack_to_any_size_is_refused() -> None:
    builder = ColumnBuilder()
    builder.append(7, 0, 0, b"s", b"", zlib.compress(bytes(PAYLOAD_BYTES_MAX + 1)))

    with pytest.raises(FormatError, match="more than"):
        unpack(builder.take(0), PayloadCompression.ZLIB)


def test_a_batch_never_passes_what_an_offset_can_say() -> None:
    # A column's offsets have 31 bits: a batch is taken before, or refused.
    builder = ColumnBuilder(payloads=False)
    subject = bytes(2**30)
    builder.append(1, 0, 0, subject, b"", b"")

    with pytest.raises(UsageError, match="2 GiB"):
        builder.append(2, 0, 0, subject, b"", b"")


# Secrets


def test_secrets_come_from_files_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "s3cret")

    by_file = Connection(user="a", password_file=str(tmp_path / "secret"))
    by_variable = Connection(token_env="PENSTOCK_TEST_SECRET")

    assert by_file.credentials().password == by_variable.credentials().token == "s3cret"
    for wrong in (
        Connection(token_env="PENSTOCK_TEST_NONE"),
        Connection(token_file=str(tmp_path / "none")),
        Connection(user="a", password="x", password_env="PENSTOCK_TEST_SECRET"),
        Connection(user="a", token_env="PENSTOCK_TEST_SECRET"),
    ):
        with pytest.raises(UsageError) as refused:
            wrong.credentials()
        assert "s3cret" not in str(refused.value)


# How much a trigger reads


def test_a_trigger_is_put_off_until_enough_is_there_or_it_waited_enough() -> None:
    clock = FakeClock()
    following = Options("f", {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s"}).group(
        Following
    )
    admission = Admission(following, clock)

    assert admission.waits(9)
    clock.advance_ns(29 * 10**9)
    assert admission.waits(9)
    assert not admission.waits(10)
    assert admission.waits(9)
    clock.advance_ns(30 * 10**9)
    assert not admission.waits(9)
    assert admission.waits(9)


def test_rows_and_bytes_both_bound_a_trigger() -> None:
    both = Admission(Following(max_offsets_per_trigger=100, max_bytes_per_trigger=Size(1000)))

    assert both.rows_max(5.0) == 100
    assert both.rows_max(50.0) == 20
    assert both.rows_max(5000.0) == 1
    assert Admission(Following()).rows_max(5.0) is None


def test_spark_is_told_of_a_limit_where_there_is_one() -> None:
    assert default_limit(Following()) == ReadAllAvailable()
    assert default_limit(Following(max_offsets_per_trigger=5)) == ReadMaxRows(5)
    assert default_limit(Following(max_bytes_per_trigger=Size(5))) == ReadMaxBytes(5)
    assert default_limit(Following(min_offsets_per_trigger=5)) == ReadMinRows(5)


def follower(url: str, **options: str) -> StreamFollower:
    given = {"servers": url, "stream": "S", "startingOffsets": "earliest", **options}
    return StreamFollower(read_settings(given), COLUMNS)


def place(offset: dict[str, Any]) -> int:
    return decode(offset)["S"].next


def test_a_follower_keeps_within_bytes_and_waits_for_rows(url: str, streams: JetStream) -> None:
    make(streams)
    few = follower(url, maxBytesPerTrigger="500")
    waiting = follower(url, minOffsetsPerTrigger="101", maxTriggerDelay="1h")
    enough = follower(url, minOffsetsPerTrigger="100", maxTriggerDelay="1h")

    start = few.initialOffset()

    assert 5 < place(few.latestOffset(start, few.getDefaultReadLimit())) < 30
    assert waiting.latestOffset(start, waiting.getDefaultReadLimit()) == start
    assert place(waiting.latestOffset(start, ReadAllAvailable())) == 101
    assert place(enough.latestOffset(start, enough.getDefaultReadLimit())) == 101


def test_a_consumer_shows_how_far_a_query_is(url: str, streams: JetStream) -> None:
    make(streams)
    telling = follower(url, ackConsumer="spark", maxOffsetsPerTrigger="40")

    lags = []
    at = telling.initialOffset()
    for _ in range(3):
        at = telling.latestOffset(at, telling.getDefaultReadLimit())
        telling.commit(at)
        lags.append(streams.call("CONSUMER.INFO.S.spark")["num_pending"])

    assert lags == [60, 20, 0]


def test_a_stream_that_is_gone_ends_a_query_or_is_waited_for(url: str, streams: JetStream) -> None:
    make(streams)
    strict, lenient = follower(url), follower(url, failOnDataLoss="false")
    start = strict.initialOffset()

    streams.call("STREAM.DELETE.S")

    with pytest.raises(UsageError, match="stream not found"):
        strict.latestOffset(start, ReadAllAvailable())
    assert lenient.latestOffset(start, ReadAllAvailable()) == start
    assert list(lenient.partitions(start, start)) == []


# The official connector's options


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_options_of_the_official_connector_are_understood(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    streams.call("STREAM.CREATE.my-stream", {"name": "my-stream", "subjects": ["my.>"]})
    for number in range(20):
        streams.publish(b"my.stream.data", zlib.compress(b"%d" % number))
        streams.publish(b"my.other", b"")
    host, port = url.removeprefix("nats://").split(":")
    options = {
        "nats.host": host,
        "nats.port": port,
        "nats.pull.subscription.stream.name": "my-stream",
        "nats.pull.subscription.durable.name": "my-stream",
        "nats.storage.payload-compression": "zlib",
        "nats.pull.consumer.ack.wait": "90",
        "nats.pull.consumer.max.batch": "10",
        "nats.stream.subjects": "my.stream.data",
        "nats.pull.batcher.initial.delay": "1",
        "nats.pull.batcher.frequency.secs": "30",
        "nats.pull.batch.size": "100",
        "nats.pull.wait.time": "10",
    }

    frame = (
        spark.readStream.format("penstock")
        .options(**options)
        .option("startingOffsets", "earliest")
        .option("schemaStyle", "official")
        .load()
    )
    query = (
        frame.writeStream.format("memory")
        .queryName("official")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)

    assert frame.columns == [
        "subject", "replyTo", "content", "headers", "domain", "stream", "consumer", "delivered",
        "streamSeq", "consumerSeq", "timestamp", "pending",
    ]  # fmt: skip
    found = spark.sql("SELECT streamSeq, subject, content, pending FROM official").collect()
    assert sorted((row[0], row[1], bytes(row[2]), row[3]) for row in found) == [
        (1 + 2 * number, "my.stream.data", b"%d" % number, None) for number in range(20)
    ]
