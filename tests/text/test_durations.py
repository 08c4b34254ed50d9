"""Durations: read and written as Go does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.text.times import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0), ("5ns", 5), ("100ms", 100_000_000), ("1.5s", 1_500_000_000), ("2m", 120 * 10**9),
        ("1h30m", 5400 * 10**9), ("-1s", -(10**9)), ("+1s", 10**9), (".5s", 500_000_000),
        ("3us", 3000), ("3µs", 3000), ("1h0.5s", 3600 * 10**9 + 500_000_000),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_nanoseconds(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", 'time: invalid duration ""'),
        ("abc", 'time: invalid duration "abc"'),
        ("5", 'time: missing unit in duration "5"'),
        ("5x", 'time: unknown unit "x" in duration "5x"'),
        ("1s5", 'time: missing unit in duration "1s5"'),
        ("-", 'time: invalid duration "-"'),
        ("99999999999h", 'time: invalid duration "99999999999h"'),
    ],
)
def test_what_is_no_duration_is_told_of_in_the_words_of_go(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^time: ") as caught:
        parse_duration(text)

    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"), (1, "1ns"), (1500, "1.5µs"), (2_000_000, "2ms"), (10**9, "1s"),
        (120 * 10**9, "2m0s"), (5400 * 10**9, "1h30m0s"), (-(10**9), "-1s"),
    ],
)  # fmt: skip
def test_a_duration_is_written_as_go_writes_it(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@given(st.integers(-(2**62), 2**62))
def test_a_written_duration_reads_back(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns
