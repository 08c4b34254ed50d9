"""Counting in compiled code, held against counting in Python."""

from __future__ import annotations

from array import array
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.format.reader import StreamReader
from penstock.spark.tally import Cells, Tally
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter

HOUR_NS = 3_600_000_000_000

Row = tuple[bytes, int, int, int]
Counted = dict[tuple[bytes, int], list[int]]


def group_of(subject: bytes, depth: int) -> bytes:
    tokens = subject.split(b".")
    if depth < 0 or len(tokens) <= depth:
        return subject
    return b".".join([*tokens[:depth], b">"])


def counted_plainly(rows: list[Row], depth: int, *, by_hour: bool) -> Counted:
    found: Counted = defaultdict(lambda: [0, 0, 2**63, 0, 2**63, -(2**63)])
    for subject, seq, time_ns, size in rows:
        hour_ns = time_ns // HOUR_NS * HOUR_NS if by_hour else 0
        cell = found[group_of(subject, depth), hour_ns]
        cell[:] = [
            cell[0] + 1,
            cell[1] + size,
            min(cell[2], seq),
            max(cell[3], seq),
            min(cell[4], time_ns),
            max(cell[5], time_ns),
        ]
    return found


def numbers(column: bytes) -> list[int]:
    return list(memoryview(column).cast("q"))


def counted(cells: Cells) -> Counted:
    """Return cells without their sizes' classes."""
    ends = memoryview(cells.group_offsets).cast("i")
    names = [cells.groups[ends[place] : ends[place + 1]] for place in range(cells.count)]
    found: Counted = {}
    columns = zip(
        *map(numbers, (
            cells.hours, cells.messages, cells.sizes, cells.first_seqs, cells.last_seqs,
            cells.first_times, cells.last_times,
        )),
        strict=True,
    )  # fmt: skip
    for name, (hour, *cell) in zip(names, columns, strict=True):
        known = found.setdefault((name, hour), [0, 0, 2**63, 0, 2**63, -(2**63)])
        known[0] += cell[0]
        known[1] += cell[1]
        known[2] = min(known[2], cell[2])
        known[3] = max(known[3], cell[3])
        known[4] = min(known[4], cell[4])
        known[5] = max(known[5], cell[5])
    return found


def add(tally: Tally, rows: list[Row]) -> None:
    ends = array("i", [0])
    for subject, *_ in rows:
        ends.append(ends[-1] + len(subject))
    sequences, times, sizes = array("q"), array("q"), array("q")
    for _, seq, time_ns, size in rows:
        sequences.append(seq)
        times.append(time_ns)
        sizes.append(size)
    tally.add_rows(ends, b"".join(row[0] for row in rows), sequences, times, sizes)


SUBJECTS = st.lists(st.sampled_from([b"a", b"bb", b"orders", b"eu"]), min_size=1, max_size=4).map(
    b".".join
)
ROWS = st.lists(
    st.tuples(
        SUBJECTS,
        st.integers(1, 2**62),
        st.integers(-(2**62), 2**62),
        st.integers(0, 70_000_000),
    ),
    max_size=80,
)


@given(rows=ROWS, depth=st.integers(-1, 4), by_hour=st.booleans())
@settings(deadline=None)
def test_rows_are_counted_as_python_counts_them(rows: list[Row], depth: int, by_hour: bool) -> None:
    tally = Tally(depth=depth, by_hour=by_hour)
    add(tally, rows)

    cells = tally.take()

    assert counted(cells) == counted_plainly(rows, depth, by_hour=by_hour)
    assert tally.cell_count == 0


def test_many_cells_keep_apart() -> None:
    rows = [(b"s.%d" % number, number + 1, 0, number % 7) for number in range(50_000)]
    tally = Tally()
    add(tally, rows)
    add(tally, rows)

    found = counted(tally.take())

    assert len(found) == 50_000
    assert {cell[0] for cell in found.values()} == {2}


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 1000, 4096, 1_000_003, 2**31])
def test_a_class_of_sizes_is_right_to_two_parts_in_a_hundred(size: int) -> None:
    tally = Tally()
    add(tally, [(b"a", 1, 0, size)])

    (shown,) = numbers(tally.take().size_classes)

    assert abs(shown - size) <= size * 0.02


def test_an_index_counts_what_is_live_and_wanted(tmp_path: Path) -> None:
    with FileStore.open(str(tmp_path), StoreConfig(block_bytes=8192)) as store:
        for number in range(500):
            store.store(b"orders.%d" % (number % 5), b"", b"x" * (number % 90))
        for seq in range(10, 100):
            store.remove(seq)
    reader = StreamReader(str(tmp_path))
    rows = [
        (each.subject, each.seq, each.timestamp_ns, 30 + len(each.subject) + len(each.payload))
        for batch in reader.batches()
        for each in batch.messages()
        if each.subject != b"orders.3" and 5 <= each.seq <= 450
    ]
    wanted = SubjectFilter([b"orders.0", b"orders.1", b"orders.2", b"orders.4"])
    tally = Tally(subjects=wanted)

    for block in reader.blocks:
        index = reader.load_index(block.number)
        tally.add_index(index, reader.removed, first_seq=5, last_seq=450)

    assert counted(tally.take()) == counted_plainly(rows, -1, by_hour=False)


def test_columns_that_do_not_fit_are_refused() -> None:
    tally = Tally()
    ends, one = array("i", [0, 5]), array("q", [1])

    with pytest.raises(ValueError, match="beyond"):
        tally.add_rows(ends, b"abc", one, one, one)
    with pytest.raises(ValueError, match="lengths"):
        tally.add_rows(array("i", [0]), b"abc", one, one, one)
