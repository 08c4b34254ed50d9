"""Varints have one form each, and reads stay within the buffer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.varint import put_uvarint, read_uvarint, read_uvarints

numbers = st.integers(0, 2**64 - 1) | st.integers(0, 300)


@given(st.lists(numbers, max_size=20))
def test_numbers_survive_their_encoding(values: list[int]) -> None:
    out = bytearray(b"head")
    for value in values:
        put_uvarint(out, value)

    assert read_uvarints(bytes(out), 4) == values


@given(st.binary(max_size=24))
def test_whatever_can_be_read_is_exactly_what_would_be_written(data: bytes) -> None:
    try:
        values = read_uvarints(data, 0)
    except FormatError:
        return

    out = bytearray()
    for value in values:
        put_uvarint(out, value)
    assert bytes(out) == data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x80", id="no last byte"),
        pytest.param(b"\x80\x00", id="longer than it need be"),
        pytest.param(b"\xff" * 9 + b"\x02", id="beyond 64 bits"),
        pytest.param(b"\xff" * 10 + b"\x01", id="eleven bytes"),
    ],
)
def test_anything_else_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read_uvarint(b"\x01" + data, 1)

    assert caught.value.offset == 1
