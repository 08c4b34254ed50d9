"""Documents as they are written: order, escapes, what is left out."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.text.json.codec import decode, document_of, encode, encode_after, to_json
from penstock.text.json.shapes import OMIT_EMPTY
from penstock.text.json.write import Encoded
from penstock.text.times import ZERO_TIME_NS, Instant
from tests.models.documents import plain
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
def test_a_document_is_written_as_its_plain_values_are(whole: Whole) -> None:
    assert encode(whole) == to_json(plain(whole))


@pytest.mark.parametrize(
    "time_ns", [0, 1, -1, -(2**63), 2**63 - 1, 2**63, -(2**63) - 1, ZERO_TIME_NS, ZERO_TIME_NS + 1]
)
@pytest.mark.parametrize("offset_s", [0, 3600, -60])
def test_times_of_all_ages_are_written_alike(time_ns: int, offset_s: int) -> None:
    whole = Whole(since=Instant(time_ns, offset_s))

    assert encode(whole) == to_json(plain(whole))


def test_a_text_that_is_no_unicode_is_replaced() -> None:
    assert encode(Whole(title="a\ud800b")) == to_json(plain(Whole(title="a?b")))


@pytest.mark.parametrize("documents", [(), (Part("a", 1),), (Part("a", 1), Whole())])
def test_documents_stand_one_behind_the_other(documents: tuple[msgspec.Struct, ...]) -> None:
    fields = {name: value for each in documents for name, value in plain(each).items()}

    assert encode_after(b'{"type":"t"', *documents) == to_json({"type": "t"} | fields)


def test_what_is_json_already_is_written_as_it_is_and_left_out_if_there_is_none() -> None:
    class Outer(msgspec.Struct, frozen=True):
        whole: Whole | Encoded = Whole()
        labels: Annotated[dict[str, str] | Encoded, OMIT_EMPTY] = msgspec.field(
            default_factory=dict
        )
        wholes: Annotated[tuple[Whole, ...] | Encoded, OMIT_EMPTY] = ()

    part = Encoded(b'{"a":1}')

    assert encode(Outer(part, part, (part, part))) == (  # type: ignore[arg-type]
        b'{"whole":{"a":1},"labels":{"a":1},"wholes":[{"a":1},{"a":1}]}'
    )
    assert encode(Outer(part, Encoded(b""), Encoded(b""))) == b'{"whole":{"a":1}}'


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
