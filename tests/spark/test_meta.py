"""What there is, without reading it: the server's word, and that of the directory it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream, pull
from penstock.errors import UsageError
from penstock.format.envelope import StoreKey
from penstock.limits import META_PARTS_MAX
from penstock.spark.meta.source import MetaReader, MetaSource
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.servers import BOTH, PENSTOCK, server_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SUBJECTS = 7
TOLD_BY_SERVERS = {"subject_count", "pending", "waiting"}
TOLD_BY_FOLDERS = {"account", "block_count"}

Row = dict[str, Any]


def reader_of(**options: str) -> MetaReader:
    source = MetaSource(options)
    return source.reader(source.schema())


def load(**options: str) -> list[Row]:
    """Read a table as tasks would, without Spark."""
    reader = reader_of(**options)
    batches = (batch for each in reader.partitions() for batch in reader.read(each))
    return [row for batch in batches for row in batch.to_pylist()]


def fill(client: Client) -> None:
    """Make a stream with some of everything, one that was emptied, and one that is new."""
    streams = JetStream(client)
    for name in ("ORDERS", "EMPTIED", "NEW"):
        subjects = [f"{name.lower()}.>", f"{name.lower()}"]
        streams.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects})
    for number in range(100):
        streams.publish(b"orders.%d" % (number % SUBJECTS), b"%d" % number)
        streams.publish(b"emptied.%d" % number)
    for seq in (1, 2, 50, 70):
        streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": seq})
    streams.call("STREAM.PURGE.EMPTIED")
    wanted: dict[str, Row] = {
        "all": {},
        "some": {"filter_subjects": ["orders.1", "orders.2"]},
        "one": {"filter_subject": "orders.3", "deliver_policy": "new"},
    }
    for name, more in wanted.items():
        config = {"durable_name": name, "ack_policy": "explicit", **more}
        asked = {"stream_name": "ORDERS", "config": config}
        streams.call(f"CONSUMER.DURABLE.CREATE.ORDERS.{name}", asked)
    taken = pull(client, b"ORDERS", b"all", 5)
    for each in taken[:2]:
        client.request(each.reply or b"", b"+ACK")


def without(rows: list[Row], names: set[str]) -> list[Row]:
    kept = [{name: row[name] for name in row if name not in names} for row in rows]
    return sorted(kept, key=lambda row: (row["stream"], str(row.get("consumer"))))


@pytest.mark.parametrize("kind", BOTH)
def test_a_directory_tells_what_its_server_told(kind: str, tmp_path: Path) -> None:
    with (
        server_process(kind, store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        fill(client)
        tables = ("streams", "consumers", "subjects")
        told = {table: load(table=table, servers=server.url) for table in tables}

    by_account = str(tmp_path / "jetstream" / "$G")
    for place in (str(tmp_path), f"{by_account}/streams", f"file://{by_account}"):
        for table, rows in told.items():
            found = load(table=table, path=place)
            left_out = TOLD_BY_SERVERS | TOLD_BY_FOLDERS
            if table == "subjects":
                assert without(found, TOLD_BY_FOLDERS) == without(rows, TOLD_BY_FOLDERS)
            else:
                assert without(found, left_out) == without(rows, left_out)
            assert {row["account"] for row in found} == {"$G"}
    streams = {row["stream"]: row for row in told["streams"]}
    assert (streams["ORDERS"]["messages"], streams["ORDERS"]["deleted"]) == (96, 2)
    assert streams["ORDERS"]["subject_count"] == SUBJECTS
    assert streams["NEW"]["first_timestamp"] is None
    assert {row["consumer"]: row["ack_pending"] for row in told["consumers"]} == {
        "all": 3,
        "some": 0,
        "one": 0,
    }


@pytest.mark.parametrize("kind", BOTH)
def test_blocks_add_up_to_their_stream(kind: str, tmp_path: Path) -> None:
    with (
        server_process(kind, store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        streams.call(
            "STREAM.CREATE.BIG", {"name": "BIG", "subjects": ["big"], "max_bytes": 1_000_000}
        )
        for _ in range(900):
            client.publish(b"big", b"x" * 1000)
        client.send()
        streams.publish(b"big", b"the end")
        streams.call("STREAM.MSG.DELETE.BIG", {"seq": 450})

    (stream,) = load(table="streams", path=str(tmp_path))
    blocks = load(table="blocks", path=str(tmp_path))

    assert len(blocks) == stream["block_count"]
    assert sum(block["messages"] for block in blocks) == stream["messages"] == 900
    assert blocks[0]["first_sequence"] == 1
    assert blocks[-1]["last_sequence"] == 901
    assert not any(block["encrypted"] for block in blocks)


def test_streams_and_subjects_are_chosen(tmp_path: Path) -> None:
    with (
        server_process(PENSTOCK, store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        fill(client)
        for given in ({"servers": server.url}, {"path": str(tmp_path)}):
            names = load(table="streams", stream="ORDERS,NEW", columns="stream", **given)
            assert sorted(row["stream"] for row in names) == ["NEW", "ORDERS"]
            names = load(table="streams", streamPattern="E.*", columns="stream", **given)
            assert names == [{"stream": "EMPTIED"}]
            subjects = load(table="subjects", subject="orders.1,orders.*,none.>", **given)
            assert sorted(row["subject"] for row in subjects) == [f"orders.{n}" for n in range(7)]
            with pytest.raises(UsageError, match="no stream OTHER"):
                load(table="streams", stream="ORDERS,OTHER", **given)


def test_an_encrypted_stream_is_told_of_as_far_as_it_is_not_secret(tmp_path: Path) -> None:
    settings = f'jetstream {{ store_dir: "{tmp_path}/s", key: "secret", cipher: aes }}'
    with (
        server_process(PENSTOCK, settings=settings) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        fill(client)
    (tmp_path / "key").write_text("secret")

    without_key = load(table="streams", path=f"{tmp_path}/s", stream="ORDERS")
    with_key = load(
        table="streams", path=f"{tmp_path}/s", stream="ORDERS", keyFile=f"{tmp_path}/key"
    )
    consumers = load(table="consumers", path=f"{tmp_path}/s", keyFile=f"{tmp_path}/key")

    assert [row["messages"] for row in without_key] == [96]
    assert [row["retention"] for row in without_key] == [None]
    assert [row["retention"] for row in with_key] == ["limits"]
    assert sorted(row["consumer"] for row in consumers) == ["all", "one", "some"]


def test_many_streams_are_few_tasks(tmp_path: Path) -> None:
    for number in range(META_PARTS_MAX + 8):
        with FileStore.open(str(tmp_path / f"S{number}"), StoreConfig(name="S")) as store:
            store.store(b"s", b"", b"")

    partitions = reader_of(table="streams", path=str(tmp_path)).partitions()

    assert len(partitions) == META_PARTS_MAX
    assert len(load(table="streams", path=str(tmp_path))) == META_PARTS_MAX + 8


def test_a_store_with_a_key_needs_none_for_its_blocks(tmp_path: Path) -> None:
    config = StoreConfig(name="S")
    with FileStore.open(str(tmp_path / "S"), config, key=StoreKey(b"secret")) as store:
        store.store(b"s", b"", b"hidden")

    (block,) = load(table="blocks", path=str(tmp_path / "S"))

    assert (block["messages"], block["records"]) == (1, 1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "streams, blocks, consumers, subjects"),
        ({"table": "stream"}, "table"),
        ({"table": "blocks"}, "by directories"),
        ({"table": "streams", "subject": "a"}, "for the table subjects"),
        ({"table": "streams", "streamPattern": "("}, "streamPattern"),
        ({"table": "subjects", "subject": "a..b"}, "a..b"),
        ({"table": "streams", "colums": "a"}, "did you mean columns"),
        ({"table": "streams", "columns": "mesages"}, "did you mean messages"),
        ({"table": "streams", "path": "/nowhere"}, "no such folder"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        load(**options)


def test_a_folder_without_streams_is_told(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)

    with pytest.raises(UsageError, match="no stream is here"):
        load(table="streams", path=str(tmp_path))


@pytest.mark.promise
def test_spark_reads_each_table(spark: SparkSession, tmp_path: Path) -> None:
    with (
        server_process(PENSTOCK, store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        fill(client)
        for table, count in (("streams", 3), ("consumers", 3), ("subjects", SUBJECTS)):
            reading = spark.read.format("penstock-meta").option("table", table)
            rows = reading.option("servers", server.url).load().collect()
            below = reading.load(str(tmp_path)).collect()
            assert (len(rows), len(below)) == (count, count)
        blocks = spark.read.format("penstock-meta").option("table", "blocks").load(str(tmp_path))

        assert blocks.where("sealed is not null").count() == blocks.count() > 0
