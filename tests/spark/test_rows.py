"""Messages by the batch: a hash that does not see batches, and forms that others can read."""

from __future__ import annotations

import struct
from array import array

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.format.golang.archive import MAGIC, ArchiveParser
from penstock.spark.rows import encode_entries, hash_rows, raw_messages

Row = tuple[int, int, bytes, bytes, bytes]
Texts = tuple["array[int]", bytes]
Columns = tuple["array[int]", "array[int]", Texts, Texts, Texts]

ROWS = st.lists(
    st.tuples(
        st.integers(1, 2**64 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.binary(min_size=1, max_size=40),
        st.binary(max_size=40),
        st.binary(max_size=200),
    ),
    max_size=20,
)


def texts(values: list[bytes]) -> Texts:
    # What lies in front of the first and behind the last is no part of the column.
    offsets = array("i", [3])
    for each in values:
        offsets.append(offsets[-1] + len(each))
    return offsets, b"abc" + b"".join(values) + b"xyz"


def columns(rows: list[Row]) -> Columns:
    return (
        array("Q", [row[0] for row in rows]),
        array("q", [row[1] for row in rows]),
        texts([row[2] for row in rows]),
        texts([row[3] for row in rows]),
        texts([row[4] for row in rows]),
    )


def model(rows: list[Row]) -> int:
    total = 0
    for seq, time_ns, *parts in rows:
        found = xxhash.xxh64_intdigest(struct.pack("<QqIII", seq, time_ns, *map(len, parts)), 0)
        for part in parts:
            found = xxhash.xxh64_intdigest(part, found)
        total += found
    return total % 2**64


@given(ROWS, st.integers(0, 20))
def test_the_hash_is_the_sum_of_the_messages_own_however_they_are_cut(
    rows: list[Row], cut: int
) -> None:
    whole = hash_rows(*columns(rows))

    parts = hash_rows(*columns(rows[:cut])) + hash_rows(*columns(rows[cut:]))

    assert whole == model(rows) == parts % 2**64


@given(ROWS)
def test_entries_of_a_snapshot_are_read_again_as_they_were(rows: list[Row]) -> None:
    found = list(ArchiveParser().feed(MAGIC + encode_entries(*columns(rows))))

    told = [(e.seq, e.timestamp_ns, e.name, e.headers, e.payload) for e in found]
    assert told == rows


@given(ROWS)
def test_raw_messages_are_the_rows(rows: list[Row]) -> None:
    assert raw_messages(*columns(rows)) == [(*row, 0) for row in rows]


@pytest.mark.parametrize(
    "offsets", [[0, 2, 1], [-1, 0, 1], [0, 1, 9], [0, 1]], ids=["fall", "before", "behind", "few"]
)
def test_offsets_that_cannot_be_are_refused(offsets: list[int]) -> None:
    good = (array("i", [0, 1, 2]), b"ab")
    bad = (array("i", offsets), b"ab")
    numbers = array("Q", [1, 2]), array("q", [1, 2])

    for function in (hash_rows, encode_entries, raw_messages):
        for place in range(3):
            three = [bad if place == each else good for each in range(3)]
            with pytest.raises(UsageError):
                function(*numbers, *three)


def test_times_of_another_number_are_refused() -> None:
    good = (array("i", [0, 1]), b"a")

    with pytest.raises(UsageError):
        hash_rows(array("Q", [1]), array("q"), good, good, good)
