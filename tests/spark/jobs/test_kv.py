"""The job `kv`: a bucket's cut has each key's value, and follows on the cut before it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.spark.jobs import kv as job
from penstock.spark.jobs.job import Input
from penstock.spark.jobs.kv import materialise

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BUCKET = {
    "name": "KV_config",
    "subjects": ["$KV.config.>"],
    "max_msgs_per_subject": 3,
    "allow_rollup_hdrs": True,
    "deny_delete": False,
}


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        made.call("STREAM.CREATE.KV_config", BUCKET)
        yield made
        made.call("STREAM.DELETE.KV_config")


def put(streams: JetStream, key: str, value: str) -> int:
    seq: int = streams.publish(f"$KV.config.{key}".encode(), value.encode())["seq"]
    return seq


def remove(streams: JetStream, key: str, operation: str = "DEL") -> int:
    headers = f"NATS/1.0\r\nKV-Operation: {operation}\r\n\r\n".encode()
    subject = f"$KV.config.{key}".encode()
    seq: int = streams.publish(subject, b"", headers=headers)["seq"]
    return seq


def values(spark: SparkSession, path: str) -> dict[str, str]:
    rows = spark.read.parquet(path).collect()
    assert all(row["timestamp"] is not None and row["time_ns"] > 0 for row in rows)
    return {row["key"]: bytes(row["value"]).decode() for row in rows}


def test_a_cut_follows_on_the_last_one(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    source = Input("penstock", {"servers": url, "stream": "KV_config", "minPartitions": "3"})
    output = str(tmp_path / "cuts")
    for number in range(40):
        put(streams, f"key.{number % 10}", f"value {number}")
    remove(streams, "key.3")

    planned = materialise(spark, source, output, dry_run=True)
    first = materialise(spark, source, output)
    same = materialise(spark, source, output)
    put(streams, "key.3", "again")
    put(streams, "new", "one")
    remove(streams, "key.4", "PURGE")
    second = materialise(spark, source, output)
    whole = materialise(spark, source, str(tmp_path / "whole"))

    expected = {f"key.{number}": f"value {30 + number}" for number in range(10) if number != 3}
    assert (planned.parts, planned.outputs) == (3, first.outputs)
    assert values(spark, first.outputs[0]) == expected
    assert (same.parts_skipped, same.outputs) == (1, [])
    del expected["key.4"]
    assert values(spark, second.outputs[0]) == {**expected, "key.3": "again", "new": "one"}
    assert (second.counts["sequences"], second.counts["keys"]) == (3, 10)
    assert values(spark, whole.outputs[0]) == values(spark, second.outputs[0])


def test_a_cut_is_at_a_sequence_or_a_time(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    seq = put(streams, "a", "1")
    put(streams, "b", "1")
    put(streams, "a", "2")
    stored = streams.find("KV_config", seq=seq + 2)
    assert stored is not None
    moment = datetime.datetime.fromisoformat(stored.time[:26].rstrip("Z") + "+00:00")
    options = {"servers": url, "stream": "KV_config"}

    at_sequence = materialise(
        spark, Input("penstock", {**options, "endingOffsets": "2"}), str(tmp_path / "A")
    )
    at_time = materialise(
        spark, Input("penstock", {**options, "endingTimestamp": moment.isoformat()}),
        str(tmp_path / "B"),
    )  # fmt: skip

    assert values(spark, at_sequence.outputs[0]) == {"a": "1"}
    assert values(spark, at_time.outputs[0]) == {"a": "1", "b": "1"}
    assert at_time.outputs[0].endswith("cut-00000000000000000003")
    with pytest.raises(UsageError, match="startingoffsets"):
        materialise(
            spark, Input("penstock", {**options, "startingOffsets": "2"}), str(tmp_path / "A")
        )
    with pytest.raises(UsageError, match="other keys"):
        materialise(
            spark, Input("penstock", {**options, "subject": "$KV.config.a"}), str(tmp_path / "A")
        )


def test_half_a_cut_is_made_anew(
    spark: SparkSession, url: str, streams: JetStream, tmp_path: Path
) -> None:
    put(streams, "a", "1")
    source = Input("penstock", {"servers": url, "stream": "KV_config"})
    path = Path(materialise(spark, source, str(tmp_path)).outputs[0])
    os.remove(path / job.DOCUMENT)
    for part in path.glob("*.parquet"):
        part.write_bytes(b"torn")

    again = materialise(spark, source, str(tmp_path))

    assert values(spark, again.outputs[0]) == {"a": "1"}
