"""Instants and the civil times of a zone, in whole seconds.

A civil time that a zone skips or has twice is taken as the reference server takes it: by the offset
that is in force around it. Pure, but for the time zones' files.
"""

from __future__ import annotations

from calendar import timegm
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple


class Civil(NamedTuple):
    """A date and a time of day; Sunday is the weekday 0."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int

    @property
    def weekday(self) -> int:
        """The day of the week."""
        return datetime(self.year, self.month, self.day, tzinfo=UTC).isoweekday() % 7


def find_zone(name: str) -> tzinfo | None:
    """Give a time zone by its name; None where there is none of that name."""
    if name in ("", "UTC"):
        return UTC
    if name == "Local":
        return datetime.now(UTC).astimezone().tzinfo
    # Few streams have schedules in a zone; the others need not wait for this to be loaded.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def offset_s(zone: tzinfo, instant_s: int) -> int:
    """Tell how far a zone is ahead of UTC at an instant."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant_s)
    offset = moment.astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def civil_of(zone: tzinfo, instant_s: int) -> Civil:
    """Give the civil time of an instant."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant_s)
    local = moment.astimezone(zone)
    return Civil(local.year, local.month, local.day, local.hour, local.minute, local.second)


def instant_of(zone: tzinfo, civil: Civil) -> int:
    """Give the instant of a civil time, whose month and day may be one beyond the last."""
    year, month = civil.year + (civil.month - 1) // 12, (civil.month - 1) % 12 + 1
    first = timegm((year, month, 1, civil.hour, civil.minute, civil.second))
    as_utc_s = first + (civil.day - 1) * 86_400
    guess_s = offset_s(zone, as_utc_s)
    return as_utc_s - offset_s(zone, as_utc_s - guess_s) if guess_s else as_utc_s
