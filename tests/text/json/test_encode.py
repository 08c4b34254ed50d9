"""Documents as they are written: order, escapes, what is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.text.json.codec import decode, document_of, encode, to_json
from penstock.text.times import Instant
from tests.text.json.test_codec import Colour, Part, Whole

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
PARTS = st.builds(Part, TEXTS, st.integers(-(2**31), 2**31 - 1))
WHOLES = st.builds(
    Whole,
    title=TEXTS,
    number=st.integers(-(2**63), 2**63 - 1),
    seq=st.integers(0, 2**64 - 1),
    is_open=st.booleans(),
    colour=st.sampled_from(Colour),
    part=st.none() | PARTS,
    inner=PARTS,
    parts=st.lists(PARTS, max_size=3).map(tuple),
    labels=st.dictionaries(TEXTS, TEXTS, max_size=3),
    since=st.none() | st.builds(Instant, st.integers(-(2**60), 2**60), st.sampled_from([0, 7200])),
)


@given(WHOLES)
def test_what_was_written_reads_back(whole: Whole) -> None:
    assert decode(Whole, encode(whole)) == whole


def test_fields_stand_in_their_order_and_empty_ones_are_left_out() -> None:
    assert encode(Whole()) == (
        b'{"number":0,"is_open":false,"colour":"red","inner":{"name":"","count":0}}'
    )


def test_names_of_a_map_are_sorted() -> None:
    document = document_of(Whole(labels={"b": "1", "é": "2", "A": "3", "a": "4"}))

    assert list(document["labels"]) == ["A", "a", "b", "é"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("<a> & b", b'"\\u003ca\\u003e \\u0026 b"'),
        ("\u2028\u2029", b'"\\u2028\\u2029"'),
        ("\x00\x1f\b\f\n\r\t\x7f", b'"\\u0000\\u001f\\b\\f\\n\\r\\t\x7f"'),
        ("é😀", '"é😀"'.encode()),
        ([1, 1.5, None, True], b"[1,1.5,null,true]"),
    ],
)
def test_values_are_written_as_go_writes_them(value: Any, text: bytes) -> None:
    assert to_json(value) == text
    assert json.loads(text) == value


def test_pages_for_people_are_indented() -> None:
    assert to_json({"a": [1]}, indented=True) == b'{\n  "a": [\n    1\n  ]\n}'
