"""Damaged blocks under each policy: what a scan yields, reports and keeps."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import CorruptStore, UsageError
from penstock.format.block import HEADER_BYTES
from penstock.format.envelope import Compression
from penstock.spark.blocks.source import BlockReader, BlockSource
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.servers import REFERENCE, server_process

COUNT = 600
VICTIM = 123
FLIPPED = 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a stream's directory of several blocks."""
    path = tmp_path / "ORDERS"
    with FileStore.open(str(path), StoreConfig(name="ORDERS", block_bytes=8192)) as opened:
        for number in range(COUNT):
            opened.store(b"orders.%d" % (number % 5), b"", b"payload %d" % number)
    return path


def reader_of(path: Path, **options: str) -> BlockReader:
    source = BlockSource({"path": str(path), **options})
    return source.reader(source.schema())


def rows_of(path: Path, **options: str) -> list[dict[str, Any]]:
    """Read a table as tasks would, without Spark."""
    reader = reader_of(path, **options)
    batches = (batch for each in reader.partitions() for batch in reader.read(each))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["sequence"]))


def damage(store: Path, sequence: int = VICTIM) -> dict[str, Any]:
    """Flip bytes in the middle of a message; return its facts before that."""
    rows = rows_of(store, onCorruptRecord="skip")
    (victim,) = (row for row in rows if row["sequence"] == sequence)
    with open(store / f"{victim['_block']:06d}.blk", "r+b") as file:
        file.seek(victim["_offset"] + 30)
        bytes_there = file.read(FLIPPED)
        file.seek(victim["_offset"] + 30)
        file.write(bytes(each ^ 0xFF for each in bytes_there))
    return victim


def test_fail_tells_block_offset_and_sequence(store: Path) -> None:
    victim = damage(store)

    with pytest.raises(CorruptStore) as failed:
        rows_of(store)

    assert failed.value.offset == victim["_offset"]
    assert f"block {victim['_block']}, offset {victim['_offset']}" in failed.value.reason
    assert f"sequence {VICTIM}" in failed.value.reason


def test_skip_yields_all_neighbours_and_nothing_else(store: Path) -> None:
    whole = rows_of(store)
    damage(store)
    damage(store, sequence=COUNT)

    assert rows_of(store, onCorruptRecord="skip") == [
        row for row in whole if row["sequence"] not in (VICTIM, COUNT)
    ]


def test_quarantine_keeps_the_bytes_and_a_report(store: Path, tmp_path: Path) -> None:
    whole = rows_of(store)
    victim = damage(store)
    kept = tmp_path / "kept"

    found = rows_of(store, onCorruptRecord="quarantine", quarantinePath=str(kept))

    assert found == [row for row in whole if row["sequence"] != VICTIM]
    contents, report = sorted((kept / "ORDERS").iterdir())
    told = json.loads(report.read_bytes())
    block = (store / f"{victim['_block']:06d}.blk").read_bytes()
    assert contents.read_bytes() == block[told["offset"] : told["offset"] + told["length"]]
    assert told | {"reason": "", "length": 0, "kept_bytes": 0} == {
        "stream": "ORDERS",
        "path": str(store),
        "file": f"{victim['_block']:06d}.blk",
        "offset": victim["_offset"],
        "length": 0,
        "reason": "",
        "first_sequence": VICTIM,
        "last_sequence": VICTIM,
        "kept": f"ORDERS/{contents.name}",
        "kept_from": victim["_offset"],
        "kept_bytes": 0,
    }
    assert told["reason"]
    assert told["length"] == told["kept_bytes"] == len(contents.read_bytes())


def test_damage_is_kept_once_however_often_it_is_met(store: Path, tmp_path: Path) -> None:
    damage(store)
    damage(store, sequence=VICTIM + 300)
    kept = tmp_path / "kept"
    given = {"onCorruptRecord": "quarantine", "quarantinePath": str(kept)}

    # As when a task is run again, or twice at a time.
    with ThreadPoolExecutor(4) as threads:
        every = list(threads.map(lambda _: rows_of(store, **given), range(8)))

    assert all(rows == every[0] for rows in every)
    assert sorted(path.suffix for path in (kept / "ORDERS").iterdir()) == [
        ".bytes", ".bytes", ".json", ".json",
    ]  # fmt: skip


