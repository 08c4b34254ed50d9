"""Header blocks as Arrow maps, against a simple model."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.format.columns import ColumnBuilder
from penstock.spark import schema
from penstock.spark.arrow import Converter
from penstock.spark.headers import HeaderMapBuilder

NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=3)
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=5)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=60)


def block_of(headers: list[tuple[str, str]]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def read(blocks: list[bytes]) -> list[dict[str, list[str]] | None]:
    builder = ColumnBuilder()
    for place, block in enumerate(blocks):
        builder.append(place + 1, 0, 0, b"s", block, b"")
    batch = Converter([schema.HEADER_MAP], "s").convert(builder.take(1))
    batch.validate(full=True)
    return [None if row is None else dict(row) for row in batch.column(0).to_pylist()]


@given(st.lists(st.none() | HEADERS, min_size=1, max_size=12))
def test_names_are_keys_with_all_their_values_in_order(
    messages: list[list[tuple[str, str]] | None],
) -> None:
    expected: list[dict[str, list[str]] | None] = []
    for headers in messages:
        grouped: dict[str, list[str]] = {}
        for name, value in headers or []:
            grouped.setdefault(name, []).append(value)
        expected.append(None if headers is None else grouped)

    found = read([b"" if headers is None else block_of(headers) for headers in messages])

    assert found == expected
    assert [None if row is None else list(row) for row in found] == [
        None if row is None else list(row) for row in expected
    ]


def test_what_is_no_header_is_passed_over() -> None:
    block = b"NATS/1.0 503 No\r\nno colon\r\n: nameless\r\nA:  spaced \t\r\nB:\r\nC: a: b"

    assert read([block]) == [{"A": ["spaced"], "B": [""], "C": ["a: b"]}]


def test_what_is_no_text_is_marked() -> None:
    assert read([b"NATS/1.0\r\nA: \xff\r\n\r\n"]) == [{"A": ["\ufffd"]}]


def test_offsets_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError):
        HeaderMapBuilder().build(struct.pack("<2i", 0, 5), b"abc", 1)
    with pytest.raises(UsageError):
        HeaderMapBuilder().build(struct.pack("<i", 0), b"abc", 1)
