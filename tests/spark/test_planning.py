"""Plans of block directories: what is read to make them, and what their parts hold."""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sparse_store import make_sparse_store
from penstock.errors import UsageError
from penstock.format.reader import BlockInfo
from penstock.spark.blocks.scan import BlockRange
from penstock.spark.blocks.settings import plan, read_settings, times_as_sequences
from penstock.spark.blocks.source import BlockSource
from penstock.spark.part import StreamPart
from penstock.spark.position import DataLoss
from penstock.spark.schema import BLOCK, DATA, OFFSET, SEQUENCE, STATE, arrow_schema
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.clock import START_NS, FakeClock

MB = 1_000_000
BLOCKS = 200


def planned(path: Path, **options: str) -> list[StreamPart]:
    return plan(read_settings({"path": str(path), **options}))


def blocks_of(part: StreamPart) -> tuple[BlockInfo, ...]:
    assert isinstance(part.source, BlockRange)
    return part.source.blocks


def numbers(parts: list[StreamPart]) -> list[int]:
    return [block.number for part in parts for block in blocks_of(part)]


def test_a_plan_is_made_of_heads_alone(tmp_path: Path) -> None:
    # Records and entries are holes: whatever looks at them finds damage, and planning fails.
    count = make_sparse_store(tmp_path, blocks=BLOCKS, block_bytes=50 * MB)

    parts = planned(tmp_path)

    assert numbers(parts) == list(range(1, BLOCKS + 1))
    assert sum(block.count for part in parts for block in blocks_of(part)) == count
    assert len(parts) == BLOCKS // 5
    assert max(len(pickle.dumps(part)) for part in parts) < 1000


def test_blocks_without_the_subject_are_left_out_by_their_heads(tmp_path: Path) -> None:
    make_sparse_store(
        tmp_path, blocks=BLOCKS, block_bytes=50 * MB, subjects=1000, subjects_per_block=10
    )

    assert numbers(planned(tmp_path, subject="orders.000007")) == [1, 101]
    assert numbers(planned(tmp_path, subject="orders.000025,orders.000990")) == [3, 100, 103, 200]
    assert numbers(planned(tmp_path, subject="none")) == []
    assert len(numbers(planned(tmp_path, subject="orders.*"))) == BLOCKS


def test_what_a_filter_leaves_little_of_is_few_tasks(tmp_path: Path) -> None:
    make_sparse_store(tmp_path, blocks=BLOCKS, block_bytes=50 * MB)

    whole, picked = planned(tmp_path), planned(tmp_path, subject="orders.000007")

    assert numbers(picked) == numbers(whole)
    assert len(whole) == 40
    assert len(picked) == 2


def test_ranges_leave_blocks_out_by_their_heads(tmp_path: Path) -> None:
    count = make_sparse_store(tmp_path, blocks=10, block_bytes=50 * MB)
    each = count // 10

    middle = planned(tmp_path, startingOffsets=str(each + 1), endingOffsets=str(3 * each + 1))

    assert numbers(middle) == [2, 3]
    assert planned(tmp_path, startingTimestamp="2100-01-01") == []