def test_a_damaged_header_is_kept_and_costs_no_message(store: Path, tmp_path: Path) -> None:
    whole = rows_of(store)
    first = store / "000001.blk"
    first.write_bytes(b"\0" * 64 + first.read_bytes()[64:])
    first.with_suffix(".idx").unlink()
    kept = tmp_path / "kept"

    found = rows_of(store, onCorruptRecord="quarantine", quarantinePath=str(kept))

    assert found == whole
    (contents,) = (kept / "ORDERS").glob("*.bytes")
    assert contents.read_bytes() == first.read_bytes()[:HEADER_BYTES]
    with pytest.raises(CorruptStore, match="block 1"):
        rows_of(store)


def test_a_block_that_cannot_be_read_is_kept_whole(store: Path, tmp_path: Path) -> None:
    whole = rows_of(store)
    first = store / "000001.blk"
    lost = {row["sequence"] for row in whole if row["_block"] == 1}
    first.write_bytes(bytes(first.stat().st_size))
    first.with_suffix(".idx").unlink()
    kept = tmp_path / "kept"

    found = rows_of(store, onCorruptRecord="quarantine", quarantinePath=str(kept))

    assert found == [row for row in whole if row["sequence"] not in lost]
    (contents,) = (kept / "ORDERS").glob("*.bytes")
    assert contents.read_bytes() == first.read_bytes()
    with pytest.raises(CorruptStore, match="block 1"):
        rows_of(store)


@pytest.mark.parametrize(
    "options",
    [
        {"onCorruptRecord": "quarantine"},
        {"quarantinePath": "/tmp"},
        {"onCorruptRecord": "skip", "quarantinePath": "/tmp"},
    ],
)
def test_a_quarantine_needs_its_place_and_the_other_way_round(
    store: Path, options: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match="go together"):
        reader_of(store, **options)


def test_a_policy_that_is_none_is_told(store: Path) -> None:
    with pytest.raises(UsageError, match="onCorruptRecord"):
        reader_of(store, onCorruptRecord="ignore")


def test_compressed_records_are_set_aside_like_others(tmp_path: Path) -> None:
    path = tmp_path / "PACKED"
    config = StoreConfig(name="PACKED", compression=Compression.SNAPPY)
    with FileStore.open(str(path), config) as opened:
        for number in range(50):
            opened.store(b"packed", b"", b"%d " % number * 100)
    damage(path, sequence=7)

    found = rows_of(path, onCorruptRecord="quarantine", quarantinePath=f"file://{tmp_path}/kept")

    assert [row["sequence"] for row in found] == [n for n in range(1, 51) if n != 7]
    assert len(list((tmp_path / "kept" / "PACKED").iterdir())) == 2


def test_damage_in_a_directory_of_gos_server_is_treated_alike(tmp_path: Path) -> None:
    with (
        server_process(REFERENCE, store_dir=tmp_path / "go") as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        streams.call("STREAM.CREATE.GO", {"name": "GO", "subjects": ["go.>"]})
        for number in range(20):
            streams.publish(b"go.%d" % number, b"the payload %d" % number)
    path = tmp_path / "go" / "jetstream" / "$G" / "streams" / "GO"
    whole = rows_of(path)
    block = path / "msgs" / "1.blk"
    data = block.read_bytes()
    block.write_bytes(data.replace(b"the payload 9", b"the payload X"))
    kept = tmp_path / "kept"

    with pytest.raises(CorruptStore, match="sequence 10"):
        rows_of(path)
    found = rows_of(path, onCorruptRecord="quarantine", quarantinePath=str(kept))

    assert found == [row for row in whole if row["sequence"] != 10]
    (contents,) = (kept / "GO").glob("*.bytes")
    assert contents.read_bytes() == block.read_bytes()


@pytest.mark.promise
def test_spark_fails_skips_and_sets_aside(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    victim = damage(store)
    reading = spark.read.format("penstock-blocks")

    with pytest.raises(PySparkException) as failed:
        reading.load(str(store)).count()
    kept = f"{tmp_path}/kept"
    aside = reading.options(onCorruptRecord="quarantine", quarantinePath=kept, minPartitions="3")

    assert f"offset {victim['_offset']}" in str(failed.value)
    assert aside.load(str(store)).count() == COUNT - 1
    assert aside.load(str(store)).count() == COUNT - 1
    assert len(list(Path(kept, "ORDERS").iterdir())) == 2
