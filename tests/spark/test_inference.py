"""Fields and types of JSON payloads, inferred from samples."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limits import INFERRED_FIELDS_MAX
from penstock.spark.sql.catalog import Field, infer


def told(*values: object) -> dict[str, str]:
    found = infer(json.dumps(each).encode() for each in values)
    return {each.name: each.type for each in found}


def test_fields_have_the_types_of_their_values() -> None:
    payload = {"id": 1, "price": 1.5, "paid": True, "name": "x", "tags": ["a"], "to": {"a b": 1}}

    assert told(payload) == {
        "id": "bigint",
        "price": "double",
        "paid": "boolean",
        "name": "string",
        "tags": "array<string>",
        "to": "struct<`a b`: bigint>",
    }


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((1, 2.5), "double"),
        ((None, 1), "bigint"),
        ((None, None), "variant"),
        ((1, "x"), "variant"),
        ((True, 1), "variant"),
        ((2**63,), "variant"),
        (([], [1]), "array<bigint>"),
        (([],), "array<variant>"),
        (([1], ["x"]), "array<variant>"),
        (({"a": 1}, {"b": "x"}), "struct<`a`: bigint, `b`: string>"),
        (({"a": 1}, {"A": 1}), "variant"),
        (({},), "variant"),
        (([[1], [2.5]],), "array<array<double>>"),
    ],
)
def test_what_payloads_disagree_about_is_given_a_type_for_all(
    values: tuple[object, ...], kind: str
) -> None:
    assert told(*({"field": each} for each in values)) == {"field": kind}


def test_payloads_that_are_no_objects_say_nothing() -> None:
    samples = [b"", b"text", b"\xff", b"[1]", b"1", b"{", b"[" * 100_000, b'{"a": 1}']

    assert infer(samples) == [Field("a", "bigint")]


def test_of_names_that_differ_by_case_alone_the_first_is_given() -> None:
    assert told({"Id": 1}, {"id": "x"}) == {"Id": "bigint"}


def test_names_that_no_path_can_hold_are_left_in_the_payload() -> None:
    assert told({"it's": 1, "why?": 2, "": 3, "fine": 4}) == {"fine": "bigint"}


def test_ids_as_names_do_not_become_columns_without_end() -> None:
    found = told(*({str(number): 1} for number in range(2 * INFERRED_FIELDS_MAX)))

    assert len(found) == INFERRED_FIELDS_MAX


@given(st.lists(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
), max_size=5))  # fmt: skip
def test_any_json_has_types(values: list[object]) -> None:
    for each in infer(json.dumps(value).encode() for value in values):
        assert each.type
        assert each.type.count("<") == each.type.count(">") or "`" in each.type
