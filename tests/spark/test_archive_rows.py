"""Files of an archive: messages are read exactly as written, and damage is never passed on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptStore
from penstock.spark import schema
from penstock.spark.archives import parquet as archive_rows
from penstock.spark.archives.folder import ArchiveFolder, FileEntry
from penstock.spark.archives.parquet import (
    GROUP_BYTES,
    GROUP_ROWS,
    SOURCE_COLUMNS,
    FileTask,
    check_file,
    find_written,
    group_rows_for,
    groups,
    read_exact,
    write_file,
)
from tests.support.archives import Row

ROWS = [
    (
        seq,
        seq * 10**12 + seq,
        b"orders.\xff" if seq % 9 == 0 else b"orders.%d" % (seq % 5),
        b"NATS/1.0\r\nA: %d\r\n\r\n" % seq if seq % 2 else b"",
        bytes([seq % 256]) * (seq % 70),
    )
    for seq in range(3, 400, 2)
]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 5
    kinds = [each.arrow for each in SOURCE_COLUMNS]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema(SOURCE_COLUMNS))


def batches_of(rows: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        yield batch_of(rows[start : start + size])


def rows_in(folder: ArchiveFolder, entry: FileEntry) -> list[Row]:
    return [
        tuple(row.values())
        for batch in read_exact(folder, [entry], rows_max=7)
        for row in batch.to_pylist()
    ]


def written(folder: ArchiveFolder, rows: list[Row] = ROWS, group_rows: int = 50) -> FileEntry:
    task = FileTask("ORDERS", "then", 1, 500, group_rows)
    return write_file(folder, task, batches_of(rows, 30))


@pytest.fixture
def folder(tmp_path: Path) -> ArchiveFolder:
    return ArchiveFolder(str(tmp_path))


def test_messages_are_read_again_to_the_bit(folder: ArchiveFolder) -> None:
    entry = written(folder)

    check_file(folder, entry)
    assert rows_in(folder, entry) == ROWS
    assert (entry.first, entry.last, entry.messages) == (1, 500, len(ROWS))
    assert entry.bytes == sum(len(row[3]) + len(row[4]) for row in ROWS)
    assert (entry.first_ns, entry.last_ns) == (ROWS[0][1], ROWS[-1][1])


def test_a_file_without_messages_is_one_too(folder: ArchiveFolder) -> None:
    entry = written(folder, [])

    check_file(folder, entry)
    assert rows_in(folder, entry) == []
    assert entry.messages == entry.first_ns == entry.last_ns == 0


def test_any_engine_reads_a_file(folder: ArchiveFolder) -> None:
    entry = written(folder)

    table = pq.read_table(folder.full(entry.name))

    assert table.column("sequence").to_pylist() == [row[0] for row in ROWS]
    assert table.column("subject").to_pylist() == [r[2].decode(errors="replace") for r in ROWS]
    assert table.column("data").to_pylist() == [row[4] for row in ROWS]
    nanoseconds = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert nanoseconds == [row[1] // 1000 for row in ROWS]


def test_the_same_messages_make_the_same_file(tmp_path: Path) -> None:
    one, other = (ArchiveFolder(str(tmp_path / name)) for name in ("one", "other"))

    assert written(one) == written(other)


def test_a_group_has_as_many_rows_as_it_may(folder: ArchiveFolder) -> None:
    entry = written(folder, group_rows=50)

    metadata = pq.read_metadata(folder.full(entry.name))
    sizes = [metadata.row_group(each).num_rows for each in range(metadata.num_row_groups)]
    assert sizes == [50, 50, 50, len(ROWS) - 150]


@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 50))
def test_groups_hold_the_same_rows_in_their_order(sizes: list[int], rows: int) -> None:
    given_rows = [batch_of(ROWS[:size]) for size in sizes]

    found = list(groups(iter(given_rows), rows))

    counts = [sum(batch.num_rows for batch in group) for group in found]
    assert all(count == rows for count in counts[:-1])
    assert all(0 < count <= rows for count in counts[-1:])
    flat = [row for group in found for batch in group for row in batch.to_pylist()]
    assert flat == [row for batch in given_rows for row in batch.to_pylist()]


def test_a_group_of_large_messages_is_ended_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_rows, "ARCHIVE_GROUP_BYTES_MAX", 1000)

    found = list(groups(batches_of(ROWS, 10), GROUP_ROWS))

    assert len(found) > 10


def test_groups_of_large_messages_have_fewer_rows() -> None:
    assert group_rows_for(0, 0) == GROUP_ROWS
    assert group_rows_for(1000, 100_000) == GROUP_ROWS
    assert group_rows_for(1000, 1000 * 10**6) == GROUP_BYTES // 10**6
    assert group_rows_for(1, 10**12) == 1


@given(st.data())
@settings(max_examples=60)
def test_damage_anywhere_is_found_by_the_check_and_never_read_as_something_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = ArchiveFolder(str(tmp_path_factory.mktemp("damage")))
    entry = written(folder)
    path = Path(folder.full(entry.name))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)

    with pytest.raises(CorruptStore):
        check_file(folder, entry)
    try:
        found = rows_in(folder, entry)
    except CorruptStore:
        return
    assert found == ROWS


def test_a_file_that_is_cut_off_or_gone_is_damage(folder: ArchiveFolder) -> None:
    entry = written(folder)
    path = Path(folder.full(entry.name))
    whole = path.read_bytes()

    for content in (whole[:-1], whole[: len(whole) // 2], b""):
        path.write_bytes(content)
        with pytest.raises(CorruptStore):
            check_file(folder, entry)
        with pytest.raises(CorruptStore):
            rows_in(folder, entry)
    path.unlink()
    with pytest.raises(CorruptStore):
        check_file(folder, entry)
    with pytest.raises(CorruptStore):
        rows_in(folder, entry)


@pytest.mark.parametrize(
    "wrong",
    [{"rows_hash": "0" * 16}, {"messages": 5}, {"last": 300}, {"first": 100}],
    ids=["hash", "count", "end", "beginning"],
)
def test_a_file_that_is_whole_but_another_is_damage(
    folder: ArchiveFolder, wrong: dict[str, object]
) -> None:
    entry = msgspec.structs.replace(written(folder), **wrong)

    with pytest.raises(CorruptStore):
        check_file(folder, entry)


def test_what_an_earlier_run_left_is_known_by_what_is_in_it(folder: ArchiveFolder) -> None:
    task = FileTask("ORDERS", "then", 1, 500, 50)
    assert find_written(folder, task) is None
    entry = written(folder)

    assert find_written(folder, task) == entry
    assert find_written(folder, msgspec.structs.replace(task, created="now")) is None
    assert find_written(folder, msgspec.structs.replace(task, stream="OTHERS")) is None


def test_half_a_file_is_not_taken_for_what_an_earlier_run_left(folder: ArchiveFolder) -> None:
    path = Path(folder.full(written(folder).name))
    task = FileTask("ORDERS", "then", 1, 500, 50)
    whole = path.read_bytes()

    for content in (whole[:-100], b"", whole[:2000] + bytes(100) + whole[2100:]):
        path.write_bytes(content)
        assert find_written(folder, task) is None
