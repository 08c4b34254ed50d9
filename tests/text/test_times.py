"""Times to the nanosecond, there and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidDocument
from penstock.text.clock_text import time_text
from penstock.text.times import ZERO_TIME_NS, Instant, parse_instant, timestamp

YEAR_10000_NS = 253_402_300_800 * 10**9
INSTANTS = st.builds(
    Instant,
    st.integers(ZERO_TIME_NS + 10**14, YEAR_10000_NS - 10**14),
    st.integers(-1439, 1439).map(lambda minutes: minutes * 60),
)


@given(INSTANTS)
def test_an_instant_reads_back_as_it_was_written(instant: Instant) -> None:
    assert parse_instant(str(instant)) == instant


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_dates_are_those_of_the_calendar(time_s: int) -> None:
    date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time_s)

    assert timestamp(time_s * 10**9) == date.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (ZERO_TIME_NS, "0001-01-01T00:00:00Z"),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (1_700_000_000_120_000_000, "2023-11-14T22:13:20.12Z"),
    ],
)
def test_zeros_at_the_end_are_left_out(time_ns: int, text: str) -> None:
    assert timestamp(time_ns) == text


@given(st.text(alphabet="0123456789-:TZ.+", max_size=25))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        instant = parse_instant(text)
    except InvalidDocument:
        return

    assert parse_instant(str(instant)) == instant


def test_a_zone_of_a_whole_day_is_refused() -> None:
    with pytest.raises(InvalidDocument, match="time zone offset out of range"):
        parse_instant("2024-01-02T03:04:05+24:00")


def test_what_remains_until_a_far_time_fits_a_duration() -> None:
    assert Instant(1_000).remaining_ns(400) == 600
    assert Instant(YEAR_10000_NS).remaining_ns(0) == 2**63 - 1


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_a_time_is_written_as_in_documents(time_ns: int) -> None:
    assert time_text(time_ns).decode() == timestamp(time_ns)


@given(st.integers(min_value=0, max_value=2**33), st.integers(min_value=0, max_value=9))
def test_a_time_has_no_zeros_at_its_end(seconds: int, digits: int) -> None:
    time_ns = seconds * 10**9 + 123_456_789 // 10**digits * 10**digits

    assert time_text(time_ns).decode() == timestamp(time_ns)
