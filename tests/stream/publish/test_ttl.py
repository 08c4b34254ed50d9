"""How long messages live: what is read quickly is what a slow reader reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ApiError
from penstock.stream.publish.ttl import parse_ttl
from penstock.text.times import SECOND_NS, format_duration, parse_duration

numbers = st.sampled_from(("0", "1", "59", "007", "9" * 9, "9" * 10, "9" * 20))
words = st.sampled_from(
    ("h", "m", "s", "ms", "us", "ns", ".", ".5", "-", "+", "x", "never", "NEVER", "é")
)
pieces = st.lists(numbers | words, max_size=6).map("".join)


def read_slowly(text: str) -> int | None:
    """Return the seconds of a TTL, None if it is malformed: first a duration, then a number."""
    if not text:
        return 0
    if text.lower() == "never":
        return -1
    try:
        duration_ns = parse_duration(text)
    except ValueError:
        if not (text.isascii() and text.isdigit()):
            return None
        seconds = int(text) % 2**64
        return seconds if seconds < 2**63 else None
    return duration_ns // SECOND_NS if duration_ns >= SECOND_NS else None


def read(text: str) -> int | None:
    try:
        return parse_ttl(text.encode())
    except ApiError:
        return None


@given(pieces)
def test_a_lifetime_is_read_as_by_a_slow_reader(text: str) -> None:
    assert read(text) == read_slowly(text)


@given(st.integers(SECOND_NS, 2**63 - 1))
def test_a_duration_as_clients_write_it_is_read(duration_ns: int) -> None:
    assert read(format_duration(duration_ns)) == duration_ns // SECOND_NS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1m30s", 90), ("1h", 3600), ("1.5s", 1), ("999ms", None), ("0", None), ("00", 0)],
)
def test_lifetimes(text: str, seconds: int | None) -> None:
    assert read(text) == seconds
