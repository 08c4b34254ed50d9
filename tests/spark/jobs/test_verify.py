"""The job `verify`: it finds what is wrong in a directory, with its place, and nothing else."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import UsageError, WrongKey
from penstock.format.envelope import Cipher, StoreKey
from penstock.format.layout import block_name, index_name
from penstock.format.reader import StreamReader
from penstock.spark.blocks.scan import StreamDirectory
from penstock.spark.blocks.settings import read_settings
from penstock.spark.jobs import verify as job
from penstock.spark.jobs.verify import (
    Verified,
    check_is_stream,
    tasks_of,
    verify,
    verify_layout,
    verify_part,
)
from penstock.spark.options import Size
from penstock.spark.part import Splitting
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from tests.support.archives import archive_here, directory

COUNT = 3000


def make_store(path: Path, **config: object) -> None:
    key = StoreKey(b"secret") if config.get("cipher") else None
    settings = StoreConfig(name="ORDERS", block_bytes=16384, **config)  # type: ignore[arg-type]
    with FileStore.open(str(path), settings, key=key) as store:
        for number in range(COUNT):
            store.store(b"orders.%d" % (number % 50), b"", b"payload %d" % number)
        for seq in range(8, COUNT, 100):
            store.remove(seq)


def verified(path: Path) -> list[Verified]:
    directory = read_settings({"path": str(path), "stream": "ORDERS"}).directory
    return [verify_layout(directory), *(verify_part(task) for task in tasks_of(directory))]


def kinds(found: list[Verified]) -> list[str]:
    return [finding.kind for each in found for finding in each.findings]


def blocks(path: Path) -> list[int]:
    return [block.number for block in StreamReader(str(path)).blocks]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small store be several parts."""
    splitting = Splitting(max_bytes_per_partition=Size(40_000))
    monkeypatch.setattr(job, "Splitting", lambda: splitting)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "ORDERS"
    make_store(path)
    return path


def test_a_sound_store_has_no_findings_and_every_byte_is_read(store: Path) -> None:
    found = verified(store)

    assert len(found) > 3
    assert kinds(found) == []
    assert sum(each.messages for each in found) == COUNT
    assert sum(each.blocks for each in found) == len(blocks(store))
    assert sum(each.bytes for each in found) == sum(
        (store / block_name(number)).stat().st_size for number in blocks(store)
    )


def test_a_flipped_bit_is_found_with_its_block_offset_and_sequence(store: Path) -> None:
    number = blocks(store)[2]
    index = StreamReader(str(store)).load_index(number)
    seq, offset, length, *_ = index.entry(5)
    file = store / block_name(number)
    data = bytearray(file.read_bytes())
    data[offset + length // 2] ^= 1
    file.write_bytes(data)

    findings = [each for found in verified(store) for each in found.findings]

    assert [each.kind for each in findings] == ["damage"]
    assert f"block {number}, offset {offset}, {length} bytes" in findings[0].what
    assert f"(sequence {seq})" in findings[0].what


def test_a_block_that_is_gone_is_found_by_its_index_and_by_the_checkpoint(store: Path) -> None:
    number = blocks(store)[1]
    (store / block_name(number)).unlink()

    found = verified(store)

    assert sorted(kinds(found)) == ["missing", "order", "orphan"]


def test_a_block_that_is_gone_with_its_index_is_found(store: Path) -> None:
    number = blocks(store)[1]
    (store / block_name(number)).unlink()
    (store / index_name(number)).unlink()

    assert "missing" in kinds(verified(store))


def test_an_index_that_tells_something_else_than_its_block_is_found(store: Path) -> None:
    first, second = blocks(store)[1:3]
    os.replace(store / index_name(first), store / "kept")
    file = store / index_name(second)
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(data)

    found = verified(store)

    assert kinds(found) == ["index"]
    assert sum(each.to_mend for each in found) == 1


def test_a_damaged_checkpoint_is_found(store: Path) -> None:
    file = store / "stream.state"
    file.write_bytes(file.read_bytes()[:-1] + b"x")

    assert kinds(verified(store)) == ["checkpoint"]


def test_a_folder_without_a_stream_is_refused(tmp_path: Path, store: Path) -> None:
    def directory(path: Path) -> StreamDirectory:
        return read_settings({"path": str(path)}).directory

    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "messages.jsonl").write_text("")
    with FileStore.open(str(tmp_path / "empty")):
        pass

    check_is_stream(directory(store))
    check_is_stream(directory(tmp_path / "empty"))
    with pytest.raises(UsageError, match="no stream here"):
        check_is_stream(directory(tmp_path))
    with pytest.raises(UsageError, match="migrate it"):
        check_is_stream(directory(tmp_path / "old"))


def test_every_block_belongs_to_one_part(store: Path) -> None:
    parts = tasks_of(read_settings({"path": str(store)}).directory)

    bounds = [(part.first_block, part.last_block) for part in parts]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == 2**32 - 1
    assert all(last + 1 == first for (_, last), (first, _) in itertools.pairwise(bounds))


def test_what_is_too_much_to_tell_is_counted() -> None:
    found = Verified()
    for number in range(1005):
        found.find("damage", "here", str(number))

    assert (len(found.findings), found.findings_left_out) == (1000, 5)


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_job_reads_several_directories_in_tasks(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "A")
    make_store(tmp_path / "ORDERS", cipher=Cipher.AES_256_GCM)
    key_file = tmp_path / "key"
    key_file.write_bytes(b"secret\n")
    both = [str(tmp_path / "A"), str(tmp_path / "ORDERS")]

    report = verify(spark, both, key_file=str(key_file), stream="ORDERS")
    planned = verify(spark, both, key_file=str(key_file), dry_run=True)

    assert (report.exit_code, report.findings) == (0, [])
    assert (report.counts["messages"], report.counts["directories"]) == (2 * COUNT, 2)
    assert planned.counts["bytes"] == report.counts["bytes"]
    assert planned.dry_run
    with pytest.raises(WrongKey):
        verify(spark, both[1:], stream="ORDERS")
    with pytest.raises(UsageError, match="no such folder"):
        verify(spark, [str(tmp_path / "nowhere")])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_directory_is_held_against_its_archive(spark: SparkSession, tmp_path: Path) -> None:
    path, archive = tmp_path / "ORDERS", tmp_path / "archive"
    make_store(path)
    archive_here(directory(path, maxRecordsPerPartition="500"), archive)

    same = verify(spark, [str(path)], archive=str(archive))
    with FileStore.open(str(path), StoreConfig(name="ORDERS", block_bytes=16384)) as store:
        store.remove(1101)
        store.compact(701)
    changed = verify(spark, [str(path)], archive=str(archive))

    assert (same.findings, same.counts["archive_files_passed"]) == ([], 0)
    assert [each.kind for each in changed.findings] == ["archive"]
    assert "archived were" in changed.findings[0].what
    passed = changed.counts["archive_files_passed"]
    assert 0 < passed < same.counts["archive_files"]
    assert changed.counts["archive_files"] == same.counts["archive_files"] - passed
    make_store(tmp_path / "other")
    with pytest.raises(UsageError, match="is of the stream"):
        verify(spark, [str(tmp_path / "other")], archive=str(archive))
