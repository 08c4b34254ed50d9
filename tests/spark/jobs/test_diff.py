"""The job `diff`: it finds the messages that two sides do not share, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.format.sequence_set import SequenceSet
from penstock.spark.jobs import diff as job
from penstock.spark.jobs.diff import CompareBy, DiffTask, diff, hash_part
from penstock.spark.jobs.job import Input
from penstock.store.filestore import FileStore
from penstock.store.interface import RawMessage, StoreConfig

pytestmark = [pytest.mark.timeout(300)]

COUNT = 2000


def message(seq: int) -> RawMessage:
    headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % seq if seq % 3 == 0 else b""
    return seq, seq * 1000, b"orders.%d" % (seq % 7), headers, b"payload %d" % seq, 0


def make(
    path: Path, change: Callable[[RawMessage], RawMessage | None] = lambda each: each
) -> Input:
    with FileStore.open(str(path), StoreConfig(name="ORDERS", block_bytes=16384)) as store:
        for seq in range(1, COUNT + 1):
            changed = change(message(seq))
            if changed is None:
                continue
            seq, time_ns, subject, headers, payload, _ = changed
            store.store_raw(subject, headers, payload, seq=seq, timestamp_ns=time_ns)
    return Input("penstock-blocks", {"path": str(path), "maxBytesPerPartition": "40000"})


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages be small, in the driver's plan and in what it works out itself."""
    monkeypatch.setattr(job, "PAGE_SEQUENCES", 100)


def test_pages_do_not_depend_on_how_a_side_is_divided(tmp_path: Path, small_pages: None) -> None:
    whole = make(tmp_path / "A")
    divided = Input("penstock-blocks", {"path": whole.options["path"], "minPartitions": "7"})

    sums = [
        job._sum([hash_part(DiffTask(each, CompareBy.SEQUENCE, True)) for each in side.parts()])
        for side in (whole, divided)
    ]

    assert sums[0] == sums[1]
    assert sorted(sums[0]) == list(range(21))
    assert sum(page.count for page in sums[0].values()) == COUNT


def test_only_parts_with_a_page_that_differs_are_read_again(
    tmp_path: Path, small_pages: None
) -> None:
    side = make(tmp_path / "A")
    parts = [DiffTask(each, CompareBy.SEQUENCE, True) for each in side.parts()]
    pages = [hash_part(each) for each in parts]
    differing = SequenceSet()
    differing.add(5)

    again = job._reading_again(parts, pages, differing)

    assert len(parts) > 2
    assert 1 <= len(again) <= 2
    rows = [row for part in again for batch in job.compare_part(part) for row in batch.to_pylist()]
    assert sorted(row["sequence"] for row in rows) == list(range(500, 600))


def unlike(each: RawMessage) -> RawMessage | None:
    seq, time_ns, subject, headers, payload, expires_ns = each
    if seq == 17:
        return None
    if seq == 500:
        return seq, time_ns + 1, subject, headers, payload, expires_ns
    if seq == 900:
        return seq, time_ns, b"other", headers, payload + b"!", expires_ns
    if seq == 901:
        return seq, time_ns, subject, b"NATS/1.0\r\nA: 1\r\n\r\n", payload, expires_ns
    return each


@pytest.mark.slow
def test_each_difference_is_told_with_its_sequence(spark: SparkSession, tmp_path: Path) -> None:
    left, right = make(tmp_path / "A"), make(tmp_path / "B", unlike)

    report = diff(spark, left, right)
    back = diff(spark, right, left, with_time=False)

    found = [(each.kind, each.where) for each in report.findings]
    assert found == [
        ("missing", "sequence 17"),
        ("different", "sequence 500"),
        ("different", "sequence 900"),
        ("different", "sequence 901"),
    ]
    assert report.findings[1].what == "time_ns 500000 and 500001"
    assert "subject orders.4 and other" in report.findings[2].what
    assert (report.exit_code, report.counts["messages_right"]) == (1, COUNT - 1)
    assert [each.kind for each in back.findings] == ["extra", "different", "different"]
    assert diff(spark, left, left).exit_code == 0


@pytest.mark.slow
def test_by_content_a_stream_is_the_same_wherever_its_messages_stand(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    left = make(tmp_path / "A")
    with Client.connect(url, timeout_s=60) as client:
        streams = JetStream(client)
        streams.call("STREAM.CREATE.COPY", {"name": "COPY", "subjects": ["orders.>"]})
        streams.publish(b"orders.more", b"first")
        for seq in range(1, COUNT + 1):
            _, _, subject, headers, payload, _ = message(seq)
            client.publish(subject, payload, headers=headers or None)
        streams.publish(b"orders.more", b"first")
    right = Input("penstock", {"servers": url, "stream": "COPY"})

    report = diff(spark, left, right, by=CompareBy.CONTENT)

    assert [(each.kind, each.what) for each in report.findings] == [
        ("extra", "subject orders.more, 5 bytes, 2 times")
    ]
