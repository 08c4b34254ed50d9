"""The job `dedupe`: which messages are there more than once, and a stream without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.spark.jobs.dedupe import Rule, dedupe, hash_keys
from penstock.spark.jobs.job import Input
from penstock.spark.jobs.replay import ReplayOptions, parse_map
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

SECOND_NS = 1_000_000_000
MESSAGES = [
    # subject, id, payload, seconds
    (b"orders.a", b"1", b"one", 0),
    (b"orders.a", b"2", b"two", 1),
    (b"orders.b", b"1", b"other", 2),
    (b"orders.a", b"", b"one", 3),
    (b"orders.a", b"2", b"two", 100),
    (b"orders.a", b"2", b"two", 101),
    (b"orders.b", b"", b"one", 102),
]


def make_store(path: Path) -> Input:
    with FileStore.open(str(path), StoreConfig(name="ORDERS")) as store:
        for seq, (subject, id_, payload, seconds) in enumerate(MESSAGES, 1):
            headers = (
                b"NATS/1.0\r\nNats-Msg-Id: %b\r\nMine: x%b\r\n\r\n" % (id_, id_) if id_ else b""
            )
            store.store_raw(
                subject, headers, payload, seq=seq, timestamp_ns=(1000 + seconds) * SECOND_NS
            )
    return Input("penstock-blocks", {"path": str(path)})


def test_messages_without_a_key_are_no_duplicates(tmp_path: Path) -> None:
    (part,) = make_store(tmp_path).parts()

    by_id = [row for batch in hash_keys(Rule(), part) for row in batch.to_pylist()]

    assert [row["sequence"] for row in by_id] == [1, 2, 3, 5, 6]
    keys = {row["sequence"]: (row["key_a"], row["key_b"]) for row in by_id}
    assert keys[1] == keys[3] != keys[2] == keys[5]


@pytest.mark.parametrize(("key", "window_ns"), [("id", 0), ("header:", 0), ("header:a b", 0),
                                                 ("msg-id", -1)])  # fmt: skip
def test_what_is_no_rule_is_refused(key: str, window_ns: int) -> None:
    with pytest.raises(UsageError):
        Rule(key, window_ns)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (Rule(), [3, 5, 6]),
        (Rule(window_ns=10 * SECOND_NS), [3, 6]),
        (Rule("payload"), [4, 5, 6]),
        (Rule("header:mine"), [3, 5, 6]),
        (Rule("subject", window_ns=SECOND_NS), [2, 6]),
    ],
    ids=str,
)
def test_duplicates_are_found_by_the_rule(
    spark: SparkSession, tmp_path: Path, rule: Rule, found: list[int]
) -> None:
    report = dedupe(spark, make_store(tmp_path), rule)

    assert [each.where for each in report.findings] == [f"sequence {seq}" for seq in found]
    assert report.counts == {"duplicates": len(found)}
    assert report.exit_code == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_left_is_published_once(spark: SparkSession, url: str, tmp_path: Path) -> None:
    source = make_store(tmp_path)
    target = {"name": "CLEAN", "subjects": ["clean.>", "fences.>"], "allow_atomic": True}
    into = ReplayOptions(
        {"servers": url, "stream": "CLEAN", "sinkId": "clean", "fencePrefix": "fences"},
        maps=(parse_map("orders.>=clean.>"),),
    )
    with Client.connect(url, timeout_s=60) as client:
        streams = JetStream(client)
        streams.call("STREAM.CREATE.CLEAN", target)

        report = dedupe(spark, source, Rule(), into=into)
        again = dedupe(spark, source, Rule(), into=into)

        left = [(each.subject, each.payload) for each in streams.each("CLEAN", "clean.>")]
    assert left == [
        (subject.replace(b"orders", b"clean"), payload)
        for seq, (subject, _, payload, _) in enumerate(MESSAGES, 1)
        if seq not in (3, 5, 6)
    ]
    assert (report.counts["duplicates"], report.counts["published"]) == (3, 4)
    assert (report.exit_code, again.parts_skipped) == (0, 1)
