"""The job `stats`: the same numbers from a server, from its files, and counted by hand."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream, Stored
from penstock.errors import UsageError
from penstock.format.reader import StreamReader
from penstock.limits import TALLY_CELLS_MAX
from penstock.spark.jobs import stats as job
from penstock.spark.jobs.job import Input
from penstock.spark.jobs.stats import Order, StatsRequest, stats
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def message_bytes(subject: bytes, headers: bytes, payload: bytes) -> int:
    return 30 + len(subject) + len(payload) + (4 + len(headers) if headers else 0)


def fill(streams: JetStream) -> list[Stored]:
    streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    for number in range(300):
        headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else None
        subject = b"orders.%d.%d" % (number % 2, number % 7)
        streams.client.publish(subject, b"x" * number, headers=headers)
    streams.publish(b"orders.end", b"")
    streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": 50})
    return list(streams.each("ORDERS"))


def test_a_server_s_stream_is_counted(spark: SparkSession, url: str) -> None:
    with Client.connect(url, timeout_s=60) as client:
        stored = fill(JetStream(client))
        total = JetStream(client).call("STREAM.INFO.ORDERS")["state"]["bytes"]
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for each in stored:
        tokens = each.subject.decode().split(".")
        name = ".".join(tokens[:2]) + (".>" if len(tokens) > 2 else "")
        size = message_bytes(each.subject, each.headers, each.payload)
        known = expected[name]
        expected[name] = [known[0] + 1, known[1] + size, each.seq]

    report = stats(
        spark,
        Input("penstock", {"servers": url, "stream": "ORDERS", "minPartitions": "3"}),
        request=StatsRequest(depth=2, header_names=True),
    )

    found = {each.subject: [each.messages, each.bytes, each.last_seq] for each in report.groups}
    assert found == expected
    assert report.counts == {"groups": 3, "messages": 300, "bytes": total}
    assert report.header_names == {"Number": 100}
    assert report.parts == 3


def make_store(path: Path, subjects: int = 50) -> list[tuple[bytes, int, int]]:
    with FileStore.open(str(path), StoreConfig(name="ORDERS", block_bytes=16384)) as store:
        for number in range(3000):
            store.store(b"orders.%d" % (number % subjects), b"", b"x" * (number % 97))
        for seq in range(8, 3000, 100):
            store.remove(seq)
    return [
        (each.subject, each.seq, message_bytes(each.subject, each.headers, each.payload))
        for batch in StreamReader(str(path)).batches()
        for each in batch.messages()
    ]


def test_a_directory_is_counted_by_its_indexes(spark: SparkSession, tmp_path: Path) -> None:
    path, output = tmp_path / "ORDERS", tmp_path / "stats"
    rows = make_store(path)
    source = Input("penstock-blocks", {"path": str(path), "maxBytesPerPartition": "40000"})

    report = stats(
        spark, source, request=StatsRequest(rows=3, order=Order.BYTES), output=str(output)
    )

    whole = {row["subject"]: row for row in spark.read.parquet(str(output)).collect()}
    assert {name: row["messages"] for name, row in whole.items()} == {
        f"orders.{number}": sum(1 for each in rows if each[0] == b"orders.%d" % number)
        for number in range(50)
    }
    assert report.counts["bytes"] == sum(each[2] for each in rows)
    assert report.outputs == [str(output)]
    heaviest = sorted(whole.values(), key=lambda row: (-row["bytes"], row["subject"]))[:3]
    assert [each.subject for each in report.groups] == [row["subject"] for row in heaviest]
    for row in whole.values():
        sizes = sorted(each[2] for each in rows if each[0].decode() == row["subject"])
        assert abs(row["size_p50"] - statistics.median(sizes)) <= 4
        assert row["size_p50"] < row["size_p90"] < row["size_p99"] <= sizes[-1] + 2
    with pytest.raises(UsageError, match="something already"):
        stats(spark, source, output=str(output))


def test_many_groups_are_ordered_by_spark_as_few_are_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path, subjects=300)
    source = Input("penstock-blocks", {"path": str(tmp_path)})
    request = StatsRequest(rows=40, order=Order.BYTES)

    by_driver = stats(spark, source, request=request)
    monkeypatch.setattr(job, "GROUPS_IN_DRIVER_MAX", 296)
    by_spark = stats(spark, source, request=request)

    assert by_driver == by_spark
    assert by_driver.counts["groups"] == 297


def test_only_what_is_wanted_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    rows = make_store(tmp_path)
    options = {
        "path": str(tmp_path),
        "subject": "orders.3,orders.4",
        "startingOffsets": "100",
        "endingOffsets": "2000",
    }

    report = stats(spark, Input("penstock-blocks", options), request=StatsRequest(by_hour=True))
    planned = stats(spark, Input("penstock-blocks", options), dry_run=True)

    wanted = [each for each in rows if each[0] in (b"orders.3", b"orders.4")]
    assert report.counts["messages"] == sum(1 for each in wanted if 100 <= each[1] < 2000)
    assert all(each.hour_ns for each in report.groups)
    assert (planned.parts, planned.counts) == (report.parts, {})


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_million_subjects_are_counted_in_bounded_pieces(
    spark: SparkSession, tmp_path: Path
) -> None:
    count = 1_200_000
    with FileStore.open(str(tmp_path), StoreConfig(name="ORDERS")) as store:
        for start in range(0, count, 10_000):
            store.store_batch(
                [(b"devices.%d" % number, b"", b"x") for number in range(start, start + 10_000)]
            )
            store.flush()
    source = Input("penstock-blocks", {"path": str(tmp_path)})
    (part,) = source.parts()

    pieces = [len(batch) for batch in job.count_part(StatsRequest(), part)]
    report = stats(spark, source, request=StatsRequest(rows=5), output=str(tmp_path / "stats"))

    assert sum(pieces) == count
    assert max(pieces) < TALLY_CELLS_MAX * 1.5
    assert len(pieces) > 1
    assert report.counts["groups"] == count
    assert len(report.groups) == 5
