"""Exactly once under Spark: tasks that fail or run twice, killed drivers, replayed batches.

What comes out is compared with what went in, row by row.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.bench.loops import count_messages
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.spark.sinks.settings import RowShape
from penstock.testing.servers import PENSTOCK, environ, server_process
from tests.spark.test_clusters import spark_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = 60_000
OUT = {"name": "OUT", "subjects": ["out.>", "_fence.OUT.>"], "allow_atomic": True}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Yield JetStream with a stream OUT that can be written to exactly once."""
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        # In memory: the real server may mistake a stream on disk for one that it has just removed.
        made.call("STREAM.CREATE.OUT", OUT | {"storage": "memory"})
        yield made
        made.call("STREAM.DELETE.OUT")


def fill(streams: JetStream, count: int) -> None:
    """Make the stream IN with so many numbers."""
    streams.call("STREAM.CREATE.IN", {"name": "IN", "subjects": ["in"]})
    numbers = pa.array([b"%d" % number for number in range(count)], pa.binary())
    rows = RowShape("data", subject="in").rows(pa.record_batch({"data": numbers}))
    with streams.client.publishing_rows(in_flight=4096) as publisher:
        publisher.publish(rows)


def found(streams: JetStream) -> list[int]:
    """Return the numbers in OUT, in the stream's order."""
    client = streams.client
    sid = client.subscribe(b"found.rows")
    config = {
        "deliver_subject": "found.rows",
        "ack_policy": "none",
        "filter_subject": "out.>",
    }
    count = sum(messages for _, messages in streams.subjects("OUT", "out.>"))
    streams.call("CONSUMER.CREATE.OUT", {"stream_name": "OUT", "config": config})
    numbers = [int(client.next_message(sid).payload) for _ in range(count)]
    client.unsubscribe(sid)
    return numbers


def write(spark: SparkSession, url: str, first: int, end: int, **options: str) -> None:
    frame = spark.range(first, end, numPartitions=2).selectExpr(
        "concat('out.', id % 3) as subject", "cast(id as string) as data"
    )
    settings = {"stream": "OUT", "delivery": "exactly-once", "sinkId": "job"} | options
    frame.write.format("penstock").mode("append").options(servers=url, **settings).save()


def test_a_version_is_written_once(spark: SparkSession, url: str, streams: JetStream) -> None:
    for version, first in (("1", 0), ("1", 0), ("2", 2500), ("1", 0), ("2", 2500)):
        write(spark, url, first, first + 2500, version=version)

    assert sorted(found(streams)) == list(range(5000))


