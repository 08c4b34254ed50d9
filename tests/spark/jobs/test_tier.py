"""The job `tier`: only messages in checked files of the archive are purged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.spark.jobs.archive import Keep, find_cut, tier
from penstock.spark.jobs.job import Input
from penstock.spark.streams.facts import stream_facts
from penstock.spark.streams.read import unix_ns
from tests.support.archives import (
    archive_here,
    archived_sequences,
    connect,
    directory,
    messages,
    publish,
    server_input,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Yield a server with the stream ORDERS: 100 messages, of which two were deleted."""
    found = connect(url)
    found.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    publish(found, "orders", 100)
    for seq in (20, 60):
        found.call("STREAM.MSG.DELETE.ORDERS", {"seq": seq})
    yield found
    found.call("STREAM.DELETE.ORDERS")
    found.client.close()


def test_the_last_messages_stay_and_the_others_move(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    before = [row[0] for row in messages(streams, "ORDERS")]
    source = server_input(url, "ORDERS")

    dry = tier(spark, source, str(tmp_path / "archive"), Keep(messages=30), dry_run=True)
    assert [row[0] for row in messages(streams, "ORDERS")] == before
    assert not (tmp_path / "archive").exists()
    report = tier(spark, source, str(tmp_path / "archive"), Keep(messages=30))

    assert archived_sequences(tmp_path / "archive") == before[:-30]
    assert [row[0] for row in messages(streams, "ORDERS")] == before[-30:]
    assert (report.exit_code, report.counts["purged"]) == (0, 68)
    assert report.counts["cut"] == dry.counts["cut"] == before[-30]
    again = tier(spark, source, str(tmp_path / "archive"), Keep(messages=30))
    assert (again.counts["purged"], again.counts["files"]) == (0, 0)


def test_a_run_that_was_broken_off_before_the_purge_is_finished(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    before = [row[0] for row in messages(streams, "ORDERS")]
    archive_here(server_input(url, "ORDERS"), tmp_path)

    report = tier(spark, server_input(url, "ORDERS"), str(tmp_path), Keep(messages=0))

    assert (report.counts["files"], report.counts["purged"]) == (0, 98)
    assert messages(streams, "ORDERS") == []
    assert archived_sequences(tmp_path) == before


def test_the_purge_ends_before_a_file_that_is_damaged(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    manifest = archive_here(server_input(url, "ORDERS"), tmp_path)
    path = tmp_path / manifest.files[1].name
    path.write_bytes(path.read_bytes()[:-1])

    report = tier(spark, server_input(url, "ORDERS"), str(tmp_path), Keep(messages=0))

    assert [each.where for each in report.findings] == [manifest.files[1].name]
    assert report.exit_code == 1
    left = [row[0] for row in messages(streams, "ORDERS")]
    assert left[0] == manifest.files[1].first


def test_messages_that_the_archive_never_had_stay(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    archive_here(server_input(url, "ORDERS", startingOffsets="41"), tmp_path)
    before = messages(streams, "ORDERS")

    report = tier(spark, server_input(url, "ORDERS"), str(tmp_path), Keep(messages=0))

    assert [each.kind for each in report.findings] == ["not archived"]
    assert messages(streams, "ORDERS") == before


def test_a_time_cuts_in_front_of_the_first_message_since_then(url: str, streams: JetStream) -> None:
    facts = stream_facts(streams, "ORDERS")
    times = {row[0]: unix_ns(row[4]) for row in messages(streams, "ORDERS")}

    def cut(since_ns: int) -> int:
        return find_cut(streams, facts, Keep(since_ns=since_ns))

    assert cut(times[50]) == 50
    assert cut(times[50] + 1) == 51
    assert cut(times[1] - 10**9) == 1
    assert cut(times[100] + 10**9) == 101


def test_a_number_of_messages_counts_those_that_are_there(url: str, streams: JetStream) -> None:
    facts = stream_facts(streams, "ORDERS")
    there = [row[0] for row in messages(streams, "ORDERS")]

    for kept in (1, 39, 40, 41, 97):
        assert find_cut(streams, facts, Keep(messages=kept)) in (there[-kept - 1] + 1, there[-kept])
    assert find_cut(streams, facts, Keep(messages=0)) == 101
    assert find_cut(streams, facts, Keep(messages=98)) == 1
    assert find_cut(streams, facts, Keep(messages=1000)) == 1


def test_what_says_nothing_or_too_much_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for kept in ({}, {"since_ns": 1, "messages": 1}, {"messages": -1}):
        with pytest.raises(UsageError):
            Keep(**kept)
    with pytest.raises(UsageError):
        tier(spark, directory(tmp_path), str(tmp_path / "archive"), Keep(messages=1))


def test_a_stream_whose_consumers_take_messages_is_refused(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    config = {"name": "WORK", "subjects": ["work.>"], "retention": "workqueue"}
    streams.call("STREAM.CREATE.WORK", config)

    with pytest.raises(UsageError):
        tier(
            spark,
            Input("penstock", {"servers": url, "stream": "WORK"}),
            str(tmp_path),
            Keep(messages=1),
        )
    streams.call("STREAM.DELETE.WORK")
