"""The hours of the day at which a user may be connected, and how long that lasts. Pure."""

from __future__ import annotations

from datetime import datetime, time, timedelta, tzinfo

from penstock.security.claims import TimeRange, UserGrants


def seconds_allowed(grants: UserGrants, now_s: float) -> float | None:
    """Give how long a user may stay from now on: 0 for as long as it wants, None for not at all."""
    if not grants.times:
        return 0.0
    try:
        now = datetime.fromtimestamp(now_s, _zone(grants.times_location))
        left = [_seconds_left(each, now) for each in grants.times]
    except (ValueError, LookupError, OSError):
        # A place or a time that is none: nobody may.
        return None
    return max((each for each in left if each is not None), default=None)


def _zone(location: str) -> tzinfo | None:
    """Give the zone of a place; without one, None means the server's own."""
    if not location or location == "Local":
        return None
    # Few users are confined to the hours of a place, and no server loads it for the others.
    from zoneinfo import ZoneInfo

    return ZoneInfo(location)


def _seconds_left(each: TimeRange, now: datetime) -> float | None:
    start, end = (_on_day(moment, now) for moment in (each.start, each.end))
    if start < now < end:
        return (end - now).total_seconds()
    if start > end:
        # It goes over midnight, which may be behind us or before us.
        if now < end:
            return (end - now).total_seconds()
        end += timedelta(days=1)
        if start < now < end:
            return (end - now).total_seconds()
    return None


def _on_day(moment: str, day: datetime) -> datetime:
    hour, minute, second = (int(each) for each in moment.split(":"))
    return datetime.combine(day.date(), time(hour, minute, second), day.tzinfo)
