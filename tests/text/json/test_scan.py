"""JSON into trees: everything that is JSON, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidDocument
from penstock.limits import JSON_DEPTH_MAX, JSON_VALUES_MAX
from penstock.text.json.faults import Kind, SyntaxFault, UnfinishedText
from penstock.text.json.scan import Node, scan
from penstock.text.json.walk import check_end

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def value_of(node: Node) -> Any:
    match node.kind:
        case Kind.ARRAY:
            return [value_of(item) for item in node.items]
        case Kind.OBJECT:
            values = map(value_of, node.items)
            return dict(zip(node.keys, values, strict=True))
        case Kind.STRING:
            return node.text
        case _:
            return json.loads(node.raw)


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_what_json_writes_is_read(value: Any, is_ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "replace")

    node, end = scan(text)

    assert node is not None
    assert value_of(node) == json.loads(text)
    assert node.raw == text
    assert end == len(text)


def judged(data: bytes) -> tuple[bool, int]:
    """Return whether it is one JSON value, and where it is not."""
    try:
        node, end = scan(data)
        check_end(data, end)
    except SyntaxFault as fault:
        return False, fault.offset
    except UnfinishedText:
        return False, len(data)
    return node is not None, end


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:\\u01-.etrufalsn ', max_size=30))
def test_any_bytes_are_read_or_refused(text: bytes | str) -> None:
    data = text.encode() if isinstance(text, str) else text

    is_json, offset = judged(data)

    assert 0 <= offset <= len(data)
    try:
        json.loads(data.decode("utf-8", "replace"), parse_constant=lambda name: int(name))
        assert is_json
    except ValueError:
        assert not is_json


def test_only_white_space_is_no_value() -> None:
    assert scan(b" \t\r\n") == (None, 4)


def test_values_follow_each_other() -> None:
    first, end = scan(b'{"a":1} [2]')
    second, _ = scan(b'{"a":1} [2]', end)

    assert first is not None
    assert second is not None
    assert (first.raw, second.raw) == (b'{"a":1}', b"[2]")


def test_a_key_that_comes_twice_is_kept_twice() -> None:
    node, _ = scan(b'{"a":1,"a":2}')

    assert node is not None
    assert node.keys == ["a", "a"]


def test_nesting_is_bounded_and_costs_no_stack() -> None:
    deepest = b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX

    node, _ = scan(deepest)
    with pytest.raises(SyntaxFault) as caught:
        scan(b"[" + deepest + b"]")

    assert node is not None
    assert caught.value.offset == JSON_DEPTH_MAX + 1


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\ud83d"', "\ufffd"),
        (b'"\\ude00\\ud83d"', "\ufffd\ufffd"),
        (b'"\xff\xe2\x82"', "\ufffd\ufffd\ufffd"),
        (b'"\\/\\"\\\\\\b\\f\\n\\r\\t"', '/"\\\b\f\n\r\t'),
        (b'"\\\\u0041"', "\\u0041"),
    ],
)
def test_a_string_says_what_it_means(raw: bytes, text: str) -> None:
    node, _ = scan(raw)

    assert node is not None
    assert node.text == text


def array(text: str) -> Node:
    node, _ = scan(text.encode())
    assert node is not None
    return node


@given(st.lists(st.text()))
def test_texts_are_read_at_once(texts: list[str]) -> None:
    assert array(json.dumps(texts)).texts() == texts
    assert array(json.dumps([*texts, 1])).texts() is None


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1)), st.integers(10**18))
def test_whole_numbers_are_read_at_once(numbers: list[int], long: int) -> None:
    assert array(json.dumps(numbers)).wholes() == numbers
    assert array(json.dumps({str(place): each for place, each in enumerate(numbers)})).wholes() == (
        numbers
    )
    for other in (long, 1.5, None, "1", True):
        assert array(json.dumps([*numbers, other])).wholes() is None


def test_only_so_many_other_values_are_given_out() -> None:
    most = array(f"[{','.join(['{}'] * JSON_VALUES_MAX)}]")
    too_many = array(f"[{','.join(['{}'] * (JSON_VALUES_MAX + 1))}]")

    assert len(most.items) == JSON_VALUES_MAX
    with pytest.raises(InvalidDocument, match="too many values"):
        _ = too_many.items


def test_what_follows_a_value_is_refused_where_only_one_may_be() -> None:
    with pytest.raises(InvalidDocument, match="invalid character 'x' after top-level value"):
        check_end(b"{}  x", 2)
