"""The job `migrate`: our server serves the real server's files; JSON lines become blocks."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream, pull
from penstock.errors import UsageError
from penstock.format.reader import StreamReader
from penstock.spark.blocks.settings import read_settings
from penstock.spark.jobs.job import Input
from penstock.spark.jobs.migrate import find_parts, migrate, migrate_part
from penstock.spark.jobs.stats import StatsRequest, count_part
from penstock.spark.jobs.verify import tasks_of, verify_part
from penstock.testing.servers import server_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def lines(path: Path, *seqs: int, end: str = "") -> None:
    path.mkdir(parents=True)
    told = [
        {
            "sequence": seq,
            "subject": "a.b",
            "payload": base64.b64encode(b"payload %d" % seq).decode(),
            "timestamp": "2026-07-20T12:00:00Z",
        }
        for seq in seqs
    ]
    (path / "messages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in told) + end)


def facts(streams: JetStream) -> dict[str, Any]:
    """Return a server's info of the stream ORDERS and of its consumer."""
    info = streams.call("STREAM.INFO.ORDERS")
    consumer = streams.call("CONSUMER.INFO.ORDERS.worker")
    config = {name: info["config"][name] for name in ("name", "subjects", "max_msgs", "retention")}
    state = {name: info["state"][name] for name in ("messages", "first_seq", "last_seq", "bytes")}
    return {
        "config": config,
        "state": state,
        "created": info["created"][:19],
        "ack_floor": consumer["ack_floor"]["stream_seq"],
        "delivered": consumer["delivered"]["stream_seq"],
        "pending": consumer["num_pending"],
        "filter": consumer["config"].get("filter_subject"),
    }


@pytest.fixture(scope="module")
def go_tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the files of a real server that has stopped, and its info of them."""
    folder = tmp_path_factory.mktemp("go")
    with (
        server_process("nats-server", store_dir=folder) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        for name in ("ORDERS", "OTHER"):
            config = {"name": name, "subjects": [f"{name.lower()}.>"], "max_msgs": 1000}
            streams.call(f"STREAM.CREATE.{name}", config)
            for number in range(50):
                streams.publish(b"%b.%d" % (name.lower().encode(), number), b"%d" % number)
        consumer = {
            "durable_name": "worker",
            "ack_policy": "explicit",
            "filter_subject": "orders.>",
        }
        streams.call(
            "CONSUMER.DURABLE.CREATE.ORDERS.worker", {"stream_name": "ORDERS", "config": consumer}
        )
        for each in pull(client, b"ORDERS", b"worker", 10):
            assert each.reply is not None
            client.request(each.reply, b"+ACK")
        streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": 30})
        told = facts(streams)
    return folder, told


def test_a_tree_of_the_real_server_is_served_by_ours(
    spark: SparkSession, go_tree: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    source, told = go_tree
    target = tmp_path / "ours"

    planned = migrate(spark, str(source), str(target), dry_run=True)
    report = migrate(spark, str(source), str(target))
    again = migrate(spark, str(source), str(target))

    assert (planned.counts["streams"], target.exists()) == (2, True)
    assert (report.counts["messages"], report.counts["consumers"]) == (99, 1)
    assert (report.exit_code, report.findings) == (0, [])
    assert (again.parts, again.parts_skipped, again.outputs) == (2, 2, [])
    assert sorted(os.listdir(target / "jetstream" / "$G" / "streams")) == ["ORDERS", "OTHER"]
    with (
        server_process("penstock", store_dir=target) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        assert facts(streams) == told
        assert [each.payload for each in streams.each("OTHER")] == [
            b"%d" % number for number in range(50)
        ]
        (next_one,) = pull(client, b"ORDERS", b"worker", 1)
        assert next_one.payload == b"10"


def test_what_the_real_server_wrote_is_verified_and_counted_where_it_is(
    go_tree: tuple[Path, dict[str, Any]],
) -> None:
    path = go_tree[0] / "jetstream" / "$G" / "streams" / "ORDERS"
    directory = read_settings({"path": str(path)}).directory

    checked = [verify_part(part) for part in tasks_of(directory)]
    (part,) = Input("penstock-blocks", {"path": str(path)}).parts()
    counted = pa.Table.from_batches(count_part(StatsRequest(depth=1), part))

    assert [(each.messages, each.findings) for each in checked] == [(49, [])]
    assert sum(counted.column("messages").to_pylist()) == 49
    assert sum(counted.column("bytes").to_pylist()) == go_tree[1]["state"]["bytes"]
    assert set(counted.column("group").to_pylist()) == {"orders.>"}
    block = next((path / "msgs").glob("*.blk"))
    whole = block.read_bytes()
    block.write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    try:
        damaged = [verify_part(part) for part in tasks_of(directory)]
    finally:
        block.write_bytes(whole)
    assert {each.kind for found in damaged for each in found.findings} >= {"damage"}


def test_json_lines_become_directories_of_blocks(tmp_path: Path) -> None:
    source, target = tmp_path / "old", tmp_path / "new"
    lines(source / "A", 1, 2, 5)
    lines(source / "deeper" / "B", 1, end='{"sequence": 2, "sub')

    parts = list(find_parts(str(source), str(target)))
    done = [migrate_part(part) for part in parts]

    assert [each.messages for each in done] == [3, 1]
    assert done[0].findings == []
    assert [each.kind for each in done[1].findings] == ["problem"]
    assert "torn" in done[1].findings[0].what
    found = [
        each.payload
        for batch in StreamReader(str(target / "A")).batches()
        for each in batch.messages()
    ]
    assert found == [b"payload 1", b"payload 2", b"payload 5"]
    assert sorted(os.listdir(target)) == ["A", "B"]
    assert not migrate_part(parts[0]).is_new


def test_what_an_attempt_left_that_was_killed_does_not_matter(
    go_tree: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    part = next(find_parts(str(go_tree[0]), str(tmp_path)))
    left = Path(f"{part.target}.migrating.tmp")
    (left / "msgs").mkdir(parents=True)
    (left / "msgs" / "0000000001.blk").write_bytes(b"half a block")

    done = migrate_part(part)

    assert (done.messages, done.findings) == (49, [])
    assert sorted(os.listdir(os.path.dirname(part.target))) == ["ORDERS"]


def test_two_streams_for_one_place_and_none_at_all_are_refused(tmp_path: Path) -> None:
    lines(tmp_path / "old" / "a" / "X", 1)
    lines(tmp_path / "old" / "b" / "X", 1)

    with pytest.raises(UsageError, match="would both become"):
        list(find_parts(str(tmp_path / "old"), str(tmp_path / "new")))
    assert list(find_parts(str(tmp_path / "nowhere"), str(tmp_path / "new"))) == []