@pytest.mark.parametrize("subject", ["s.1", "s.*", "none", "s.1,s.3"])
def test_a_plan_with_a_filter_leaves_out_nothing_that_is_wanted(
    tmp_path: Path, subject: str
) -> None:
    with FileStore.open(str(tmp_path), StoreConfig(name="S", block_bytes=4096)) as store:
        for number in range(1500):
            store.store(b"s.%d" % (number // 300), b"", b"%d" % number)
    (tmp_path / "000002.idx").unlink()
    indexed = planned(tmp_path, subject=subject)
    for file in tmp_path.glob("*.idx"):
        file.unlink()

    # Without an index every block might hold it.
    unindexed = planned(tmp_path, subject=subject)

    assert set(numbers(indexed)) <= set(numbers(unindexed))
    assert len(numbers(unindexed)) > 10
    assert 2 in numbers(indexed)
    assert len(numbers(indexed)) < len(numbers(unindexed)) or subject == "s.*"


def test_what_a_filter_leaves_of_many_blocks_comes_in_few_batches(tmp_path: Path) -> None:
    with FileStore.open(str(tmp_path), StoreConfig(name="S", block_bytes=4096)) as store:
        for number in range(2000):
            store.store(b"s.%d" % (number % 20), b"", b"%d" % number)
    columns = [SEQUENCE, DATA, BLOCK, OFFSET]

    def read(**options: str) -> list[pa.RecordBatch]:
        return [batch for part in planned(tmp_path, **options) for batch in part.read(columns)]

    whole = pa.Table.from_batches(read())
    few = read(subject="s.7", arrowBatchRows="64")

    is_wanted = pa.array([seq % 20 == 8 for seq in whole["sequence"].to_pylist()])
    assert pa.Table.from_batches(few) == whole.filter(is_wanted)
    assert len(few) == 2 < len(pc.unique(whole["_block"]))


@given(removed=st.sets(st.integers(2, 299), max_size=40))
def test_removed_messages_can_be_read_while_their_blocks_are_there(removed: set[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with FileStore.open(folder, StoreConfig(name="S", block_bytes=4096)) as store:
            for number in range(1, 301):
                store.store(b"s.%d" % (number % 20), b"", b"%d" % number)
            for seq in removed:
                store.remove(seq)
        columns = [SEQUENCE, DATA, STATE]

        def read(**options: str) -> dict[int, tuple[bytes, str]]:
            batches = [
                batch for part in planned(Path(folder), **options) for batch in part.read(columns)
            ]
            rows = pa.Table.from_batches(batches, arrow_schema(columns)).to_pylist()
            return {row["sequence"]: (row["data"], row["_state"]) for row in rows}

        states = {seq: "removed" if seq in removed else "live" for seq in range(1, 301)}
        whole = {seq: (b"%d" % seq, state) for seq, state in states.items()}
        live = {seq: row for seq, row in whole.items() if row[1] == "live"}
        assert read(includeDeleted="true") == whole
        assert read() == live
        assert read(includeDeleted="true", subject="s.7") == {
            seq: row for seq, row in whole.items() if seq % 20 == 7
        }


def test_only_who_wants_removed_messages_is_told_of_states(tmp_path: Path) -> None:
    FileStore.open(str(tmp_path), StoreConfig(name="S")).stop()
    names = [
        BlockSource({"path": str(tmp_path), "includeDeleted": wanted}).schema().names
        for wanted in ("false", "true")
    ]

    assert names[1] == [*names[0], "_state"]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_local_path_may_have_a_scheme(tmp_path: Path, scheme: str) -> None:
    make_sparse_store(tmp_path, blocks=3, block_bytes=MB)

    parts = plan(read_settings({"path": f"{scheme}{tmp_path}"}))

    assert numbers(parts) == [1, 2, 3]


def test_times_say_where_a_directory_begins_and_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    config = StoreConfig(name="S", block_bytes=4096)
    with FileStore.open(str(tmp_path), config, clock=clock) as store:
        for number in range(300):
            store.store(b"s", b"", b"%d" % number)
            clock.advance_ns(1_000_000_000)
        store.remove(101)
    given = {"path": str(tmp_path), "stream": "S"}

    def wanted(**options: str) -> tuple[int, int]:
        settings = read_settings({**given, **options})
        found = times_as_sequences(settings, settings.directory.open()).selection
        return found.first_seq, found.last_seq

    def at(seconds: int) -> str:
        return json.dumps({"S": START_NS // 1_000_000 + seconds * 1000})

    assert wanted(startingOffsetsByTimestamp=at(50), startingOffsets="200")[0] == 51
    # What was removed is not the first.
    assert wanted(startingOffsetsByTimestamp=at(100))[0] == 102
    assert wanted(endingOffsetsByTimestamp=at(50))[1] == 50
    assert wanted(startingOffsetsByTimestamp='{"T": 1}')[0] == 0
    with pytest.raises(UsageError, match="no message from then on"):
        wanted(startingOffsetsByTimestamp=at(500))
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert wanted(startingOffsetsByTimestamp=at(500), **latest)[0] == 301


def test_a_directory_is_one_part_where_subjects_are_kept_together(tmp_path: Path) -> None:
    make_sparse_store(tmp_path, blocks=20, block_bytes=50 * MB)

    [part] = planned(tmp_path, orderedBySubject="true", minPartitions="7")

    assert numbers([part]) == list(range(1, 21))


def test_blocks_that_go_before_they_are_read_fail_the_task_or_are_left_out(tmp_path: Path) -> None:
    config = StoreConfig(name="S", block_bytes=4096)
    with FileStore.open(str(tmp_path), config) as store:
        for number in range(500):
            store.store(b"s", b"", b"%d" % number)
        store.flush()
        strict, lenient = planned(tmp_path), planned(tmp_path, failOnDataLoss="false")
        assert read(strict) == list(range(1, 501))

        store.compact(301)
        store.reclaim(thorough=True)

        with pytest.raises(DataLoss, match="the block is gone"):
            read(strict)
        left = read(lenient)
        assert left[0] <= 301
        assert left == list(range(left[0], 501))


def read(parts: list[StreamPart]) -> list[int]:
    return [
        seq
        for part in parts
        for batch in part.read([SEQUENCE])
        for seq in batch.column(0).to_pylist()
    ]
