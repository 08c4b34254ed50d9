"""Restoring by publishing: every message once, in order, telling where it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.jetstream import JetStream
from penstock.errors import PenstockError, UsageError
from penstock.spark.archives.folder import Manifest
from penstock.spark.connection import Connection
from penstock.spark.jobs.restore import (
    PublishTask,
    last_restored,
    publish_part,
    restore_publish,
)
from penstock.spark.options import Names
from tests.support.archives import archive_here, connect, messages, publish, server_input

COUNT = 100

Archived = tuple[str, Manifest, list[tuple[int, bytes, bytes, bytes]]]
"""Where it is, its manifest, and what the stream held that it is of."""


@pytest.fixture
def archive(url: str, tmp_path: Path) -> Archived:
    """Return an archive of several files, and the messages of its stream."""
    streams = connect(url)
    streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    publish(streams, "orders", COUNT - 1)
    streams.publish(
        b"orders.last",
        b"with orders",
        headers=b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: theirs\r\nnats-expected-last-sequence: 99\r\n"
        b"B: 2\r\nNats-Expected-Stream: ORDERS\r\n\r\n",
    )
    manifest = archive_here(server_input(url, "ORDERS"), tmp_path / "archive")
    held = [row[:4] for row in messages(streams, "ORDERS")]
    streams.call("STREAM.DELETE.ORDERS")
    streams.client.close()
    return str(tmp_path / "archive"), manifest, held


@pytest.fixture
def streams(url: str, archive: Archived) -> Iterator[JetStream]:
    """Yield a server with the empty stream BACK, into which orders go."""
    found = connect(url)
    found.call("STREAM.CREATE.BACK", {"name": "BACK", "subjects": ["orders.>"]})
    yield found
    found.call("STREAM.DELETE.BACK")
    found.client.close()


def tasks(url: str, archive: Archived) -> list[PublishTask]:
    place, manifest, _ = archive
    connection = Connection(servers=Names((url,)))
    return [
        PublishTask(place, each, connection, "BACK", manifest.stream, manifest.created)
        for each in manifest.files
    ]


def headers(block: bytes) -> dict[bytes, bytes]:
    lines = block.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
    return dict(line.split(b": ", 1) for line in lines)


def check(streams: JetStream, archive: Archived) -> None:
    """Compare the stream with what was archived."""
    _, manifest, held = archive
    found = messages(streams, "BACK")
    assert [(row[1], row[3]) for row in found] == [(row[1], row[3]) for row in held]
    for row, (seq, *_) in zip(found, held, strict=True):
        told = headers(row[2])
        assert told[b"Nats-Orig-Stream"] == b"ORDERS"
        assert int(told[b"Nats-Orig-Sequence"]) == seq
        assert told[b"Nats-Orig-Time"].startswith(b"20")
    assert manifest.messages == len(found)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_publishes_an_archive_and_a_second_run_nothing(
    spark: SparkSession, url: str, streams: JetStream, archive: Archived
) -> None:
    dry = restore_publish(spark, archive[0], {"servers": url}, name="BACK", dry_run=True)
    assert messages(streams, "BACK") == []

    report = restore_publish(spark, archive[0], {"servers": url}, name="BACK")
    again = restore_publish(spark, archive[0], {"servers": url}, name="BACK")

    check(streams, archive)
    assert (dry.parts, report.counts["published"]) == (report.parts, COUNT)
    assert (again.parts_skipped, again.counts.get("published", 0)) == (report.parts, 0)


def test_headers_stay_but_for_those_that_are_orders(
    url: str, streams: JetStream, archive: Archived
) -> None:
    for task in tasks(url, archive):
        publish_part(task)

    check(streams, archive)
    found = [headers(row[2]) for row in messages(streams, "BACK")]
    assert found[0][b"Number"] == b"0"
    assert b"Number" not in found[1]
    last = found[-1]
    assert (last[b"A"], last[b"B"]) == (b"1", b"2")
    assert last[b"Nats-Msg-Id"] != b"theirs"
    assert b"nats-expected-last-sequence" not in last
    assert last[b"Nats-Expected-Stream"] == b"BACK"


@pytest.mark.parametrize("done", [1, 17, 41, COUNT])
def test_a_restore_that_was_broken_off_goes_on_behind_the_last_message(
    url: str, streams: JetStream, archive: Archived, done: int
) -> None:
    for task in tasks(url, archive):
        publish_part(task)
    # What a run that was broken off has published: the beginning.
    for seq in range(COUNT, done, -1):
        streams.call("STREAM.MSG.DELETE.BACK", {"seq": seq})
    rest = messages(streams, "BACK")
    streams.call("STREAM.DELETE.BACK")
    streams.call("STREAM.CREATE.BACK", {"name": "BACK", "subjects": ["orders.>"]})
    for _, subject, block, payload, _ in rest:
        streams.publish(subject, payload, headers=block)
    assert last_restored(streams, "BACK", "ORDERS") == done

    published = sum(publish_part(task) for task in tasks(url, archive) if task.entry.last > done)

    assert published == COUNT - done
    check(streams, archive)


def test_a_stream_that_ends_with_something_else_is_refused(
    spark: SparkSession, url: str, streams: JetStream, archive: Archived
) -> None:
    streams.publish(b"orders.other", b"of somebody else")

    with pytest.raises(UsageError, match="not of this archive"):
        restore_publish(spark, archive[0], {"servers": url}, name="BACK")
    for task in tasks(url, archive)[:1]:
        with pytest.raises(UsageError):
            publish_part(task)

    assert len(messages(streams, "BACK")) == 1


def test_a_damaged_file_is_found_before_anything_of_it_is_published(
    url: str, streams: JetStream, archive: Archived
) -> None:
    task = tasks(url, archive)[0]
    path = Path(task.place) / task.entry.name
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)

    with pytest.raises(PenstockError):
        publish_part(task)

    assert messages(streams, "BACK") == []


def test_what_another_stream_would_take_is_refused_by_the_server(
    url: str, streams: JetStream, archive: Archived
) -> None:
    streams.call("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["others.>"]})
    connection = Connection(servers=Names((url,)))
    place, manifest, _ = archive
    task = PublishTask(
        place, manifest.files[0], connection, "OTHER", manifest.stream, manifest.created
    )

    with pytest.raises(PenstockError):
        publish_part(task)

    assert messages(streams, "BACK") == messages(streams, "OTHER") == []
    streams.call("STREAM.DELETE.OTHER")


def test_bad_inputs_are_refused(spark: SparkSession, url: str, archive: Archived) -> None:
    for options, name in (
        ({"servers": url}, "NOSUCH"),
        ({"servers": url, "stream": "BACK"}, "BACK"),
        ({"servers": url}, "a.b"),
    ):
        with pytest.raises(UsageError):
            restore_publish(spark, archive[0], options, name=name)


@pytest.mark.slow
def test_a_stream_that_is_not_there_can_be_made_as_it_was(
    spark: SparkSession, url: str, archive: Archived
) -> None:
    dry = restore_publish(spark, archive[0], {"servers": url}, create=True, dry_run=True)
    report = restore_publish(spark, archive[0], {"servers": url}, create=True)

    streams = connect(url)
    info = streams.call("STREAM.INFO.ORDERS")
    assert (info["state"]["messages"], info["config"]["subjects"]) == (COUNT, ["orders.>"])
    assert report.counts["published"] == COUNT
    assert dry.parts == report.parts
    streams.call("STREAM.DELETE.ORDERS")
    streams.client.close()
