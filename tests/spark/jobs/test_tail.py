"""The job `tail`: an archive follows its stream, batch by batch, and nothing is archived twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.jetstream import JetStream
from penstock.spark.archives.folder import ArchiveFolder, find_manifest
from penstock.spark.jobs.archive import Tail
from penstock.spark.position import DataLoss
from penstock.testing.servers import PENSTOCK, server_process
from tests.support.archives import (
    archive_here,
    archived_sequences,
    connect,
    directory,
    make_store,
    publish,
    server_input,
    stored,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of our server: for the others, `archive` is tried with each."""
    with server_process(PENSTOCK, store_dir=tmp_path_factory.mktemp("streams")) as server:
        yield server.url


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Yield a server with the stream ORDERS of 50 messages."""
    found = connect(url)
    found.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    publish(found, "orders", 50)
    yield found
    found.call("STREAM.DELETE.ORDERS")
    found.client.close()


def test_each_run_archives_what_came_since_the_last(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    source = server_input(url, "ORDERS")

    first = Tail(spark, source, str(tmp_path)).run()
    publish(streams, "orders", 30)
    second = Tail(spark, source, str(tmp_path)).run()
    publish(streams, "orders", 20)
    archive_here(source, tmp_path)
    third = Tail(spark, source, str(tmp_path)).run()

    assert archived_sequences(tmp_path) == list(range(1, 101))
    counts = [each.counts.get("messages", 0) for each in (first, second, third)]
    assert counts == [50, 30, 0]


def test_a_query_that_goes_on_archives_what_comes(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    tail = Tail(spark, server_input(url, "ORDERS"), str(tmp_path / "archive"))
    query = tail.start(str(tmp_path / "checkpoint"), every_s=0.1)
    try:
        query.processAllAvailable()
        assert archived_sequences(tmp_path / "archive") == list(range(1, 51))
        publish(streams, "orders", 10)
        query.processAllAvailable()
    finally:
        query.stop()

    assert archived_sequences(tmp_path / "archive") == list(range(1, 61))


def test_a_directory_is_followed_too(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "ORDERS", count=300)

    Tail(spark, directory(tmp_path / "ORDERS"), str(tmp_path / "archive")).run()

    assert archived_sequences(tmp_path / "archive") == [
        row[0] for row in stored(tmp_path / "ORDERS")
    ]


def test_what_was_lost_is_told_as_the_archive_tells_it(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    Tail(spark, server_input(url, "ORDERS"), str(tmp_path)).run()
    publish(streams, "orders", 50)
    streams.call("STREAM.PURGE.ORDERS", {"seq": 71})

    with pytest.raises(DataLoss, match=r"51.*71"):
        Tail(spark, server_input(url, "ORDERS"), str(tmp_path)).run()
    assert archived_sequences(tmp_path) == list(range(1, 51))

    Tail(spark, server_input(url, "ORDERS"), str(tmp_path), allow_holes=True).run()
    found = find_manifest(ArchiveFolder(str(tmp_path)))
    assert found is not None
    assert found.holes() == [(51, 70)]
