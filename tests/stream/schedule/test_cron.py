"""Cron expressions: the next matching second, compared with trying every second."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.stream.schedule.patterns import Cron, next_due

BERLIN = ZoneInfo("Europe/Berlin")
SECOND_NS = 1_000_000_000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def shown(instant_s: int | None, zone: ZoneInfo = BERLIN) -> str | None:
    return None if instant_s is None else datetime.fromtimestamp(instant_s, zone).isoformat()


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> tuple[str, set[int], bool]:
    """A field, its values, and whether it is a `*`."""
    kind = draw(st.sampled_from(("any", "step", "one", "range", "list")))
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    step = draw(st.integers(1, 7))
    if kind == "any":
        return "*", set(range(low, high + 1)), True
    if kind == "step":
        return f"*/{step}", set(range(low, high + 1, step)), step == 1
    if kind == "one":
        return str(first), {first}, False
    if kind == "range":
        return f"{first}-{last}/{step}", set(range(first, last + 1, step)), False
    return f"{first},{last}", {first, last}, False


@given(
    fields(0, 59),
    fields(0, 59),
    fields(0, 23),
    fields(1, 31),
    fields(0, 6),
    st.integers(0, 2**31),
)
def test_the_next_second_is_the_first_that_every_field_means(
    second: tuple[str, set[int], bool],
    minute: tuple[str, set[int], bool],
    hour: tuple[str, set[int], bool],
    day: tuple[str, set[int], bool],
    weekday: tuple[str, set[int], bool],
    start_s: int,
) -> None:
    text = f"{second[0]} {minute[0]} {hour[0]} {day[0]} * {weekday[0]}"

    found = Cron.parse(text).next_after(start_s, UTC)

    moment = datetime.fromtimestamp(start_s, UTC)
    expected = None
    for days in range(367 * 5):
        date = moment.date() + timedelta(days=days)
        is_day, is_weekday = date.day in day[1], date.isoweekday() % 7 in weekday[1]
        both = is_day and is_weekday
        if not (both if day[2] or weekday[2] else is_day or is_weekday):
            continue
        times = (
            datetime(date.year, date.month, date.day, h, m, s, tzinfo=UTC)
            for h in sorted(hour[1])
            for m in sorted(minute[1])
            for s in sorted(second[1])
        )
        expected = next((each for each in times if each > moment), None)
        if expected is not None:
            break
    assert expected is not None
    assert found == int(expected.timestamp())


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        # A day on which 02:30 does not come, and one on which it comes twice.
        ("0 30 2 * * *", "2026-03-28T12:00:00+01:00", "2026-03-30T02:30:00+02:00"),
        ("0 30 2 * * *", "2026-10-25T00:00:00+02:00", "2026-10-25T02:30:00+02:00"),
        ("0 30 2 * * *", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"),
        ("0 0 0 * * *", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"),
        ("0 0 * * * *", "2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00"),
        ("@yearly", "2026-06-01T00:00:00+02:00", "2027-01-01T00:00:00+01:00"),
        ("@weekly", "2026-11-16T00:00:00+01:00", "2026-11-22T00:00:00+01:00"),
        ("0 0 0 29 FEB ?", "2026-06-01T00:00:00+02:00", "2028-02-29T00:00:00+01:00"),
        ("0 0 0 13 * fri", "2026-11-14T00:00:00+01:00", "2026-11-20T00:00:00+01:00"),
        ("0 0 0 30 2 *", "2026-06-01T00:00:00+02:00", None),
        (", * * * * *", "2026-06-01T00:00:00+02:00", None),
    ],
)
def test_days_have_their_zones_hours(text: str, start: str, expected: str | None) -> None:
    assert shown(Cron.parse(text).next_after(at(start), BERLIN)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * * *",
        "* * * * * * *",
        "60 * * * * *",
        "* * 24 * * *",
        "* * * 0 * *",
        "* * * * 13 *",
        "* * * * * 7",
        "*/0 * * * * *",
        "5-1 * * * * *",
        "1-2-3 * * * * *",
        "1/2/3 * * * * *",
        "-1 * * * * *",
        "a * * * * *",
        "jan * * * * *",
        "* * * * mon *",
        "1e1 * * * * *",
        "@never",
    ],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Cron.parse(text)


@given(st.text("0123456789*/-,? janmonfri@", max_size=30))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        Cron.parse(text).next_after(0, UTC)


def test_an_interval_that_was_missed_counts_from_now() -> None:
    due = next_due("@every 10s", None, after_ns=0, now_ns=1_000 * SECOND_NS)

    assert due is not None
    assert due.at.time_ns == 1_010 * SECOND_NS


def test_a_cron_schedule_that_was_missed_comes_at_its_next_time() -> None:
    due = next_due("@hourly", None, after_ns=0, now_ns=10_000 * SECOND_NS)

    assert due is not None
    assert due.at.time_ns == 3 * 3600 * SECOND_NS
