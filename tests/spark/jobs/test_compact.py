"""The job `compact`: fewer bytes, the same messages, in place and in copies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import CorruptStore, UsageError
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.layout import block_name
from penstock.format.reader import StreamReader
from penstock.spark.blocks.scan import StreamDirectory
from penstock.spark.jobs.compact import CompactTask, CopyOptions, compact, compact_part
from penstock.spark.jobs.verify import verify
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

COUNT = 2000
NEVER = 2_000_000_000 * 10**9


def make_store(path: Path) -> Path:
    """Make a stream whose messages are removed but for every tenth; one expires in 2033."""
    with FileStore.open(str(path), StoreConfig(name=path.name, block_bytes=16384)) as store:
        for number in range(COUNT):
            expires_ns = NEVER if number == 500 else 0
            store.store(b"orders.%d" % (number % 7), b"", b"x" * 50, expires_ns=expires_ns)
        for seq in range(1, COUNT):
            if seq % 10 != 1:
                store.remove(seq)
    return path


Stored = list[tuple[int, int, bytes, bytes]]


def messages(path: Path, key: StoreKey | None = None) -> Stored:
    reader = StreamReader(str(path), stream="ORDERS", key=key)
    return [
        (each.seq, each.timestamp_ns, each.subject, each.payload)
        for batch in reader.batches()
        for each in batch.messages()
    ]


def part(path: Path, copying: CopyOptions | None = None) -> CompactTask:
    return CompactTask(StreamDirectory(str(path), "ORDERS"), copying)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "ORDERS")


def test_in_place_the_space_of_removed_messages_is_given_back(store: Path) -> None:
    before = messages(store)

    done = compact_part(part(store))
    again = compact_part(part(store))

    assert messages(store) == before
    assert done.messages == len(before) == 201
    assert done.bytes_after * 3 < done.bytes_before
    assert again.bytes_after == again.bytes_before == done.bytes_after


def test_a_store_that_is_open_is_a_finding_and_stays_as_it_is(store: Path) -> None:
    with FileStore.open(str(store), StoreConfig(name="ORDERS")):
        done = compact_part(part(store))

    assert [each.kind for each in done.findings] == ["in use"]
    assert done.bytes_after == done.bytes_before


def test_a_copy_has_the_live_messages_with_their_places_and_expiries(
    store: Path, tmp_path: Path
) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(b"secret\n")
    before = os.listdir(store)
    copying = CopyOptions(
        str(tmp_path / "copies"), Compression.SNAPPY, Cipher.AES_256_GCM, str(key_file)
    )

    done = compact_part(part(store, copying))

    key = StoreKey(b"secret")
    target = tmp_path / "copies" / "ORDERS"
    assert messages(target, key) == messages(store)
    assert done.messages == 201
    assert os.listdir(store) == before
    config = StoreConfig(name="ORDERS", compression=Compression.SNAPPY, cipher=Cipher.AES_256_GCM)
    with FileStore.open(str(target), config, key=key) as copy:
        assert copy.last_seq == COUNT
        assert 0 <= (copy.next_expiry_ns() or 0) - NEVER < 1_000_000_000
    assert os.listdir(tmp_path / "copies") == ["ORDERS"]


def test_damage_makes_no_copy_that_looks_whole(store: Path, tmp_path: Path) -> None:
    file = store / block_name(2)
    data = bytearray(file.read_bytes())
    # Nine of ten messages are removed: so much holds some that are not.
    data[len(data) // 2 : len(data) // 2 + 4000] = bytes(4000)
    file.write_bytes(data)

    with pytest.raises(CorruptStore):
        compact_part(part(store, CopyOptions(str(tmp_path / "copies"))))

    assert os.listdir(tmp_path / "copies") == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_job_compacts_several_directories_and_skips_copies_that_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    paths = [str(make_store(tmp_path / name)) for name in ("A", "B")]
    copying = CopyOptions(str(tmp_path / "copies"))

    planned = compact(spark, paths, dry_run=True)
    copied = compact(spark, paths[:1], copying=copying)
    both = compact(spark, paths, copying=copying)
    in_place = compact(spark, paths)

    assert planned.counts == {"messages": 402, "removed_messages": 2 * COUNT - 402}
    assert (copied.counts["messages"], copied.parts_skipped) == (201, 0)
    assert (both.counts["messages"], both.parts_skipped) == (201, 1)
    assert in_place.counts["bytes_after"] * 3 < in_place.counts["bytes_before"]
    assert verify(spark, [*paths, str(tmp_path / "copies" / "A")]).findings == []
    with pytest.raises(UsageError, match="no such folder"):
        compact(spark, [str(tmp_path / "nowhere")])