def follow(
    spark: SparkSession, url: str, folder: Path, partitions: str = "2", **options: str
) -> None:
    settings = {"stream": "OUT", "delivery": "exactly-once"} | options
    query = (
        spark.readStream.format("penstock")
        .options(servers=url, stream="IN", startingOffsets="earliest", minPartitions=partitions)
        .option("maxOffsetsPerTrigger", "3000")
        .load()
        .selectExpr("concat('out.', sequence % 3) as subject", "data")
        .writeStream.format("penstock")
        .options(servers=url, **settings)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_commit(checkpoint: Path) -> None:
    """Remove the last commit of a query, as if the driver had died just before it."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.promise
def test_a_batch_that_is_replayed_is_written_once(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    fill(streams, 8000)
    try:
        follow(spark, url, tmp_path)
        forget_commit(tmp_path)
        # It is known to be complete, however it is divided now.
        follow(spark, url, tmp_path, partitions="3")
        forget_commit(tmp_path)
        streams.call("STREAM.PURGE.OUT", {"filter": "_fence.OUT.*.commit"})
        # It is known how far each partition had come.
        follow(spark, url, tmp_path)
        forget_commit(tmp_path)
        streams.call("STREAM.PURGE.OUT", {"filter": "_fence.OUT.*.commit"})
        with pytest.raises(PySparkException, match="NotTheSameRows"):
            follow(spark, url, tmp_path, partitions="3")
        with pytest.raises(PySparkException, match="another query"):
            follow(spark, url, tmp_path / "other", sinkId=sink_of(streams))
    finally:
        streams.call("STREAM.DELETE.IN")

    assert sorted(found(streams)) == list(range(8000))


def sink_of(streams: JetStream) -> str:
    (subject, _), *_ = streams.subjects("OUT", "_fence.>")
    return subject.split(".")[2]


def test_a_row_for_another_stream_fails_the_write(
    spark: SparkSession, url: str, streams: JetStream
) -> None:
    frame = spark.range(1).selectExpr("'elsewhere.a' as subject", "'x' as data")

    with pytest.raises(PySparkException, match=r"does not take .* subject 'elsewhere\.a'"):
        frame.write.format("penstock").mode("append").options(
            servers=url, stream="OUT", delivery="exactly-once", sinkId="j", version="1"
        ).save()

    assert found(streams) == []


class Driver:
    """A driver in processes of its own."""

    def __init__(self, url: str, folder: Path, master: str) -> None:
        command = [sys.executable, "-m", "tests.spark.exactly_once_driver"]
        self.log = (folder / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [*command, url, str(folder), master],
            cwd=ROOT,
            env=environ() | {"PYSPARK_PYTHON": sys.executable},
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def kill(self) -> None:
        """End driver and JVM at once; their Python workers find out by themselves."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.log.close()

    def wait(self) -> int:
        code = self._process.wait(1500)
        self.log.close()
        return code


@contextlib.contextmanager
def connected(url: str) -> Iterator[JetStream]:
    """Connect for a moment: a server drops a client that is silent while a driver runs."""
    with Client.connect(url, timeout_s=300) as client:
        yield JetStream(client)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Yield a server with the streams IN, which is full, and OUT; and a folder."""
    with server_process(PENSTOCK, store_dir=tmp_path / "store") as server:
        with connected(server.url) as streams:
            streams.call("STREAM.CREATE.OUT", OUT)
            fill(streams, ROWS)
        yield server.url, tmp_path


def tell_when_ended(url: str, driver: Driver) -> None:
    """Publish a message when a driver has ended, however it ended."""
    driver.wait()
    with connected(url) as streams:
        streams.client.publish(b"driver.ended", b"")
        streams.client.flush()


def kill_and_compare(url: str, folder: Path, kills: int, seed: int) -> None:
    random = Random(seed)
    for kill in range(kills):
        with connected(url) as streams:
            left = ROWS - len(found(streams))
            # Some points are where a task begins or a batch ends, others in the middle.
            wanted = max(random.randrange(max(left // (kills - kill), 2)), 1)
            streams.client.subscribe(b"out.>", max_messages=wanted)
            ended = streams.client.subscribe(b"driver.ended")
            driver = Driver(url, folder, "local[2,4]")
            telling = threading.Thread(target=tell_when_ended, args=(url, driver))
            telling.start()
            try:
                came = count_messages(streams.client.wire, wanted, ended)
            finally:
                driver.kill()
                telling.join()
            assert came == wanted, (folder / "driver.log").read_text()

    assert Driver(url, folder, "local[2,4]").wait() == 0, (folder / "driver.log").read_text()
    with connected(url) as streams:
        assert sorted(found(streams)) == list(range(ROWS))


@pytest.mark.exhaustive
def test_a_driver_that_is_killed_again_and_again_loses_and_doubles_nothing(
    place: tuple[str, Path],
) -> None:
    kill_and_compare(*place, kills=5, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_driver_that_is_killed_many_times_loses_and_doubles_nothing(
    place: tuple[str, Path], seed: int
) -> None:
    kill_and_compare(*place, kills=10, seed=seed)


@pytest.mark.soak
def test_a_task_that_spark_runs_twice_at_once_writes_its_rows_once(
    place: tuple[str, Path],
) -> None:
    url, folder = place
    master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
    with (
        spark_process(*master, "--webui-port", "0", ready="Starting Spark master") as (_, line),
        contextlib.ExitStack() as stack,
    ):
        address = line.rpartition(" ")[2].strip()
        # Spark runs a task a second time on another host only: these are two of them.
        for host in ("127.0.0.1", "127.0.0.2"):
            worker = ("org.apache.spark.deploy.worker.Worker", address, "--host", host)
            more = ("--port", "0", "--webui-port", "0", "-c", "1", "-m", "1g", "-d")
            started = (*worker, *more, str(folder / host))
            stack.enter_context(spark_process(*started, ready="Successfully registered"))
        code = Driver(url, folder, address).wait()

    assert code == 0, (folder / "driver.log").read_text()
    with connected(url) as streams:
        assert sorted(found(streams)) == list(range(ROWS))
