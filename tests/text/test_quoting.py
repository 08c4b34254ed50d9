"""Quotations of what a client sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.text.quoting import quoted_bytes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"foo.*", '"foo.*"'),
        (b'a"b', '"a\\"b"'),
        (b"a\\b", '"a\\\\b"'),
        (b"\x00\x01\x7f", '"\\x00\\x01\\x7f"'),
        (b"\a\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'),
        (b"\xff\xc3", '"\\xff\\xc3"'),
        ("é😀".encode(), '"é😀"'),
        ("\u200b\U000e0001".encode(), '"\\u200b\\U000e0001"'),
    ],
)
def test_texts_are_quoted_as_the_reference_does(text: bytes, shown: str) -> None:
    assert quoted_bytes(text) == shown


@given(st.binary(max_size=50))
def test_a_quotation_never_ends_a_line_and_can_be_encoded(text: bytes) -> None:
    shown = quoted_bytes(text)

    assert shown.encode().splitlines() == [shown.encode()]
    assert shown.isprintable()
