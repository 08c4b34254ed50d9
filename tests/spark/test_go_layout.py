"""A directory that the real server wrote reads, row by row, as its own consumer delivers it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream, Pulling
from penstock.format.columns import ColumnBuilder
from penstock.spark.blocks.source import BlockSource
from penstock.testing.servers import REFERENCE, ServerProcess, server_process

pytestmark = [pytest.mark.slow, pytest.mark.oracle, pytest.mark.timeout(300)]

COUNT = 3000

BYTES_MAX = 50_000_000
"""More than there is; with such a limit the server makes blocks of 4 MB, so there are some."""

SECRET = "a secret of the tests"

Told = tuple[int, str, int, bytes, bytes]

STREAMS: dict[str, dict[str, Any]] = {
    "PLAIN": {},
    "PACKED": {"compression": "s2"},
    "NEWEST": {"max_msgs_per_subject": 3},
    "SHORT": {"max_msgs": 700, "compression": "s2"},
}
"""Names of streams with what is special about each."""


def fill(streams: JetStream, name: str, config: dict[str, Any]) -> None:
    """Make a stream of some blocks, with headers, messages removed and a purge."""
    subject = name.lower()
    streams.call(
        f"STREAM.CREATE.{name}",
        {"name": name, "subjects": [f"{subject}.>"], "max_bytes": BYTES_MAX, **config},
    )
    for number in range(COUNT):
        headers = b"NATS/1.0\r\nNumber: %d\r\nNumber: two\r\n\r\n" % number
        streams.client.publish(
            f"{subject}.{number % 97}".encode(),
            b"" if number % 50 == 3 else b"%d " % number * 800,
            headers=headers if number % 3 == 0 else None,
        )
    streams.client.send()
    streams.publish(f"{subject}.end".encode(), b"the end")
    state = streams.call(f"STREAM.INFO.{name}")["state"]
    for seq in range(state["last_seq"] - 500, state["last_seq"], 50):
        _removed(streams, name, seq, no_erase=seq % 100 == 0)
    streams.call(f"STREAM.PURGE.{name}", {"filter": f"{subject}.9"})
    streams.call(f"STREAM.PURGE.{name}", {"seq": state["first_seq"] + 40})


def _removed(streams: JetStream, name: str, seq: int, *, no_erase: bool) -> None:
    if streams.find(name, seq=seq) is not None:
        streams.call(f"STREAM.MSG.DELETE.{name}", {"seq": seq, "no_erase": no_erase})


def delivered(streams: JetStream, name: str) -> list[Told]:
    """Return what a consumer of the server delivers."""
    config = {"ack_policy": "none", "mem_storage": True}
    made = streams.call(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": config})
    pulling = Pulling(streams, name, made["name"], batch=500, bytes_max=1 << 24)
    builder = ColumnBuilder()
    found: list[Told] = []
    is_end = False
    while not is_end:
        is_end = pulling.collect(builder, 2**62, 10_000, 1 << 24)
        found += [
            (each.seq, each.subject.decode(), each.timestamp_ns, each.headers, each.payload)
            for each in builder.take(0).messages()
        ]
    pulling.end()
    return found


def written_by(server: ServerProcess) -> dict[str, list[Told]]:
    with Client.connect(server.url, timeout_s=60) as client:
        streams = JetStream(client)
        for name, config in STREAMS.items():
            fill(streams, name, config)
        return {name: delivered(streams, name) for name in STREAMS}


def folder_of(store: Path, name: str) -> str:
    return str(store / "jetstream" / "$G" / "streams" / name)


def told(frame: DataFrame) -> list[Told]:
    rows = frame.select("sequence", "subject", "time_ns", "headers_raw", "data").collect()
    return sorted((row[0], row[1], row[2], bytes(row[3]), bytes(row[4])) for row in rows)


def read(path: str, **options: str) -> list[Told]:
    """Read a table as tasks would, without Spark."""
    columns = "sequence,subject,time_ns,headers_raw,data"
    source = BlockSource({"path": path, "columns": columns, **options})
    reader = source.reader(source.schema())
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Told]]]:
    """Return a store that the real server wrote and closed, and what it delivered of it."""
    store = tmp_path_factory.mktemp("go")
    with server_process(REFERENCE, store_dir=store) as server:
        return store, written_by(server)


@pytest.mark.promise
def test_spark_reads_what_the_server_delivered(
    spark: SparkSession, written: tuple[Path, dict[str, list[Told]]]
) -> None:
    store, expected = written

    for name in STREAMS:
        reading = spark.read.format("penstock-blocks").option("includeRawHeaders", "true")
        frame = reading.option("minPartitions", "3").load(folder_of(store, name))
        assert told(frame) == expected[name], name
        assert frame.rdd.getNumPartitions() > 1 or len(expected[name]) < COUNT / 2, name
        assert {row.stream for row in frame.select("stream").distinct().collect()} == {name}


@pytest.mark.parametrize("name", STREAMS)
def test_options_choose_messages_of_gos_layout(
    name: str, written: tuple[Path, dict[str, list[Told]]]
) -> None:
    store, expected = written
    path = folder_of(store, name)
    rows = expected[name]
    middle = rows[len(rows) // 2]
    subject = f"{name.lower()}.7"

    assert read(path) == rows
    assert read(f"file://{path}") == rows
    assert read(path, subject=subject) == [row for row in rows if row[1] == subject]
    first = str(middle[0])
    assert read(path, startingOffsets=first) == [row for row in rows if row[0] >= middle[0]]
    moment_ms = middle[2] // 1_000_000 + 1
    assert read(path, startingTimestamp=str(moment_ms)) == [
        row for row in rows if row[2] >= moment_ms * 1_000_000
    ]
    assert read(path, endingTimestamp=str(moment_ms)) == [
        row for row in rows if row[2] < moment_ms * 1_000_000
    ]


def test_a_server_that_was_killed_leaves_a_directory_that_reads_alike(tmp_path: Path) -> None:
    with server_process(REFERENCE, store_dir=tmp_path) as server:
        expected = written_by(server)
        server.signal(signal.SIGKILL)
        server.wait()

    for name in STREAMS:
        assert read(folder_of(tmp_path, name)) == expected[name], name


@pytest.mark.parametrize("cipher", ["aes", "chachapoly"])
def test_an_encrypted_directory_is_read_with_its_key(cipher: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(SECRET)
    store = tmp_path / "store"
    settings = f'jetstream {{ store_dir: "{store}", key: "{SECRET}", cipher: {cipher} }}'
    with server_process(REFERENCE, settings=settings) as server:
        expected = written_by(server)

    for name in STREAMS:
        path = folder_of(store, name)
        assert read(path, keyFile=str(key_file)) == expected[name], name
