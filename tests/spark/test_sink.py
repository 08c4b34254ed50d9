"""Frames and queries published to streams, of our server and the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.errors import RefusedByServer, UsageError
from penstock.spark import write_ordered
from penstock.spark.sinks.settings import column_bytes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Yield JetStream with a stream OUT of the subjects out.>."""
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        made.call("STREAM.CREATE.OUT", {"name": "OUT", "subjects": ["out.>"]})
        yield made
        made.call("STREAM.DELETE.OUT")


@pytest.mark.promise
def test_each_row_is_a_message(spark: SparkSession, url: str, streams: JetStream) -> None:
    frame = spark.range(2500).selectExpr(
        "concat('out.', id % 7) as subject",
        "cast(id as string) as value",
        "if(id % 2 = 0, map('N', array(cast(id as string), 'x')), null) as headers",
    )

    frame.write.format("penstock").mode("append").options(servers=url, maxInFlight="100").save()

    found = {int(each.payload): each for each in streams.each("OUT")}
    assert sorted(found) == list(range(2500))
    assert all(each.subject == b"out.%d" % (n % 7) for n, each in found.items())
    assert found[8].headers == b"NATS/1.0\r\nN: 8\r\nN: x\r\n\r\n"
    assert found[9].headers == b""


def test_message_ids_keep_rows_from_being_stored_twice(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    frame = spark.range(300).selectExpr("cast(id as string) as data", "id as msg_id")

    for _ in range(2):
        frame.write.format("penstock").mode("append").options(
            servers=url, subject="out.all", delivery="dedupe"
        ).save()

    assert sorted(int(each.payload) for each in streams.each("OUT")) == list(range(300))


def test_a_query_s_rows_have_ids_of_its_batches(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    spark.range(40).selectExpr("cast(id as string) as value").write.text(str(tmp_path / "in"))
    query = (
        spark.readStream.format("text")
        .load(str(tmp_path / "in"))
        .writeStream.format("penstock")
        .options(servers=url, subject="out.q", delivery="dedupe", sinkId="job")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)

    found = list(streams.each("OUT"))
    assert sorted(int(each.payload) for each in found) == list(range(40))
    assert len({each.headers for each in found}) == 40
    assert all(each.headers.startswith(b"NATS/1.0\r\nNats-Msg-Id: job:0:") for each in found)


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        (["'x' as data"], {}, "give the option subject"),
        (["'out.a' as subject"], {}, "needs one of the columns"),
        (["'x' as data", "'y' as value"], {"subject": "out.a"}, "needs one of the columns"),
        (["1 as data"], {"subject": "out.a"}, "column data cannot be int"),
        (["'x' as data"], {"subject": "nowhere"}, "no stream takes it"),
        (["'x' as data"], {"subject": "out. a"}, "no subject"),
        (["'x' as data", "'' as subject"], {}, "the subject is empty"),
        (["'x' as data", "map('a:b', array('c')) as headers"], {"subject": "out.a"}, "no header"),
        (["cast(null as string) as data"], {"subject": "out.a"}, "column data is null"),
        (["'x' as data"], {"subject": "out.a", "delivery": "once"}, "delivery"),
        (["'x' as data"], {"subject": "out.a", "delivery": "dedupe"}, "needs the column msg_id"),
    ],
)
def test_what_cannot_be_published_is_told(
    spark: SparkSession,
    url: str,
    streams: JetStream,
    columns: list[str],
    options: dict[str, str],
    reason: str,
) -> None:
    writing = spark.range(1).selectExpr(*columns).write.format("penstock").mode("append")

    with pytest.raises(PySparkException) as refused:
        writing.options(servers=url, **options).save()

    assert reason in str(refused.value)
    assert list(streams.each("OUT")) == []


def test_a_stream_is_never_overwritten(spark: SparkSession, url: str, streams: JetStream) -> None:
    streams.publish(b"out.a", b"kept")

    with pytest.raises(PySparkException, match="only ever appended"):
        spark.range(1).selectExpr("'x' as data").write.format("penstock").mode("overwrite").options(
            servers=url, subject="out.a"
        ).save()

    assert [each.payload for each in streams.each("OUT")] == [b"kept"]


def test_overwriting_removes_what_was_there_once_the_rows_are_in(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    streams.publish(b"out.a", b"old")
    frame = spark.range(3).selectExpr(
        "'FROM' as stream",
        "id as sequence",
        "id + 1500000000000000000 as time_ns",
        "cast(id as string) as data",
        "concat('m', id) as key",
    )

    frame.write.format("penstock").mode("overwrite").options(
        servers=url, stream="OUT", subject="out.b", allowPurge="true", preserveOrigin="true",
        msgIdColumn="key",
    ).save()  # fmt: skip

    found = sorted((each.payload, each.headers) for each in streams.each("OUT"))
    assert found == [
        (
            b"%d" % number,
            b"NATS/1.0\r\nNats-Msg-Id: m%d\r\nNats-Orig-Stream: FROM\r\n"
            b"Nats-Orig-Sequence: %d\r\nNats-Orig-Time: 2017-07-14T02:40:00.00000000%dZ\r\n\r\n"
            % (number, number, number),
        )
        for number in range(3)
    ]


def test_rows_are_written_in_order(spark: SparkSession, url: str, streams: JetStream) -> None:
    frame = spark.range(400).selectExpr(
        "concat('out.', id % 5) as subject", "400 - id as sequence", "cast(id as string) as data"
    )

    write_ordered(frame, partitions=2).write.format("penstock").mode("append").options(
        servers=url
    ).save()

    of_subject: dict[bytes, list[int]] = {}
    for each in streams.each("OUT"):
        of_subject.setdefault(each.subject, []).append(int(each.payload))
    assert {len(numbers) for numbers in of_subject.values()} == {80}
    assert all(numbers == sorted(numbers, reverse=True) for numbers in of_subject.values())
    with pytest.raises(UsageError, match="needs the column sequence"):
        write_ordered(frame.drop("sequence"))


def test_rows_that_a_stream_refuses_are_told_by_number(streams: JetStream) -> None:
    streams.call("STREAM.UPDATE.OUT", {"name": "OUT", "subjects": ["out.>"], "max_msg_size": 3})
    rows = Rows(
        column_bytes(pa.array(["out.a", "out.b"]), "subject"),
        None,
        column_bytes(pa.array([b"abc", b"abcd"]), "data"),
    )
    with (
        pytest.raises(RefusedByServer, match=r"row 1: .*maximum"),
        streams.client.publishing_rows(in_flight=10) as publisher,
    ):
        publisher.publish(rows)
