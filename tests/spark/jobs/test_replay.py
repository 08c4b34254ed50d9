"""The job `replay`: which messages it publishes, under which subjects, how often and when."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream, Stored, pull
from penstock.errors import UsageError
from penstock.spark.jobs import replay as job
from penstock.spark.jobs.job import Input, run_parts
from penstock.spark.jobs.replay import (
    ReplayOptions,
    RepublishTask,
    mapped,
    origin_headers,
    paced,
    parse_map,
    replay,
    republish_part,
)
from penstock.spark.sinks.settings import Delivery
from penstock.testing.servers import environ

COUNT = 300
TARGET = {
    "name": "COPY",
    "subjects": ["copy.>", "$FENCES.>"],
    "allow_atomic": True,
}


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Yield JetStream with a stream ORDERS; every stream is removed."""
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        made.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        publish(made, 0, COUNT)
        yield made
        for name in list(made.pages("STREAM.NAMES", "streams", {})):
            made.call(f"STREAM.DELETE.{name}")


def publish(streams: JetStream, first: int, end: int) -> None:
    for number in range(first, end):
        # The same id again and again: the stream that is written to must not heed it.
        headers = b"NATS/1.0\r\nNumber: %d\r\nNats-Msg-Id: %d\r\n\r\n" % (number, number)
        subject = b"orders.%d" % (number % 7)
        # A server drops what comes too much at a time for its stream.
        send = streams.publish if number % 500 == 499 else streams.client.publish
        send(subject, b"%d" % number, headers=headers)
    streams.publish(b"orders.end", b"end %d" % end)


def copied(streams: JetStream) -> list[Stored]:
    return list(streams.each("COPY", "copy.>"))


def origins(copies: list[Stored]) -> list[int]:
    found = [re.search(rb"Nats-Orig-Sequence: (\d+)", each.headers) for each in copies]
    return [int(each[1]) for each in found if each is not None]


def options(url: str, **more: str) -> dict[str, str]:
    return {"servers": url, "stream": "COPY", **more}


