"""The hours of users, in their own place, over midnight too."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from penstock.security.jwt.authenticator import seconds_allowed
from penstock.security.jwt.claims import TimeRange, UserGrants


def left_at(moment: str, *ranges: tuple[str, str], zone: str = "Asia/Tokyo") -> float | None:
    now_s = datetime.fromisoformat(f"2026-11-16T{moment}").replace(tzinfo=ZoneInfo(zone))
    times = tuple(TimeRange(*each) for each in ranges)
    return seconds_allowed(UserGrants(times=times, times_location=zone), now_s.timestamp())


@pytest.mark.parametrize(
    ("moment", "ranges", "left_s"),
    [
        ("13:00:00", [("11:00:00", "22:00:00")], 9 * 3600),
        ("10:59:59", [("11:00:00", "22:00:00")], None),
        ("22:00:00", [("11:00:00", "22:00:00")], None),
        ("05:00:00", [("22:00:00", "06:00:00")], 3600),
        ("23:30:00", [("22:00:00", "06:00:00")], 6.5 * 3600),
        ("12:00:00", [("22:00:00", "06:00:00")], None),
        ("13:00:00", [("12:00:00", "14:00:00"), ("11:00:00", "15:00:00")], 2 * 3600),
        ("13:00:00", [], 0),
        ("13:00:00", [("soon", "14:00:00")], None),
    ],
)
def test_a_user_may_stay_until_the_last_of_its_hours_ends(
    moment: str, ranges: list[tuple[str, str]], left_s: float | None
) -> None:
    assert left_at(moment, *ranges) == left_s


def test_hours_are_those_of_the_place_that_is_named() -> None:
    hours = ("08:00:00", "10:00:00")
    grants = UserGrants(times=(TimeRange(*hours),), times_location="America/New_York")
    at_nine = datetime(2026, 11, 16, 9, tzinfo=ZoneInfo("Asia/Tokyo")).timestamp()

    assert left_at("09:00:00", hours) == 3600
    assert seconds_allowed(grants, at_nine) is None


def test_a_place_that_is_none_lets_nobody_in() -> None:
    grants = UserGrants(times=(TimeRange("00:00:00", "23:59:59"),), times_location="../etc/passwd")

    assert seconds_allowed(grants, 1e9) is None
