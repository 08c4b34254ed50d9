"""Columns of headers as they are sent, compared with a slow, obviously right version."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError, UsageError
from penstock.spark.headers import MapColumn, header_blocks
from penstock.spark.schema import HEADERS
from penstock.spark.sinks.settings import RowShape, column_bytes, map_column

names = st.text(st.characters(codec="utf-8", exclude_characters=":\r\n"), min_size=1, max_size=5)
values = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=5)
maps = st.none() | st.lists(st.tuples(names, st.none() | st.lists(values, max_size=3)), max_size=3)


def slow_block(
    headers: list[tuple[str, list[str] | None]] | None, message_id: str | None, lines: str
) -> bytes:
    text = "" if message_id is None else f"Nats-Msg-Id: {message_id}\r\n"
    text += lines
    for name, each in headers or ():
        text += "".join(f"{name}: {value}\r\n" for value in each or ())
    return f"NATS/1.0\r\n{text}\r\n".encode() if text else b""


def split(offsets: memoryview, data: memoryview) -> list[bytes]:
    places = offsets.tolist()
    return [bytes(data[low:high]) for low, high in itertools.pairwise(places)]


@given(st.lists(maps, max_size=12), st.integers(0, 11), st.booleans(), st.booleans())
def test_blocks_are_those_of_the_slow_version(
    columns: list[list[tuple[str, list[str] | None]] | None],
    cut: int,
    has_ids: bool,
    has_origin: bool,
) -> None:
    # A slice of a longer column begins anywhere in its buffers.
    column = pa.array(columns, HEADERS)[min(cut, len(columns)) :]
    columns = columns[min(cut, len(columns)) :]
    rows = len(columns)
    numbers = pa.array(range(5, 5 + rows), pa.int64())
    batch = pa.record_batch(
        {
            "headers": column,
            "subject": pa.array(["s"] * rows, pa.string()),
            "data": pa.array(["x"] * rows, pa.string()),
            "stream": pa.array(["S"] * rows, pa.string()),
            "sequence": numbers,
        }
    )
    shape = RowShape("data", "", True, "sequence" if has_ids else "", has_origin)

    made = shape._header_blocks(batch, None, 0)

    assert made is not None
    assert split(*made) == [
        slow_block(
            each,
            str(number) if has_ids else None,
            f"Nats-Orig-Stream: S\r\nNats-Orig-Sequence: {number}\r\n" if has_origin else "",
        )
        for number, each in enumerate(columns, 5)
    ]


def test_ids_are_numbers_behind_a_start() -> None:
    offsets, blocks = header_blocks(2, id_start=b"q:7:", first_row=99)

    assert split(memoryview(offsets), memoryview(blocks)) == [
        b"NATS/1.0\r\nNats-Msg-Id: q:7:99\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: q:7:100\r\n\r\n",
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("", "x"), ("a:b", "x"), ("a", "x\r\nB: y"), ("a\n", "x"), ("a", "\r")]
)
def test_what_would_be_another_header_is_refused(name: str, value: str) -> None:
    column = pa.array([[(name, [value])]], HEADERS)

    with pytest.raises(UsageError, match="no header"):
        header_blocks(1, map_column(column))


def test_an_id_that_would_be_two_lines_is_refused() -> None:
    ids = column_bytes(pa.array(["a\r\nB: c"]), "msg_id")

    with pytest.raises(UsageError, match="no header"):
        header_blocks(1, None, ids)
    with pytest.raises(UsageError, match="no message id"):
        header_blocks(1, id_start=b"a\n")


def test_a_null_among_values_is_refused() -> None:
    with pytest.raises(UsageError, match="null among the values"):
        map_column(pa.array([[("a", [None])]], HEADERS))


def test_buffers_that_do_not_fit_are_refused() -> None:
    zero, one = memoryview(bytes(4)).cast("i"), pa.array([b"x"], pa.binary())
    offsets = column_bytes(one, "x")[0]

    with pytest.raises(FormatError):
        MapColumn(b"", offsets, zero, b"", b"", zero, zero, b"")
    with pytest.raises(FormatError):
        header_blocks(3, None, column_bytes(one, "x"))