def target(streams: JetStream) -> str:
    """Make the stream that is written to, with subjects for fences; give their prefix."""
    streams.call("STREAM.CREATE.COPY", {**TARGET, "subjects": ["copy.>", "fences.>"]})
    return "fences"


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_exactly_once_a_replay_goes_on_where_it_ended(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    prefix = target(streams)
    source = Input("penstock", {"servers": url, "stream": "ORDERS"})
    how = ReplayOptions(
        options(url, sinkId="nightly", fencePrefix=prefix),
        maps=(parse_map("orders.>=copy.eu.>"),),
        parallel=2,
    )

    planned = replay(spark, source, how, dry_run=True)
    first = replay(spark, source, how)
    second = replay(spark, source, how)
    publish(streams, COUNT, COUNT + 50)
    third = replay(spark, source, how)

    copies = copied(streams)
    assert (planned.counts["sequences"], first.counts["published"]) == (COUNT + 1, COUNT + 1)
    assert (second.parts, second.parts_skipped) == (0, 2)
    assert third.counts["published"] == 51
    assert sorted(origins(copies)) == list(range(1, COUNT + 53))
    for subject in {each.subject for each in copies}:
        of_one = origins([each for each in copies if each.subject == subject])
        assert of_one == sorted(of_one)
    one = next(each for each in copies if each.payload == b"17")
    assert one.subject == b"copy.eu.3"
    assert b"\r\nNumber: 17\r\n" in one.headers
    assert b"Nats-Msg-Id" not in one.headers
    with pytest.raises(UsageError, match="another sinkId"):
        replay(spark, source, ReplayOptions(how.target, parallel=2))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_replay_that_was_broken_off_is_finished_as_it_was_planned(
    spark: SparkSession, url: str, streams: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = target(streams)
    source = Input("penstock", {"servers": url, "stream": "ORDERS"})
    how = ReplayOptions(
        options(url, sinkId="nightly", fencePrefix=prefix),
        maps=(parse_map("orders.>=copy.>"),),
        parallel=2,
    )

    def first_alone(
        spark: SparkSession, work: object, parts: list[RepublishTask], tell: object
    ) -> None:
        run_parts(spark, republish_part, parts[:1])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(job, "run_parts", first_alone)
        with pytest.raises(KeyboardInterrupt):
            replay(spark, source, how)
    half = len(copied(streams))
    publish(streams, COUNT, COUNT + 20)
    report = replay(spark, source, how)

    assert 0 < half < COUNT
    assert sorted(origins(copied(streams))) == list(range(1, COUNT + 23))
    assert report.counts["present"] == half
    assert report.counts["published"] == COUNT + 22 - half


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_replay_that_is_killed_again_and_again_publishes_each_message_once(
    url: str, streams: JetStream
) -> None:
    target(streams)
    publish(streams, COUNT, 100_000)
    command = [
        sys.executable, "-m", "penstock", "spark", "replay", f"{url}/ORDERS", f"{url}/COPY",
        "--map", "orders.>=copy.>", "--target-option", "fencePrefix=fences",
        "--master", "local[1]", "--conf", "spark.driver.memory=1g",
    ]  # fmt: skip

    for killed_at in (1_000, 30_000, 70_000):
        with subprocess.Popen(command, start_new_session=True, env=environ()) as process:
            while process.poll() is None and messages_of(streams) < killed_at:
                pass
            assert process.returncode is None
            os.killpg(process.pid, signal.SIGKILL)
    subprocess.run(command, check=True, env=environ(), timeout=600)

    assert origins(copied_by_pulling(streams)) == list(range(1, 100_003))


def messages_of(streams: JetStream) -> int:
    found: int = streams.call("STREAM.INFO.COPY")["state"]["messages"]
    return found


def copied_by_pulling(streams: JetStream) -> list[Stored]:
    config = {"durable_name": "all", "ack_policy": "none", "filter_subject": "copy.>"}
    asked = {"stream_name": "COPY", "config": config}
    streams.call("CONSUMER.DURABLE.CREATE.COPY.all", asked)
    found: list[Stored] = []
    while pulled := pull(streams.client, b"COPY", b"all", 1000):
        found += [Stored(each.subject, 0, each.headers, each.payload, "") for each in pulled]
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_with_ids_a_replay_that_is_done_again_changes_nothing(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    target(streams)
    source = Input("penstock", {"servers": url, "stream": "ORDERS", "subject": "orders.1,orders.2"})
    how = ReplayOptions(
        options(url, sinkId="ids"), Delivery.DEDUPE, (parse_map("orders.*=copy.$1.more"),)
    )

    first = replay(spark, source, how)
    second = replay(spark, source, how)

    copies = copied(streams)
    assert {each.subject for each in copies} == {b"copy.1.more", b"copy.2.more"}
    assert len(copies) == first.counts["published"] == 86
    assert (second.counts["published"], second.counts["present"]) == (0, 86)


@pytest.mark.parametrize(
    ("given", "subject", "becomes"),
    [
        ("orders.>=copy.>", "orders.1.2", "copy.1.2"),
        ("orders.*.>=$1.of.>", "orders.eu.1.2", "eu.of.1.2"),
        ("*.*={{wildcard(2)}}.{{wildcard(1)}}", "a.b", "b.a"),
        ("orders.new=other", "orders.new", "other"),
        ("orders.*=copy.$1", "orders.1.2", "orders.1.2"),
        ("a+b.>=c.>", "aab.1", "aab.1"),
    ],
)
def test_a_map_gives_other_subjects(given: str, subject: str, becomes: str) -> None:
    assert mapped(pa.array([subject]), (parse_map(given),)).to_pylist() == [becomes]


def test_of_several_maps_the_first_that_fits_counts() -> None:
    maps = (parse_map("a.*=b.$1"), parse_map("b.*=c.$1"), parse_map("a.>=never.>"))

    assert mapped(pa.array(["a.1", "b.1", "d.1"]), maps).to_pylist() == ["b.1", "c.1", "d.1"]


@pytest.mark.parametrize("given", ["orders", "=copy", "a.>=", "a.*=b.$2", "a.>.b=c"])
def test_what_is_no_map_is_refused(given: str) -> None:
    with pytest.raises(UsageError):
        parse_map(given)


def test_headers_that_order_something_are_left_out() -> None:
    orders = (
        b"NATS/1.0\r\nNats-Msg-Id: 7\r\nA: 1\r\nNats-Expected-Last-Sequence: 3\r\n"
        b"Nats-TTL: 1h\r\nNats-Rollup: all\r\nB: 2\r\n\r\n"
    )
    batch = pa.record_batch(
        {
            "sequence": pa.array([5, 6]),
            "time_ns": pa.array([1_000_000_001, 2_000_000_000]),
            "headers_raw": pa.array([orders, b""], pa.binary()),
        }
    )

    first, second = origin_headers(batch, "ORDERS", id_start="x:").to_pylist()

    assert first == (
        b"NATS/1.0\r\nNats-Msg-Id: x:5\r\nNats-Orig-Stream: ORDERS\r\nNats-Orig-Sequence: 5\r\n"
        b"Nats-Orig-Time: 1970-01-01T00:00:01.000000001Z\r\nA: 1\r\nB: 2\r\n\r\n"
    )
    assert second.endswith(b"Nats-Orig-Time: 1970-01-01T00:00:02.000000000Z\r\n\r\n")


def test_a_paced_replay_keeps_every_message_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    now_ns = [0]

    class Clock:
        def monotonic_ns(self) -> int:
            return now_ns[0]

    class Pause:
        def wait(self, seconds: float) -> None:
            waits.append(seconds)
            now_ns[0] += round(seconds * 1e9)

    monkeypatch.setattr("penstock.spark.jobs.replay.SystemClock", Clock)
    monkeypatch.setattr("penstock.spark.jobs.replay.threading.Event", Pause)
    times = [0, 10, 1_000_000_000, 1_000_000_000, 5_000_000_000]
    batch = pa.record_batch({"time_ns": pa.array(times, pa.int64())})

    slices = [each.column(0).to_pylist() for each in paced(iter([batch]), speed=2.0)]

    assert slices == [[0], [10], [1_000_000_000, 1_000_000_000], [5_000_000_000]]
    assert [round(each, 3) for each in waits] == [0.0, 0.5, 2.0]
