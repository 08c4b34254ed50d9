"""Values are written as the reference server writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.monitor.query import age, number, timestamp, to_json, without_empty

SECOND_NS = 10**9


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_795_000_000 * SECOND_NS + 500_000_000, "2026-11-18T11:06:40.5Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (123_456_780, "1970-01-01T00:00:00.12345678Z"),
    ],
)
def test_time_ends_with_its_last_digit_that_is_not_zero(time_ns: int, text: str) -> None:
    assert timestamp(time_ns) == text


@given(st.integers(0, 4_000_000_000 * SECOND_NS))
def test_time_can_be_read_back(time_ns: int) -> None:
    text = timestamp(time_ns)

    seconds, _, digits = text.rstrip("Z").partition(".")
    read = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
    assert int(read.timestamp()) * SECOND_NS + int(digits.ljust(9, "0")) == time_ns


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m0s"),
        (3_723, "1h2m3s"),
        (86_400 + 61, "1d0h1m1s"),
        (366 * 86_400 + 3_600, "1y1d1h0m0s"),
        (-5, "0s"),
    ],
)
def test_age_is_in_whole_seconds(seconds: int, text: str) -> None:
    assert age(seconds * SECOND_NS + 999 * (seconds > 0)) == text


def test_json_escapes_what_html_would_misread() -> None:
    assert to_json({"a": "<b> & \u2028é"}, indented=False) == (
        '{"a":"\\u003cb\\u003e \\u0026 \\u2028é"}'.encode()
    )


def test_json_is_indented_by_two_and_empty_things_stay_on_one_line() -> None:
    text = to_json({"a": [], "b": {}, "c": [1], "d": None}, indented=True)

    assert text == b'{\n  "a": [],\n  "b": {},\n  "c": [\n    1\n  ],\n  "d": null\n}'


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_any_value_stays_what_it_is(value: object) -> None:
    read = json.loads(to_json(value, indented=True))

    assert read == json.loads(json.dumps(value).encode("utf-8", "replace"))


def test_text_that_is_no_unicode_does_not_stop_a_page() -> None:
    assert json.loads(to_json("\ud800x", indented=False)) == "?x"


def test_whole_floats_have_no_point() -> None:
    assert to_json([number(2.0), number(0.5)], indented=False) == b"[2,0.5]"


def test_only_optional_fields_are_left_out() -> None:
    assert without_empty({"a": 0, "b": 0, "c": 1}, "b", "c") == {"a": 0, "c": 1}
