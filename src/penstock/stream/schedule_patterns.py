"""When a scheduled message is due: `@at <time>`, `@every <duration>`, or a cron expression.

Pure, but for the time zones' files.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.durations import parse_duration
from penstock.documents.times import SECOND_NS, ZERO_TIME_NS, Instant, parse_instant
from penstock.errors import InvalidDocument, UsageError
from penstock.stream.civil_times import find_zone, offset_s
from penstock.stream.cron import Cron


class Due(NamedTuple):
    """When a schedule is due next, and whether there is a time after that."""

    at: Instant
    repeats: bool


def next_due(pattern: str, zone_name: str | None, *, after_ns: int, now_ns: int) -> Due | None:
    """Give when a pattern is due after an instant; None where it never is.

    What would have been due several times until now is due once. Raises UsageError where the
    pattern cannot be understood.
    """
    if not pattern:
        return None
    is_at, is_every = pattern.startswith("@at "), pattern.startswith("@every ")
    if (is_at or is_every) and zone_name is not None:
        raise UsageError("only cron expressions have a time zone")
    if is_at:
        return _at(pattern[4:])
    if is_every:
        return Due(Instant(_every_ns(pattern[7:], after_ns, now_ns)), repeats=True)
    return _cron(pattern, zone_name, after_ns, now_ns)


def _at(text: str) -> Due | None:
    try:
        instant = parse_instant(text)
    except InvalidDocument as error:
        raise UsageError(error.reason) from error
    return None if instant.time_ns == ZERO_TIME_NS else Due(instant, repeats=False)


def _every_ns(text: str, after_ns: int, now_ns: int) -> int:
    try:
        step_ns = parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if step_ns < SECOND_NS:
        raise UsageError("an interval is at least a second")
    due_ns = _nearest_second(after_ns) + step_ns
    return due_ns if due_ns >= now_ns else _nearest_second(now_ns) + step_ns


def _cron(pattern: str, zone_name: str | None, after_ns: int, now_ns: int) -> Due:
    cron = Cron.parse(pattern)
    zone = find_zone(zone_name or "UTC")
    if zone is None:
        raise UsageError(f"no such time zone: {zone_name}")
    due_s = cron.next_after(after_ns // SECOND_NS, zone)
    if due_s is not None and due_s * SECOND_NS < now_ns:
        due_s = cron.next_after(_nearest_second(now_ns) // SECOND_NS, zone)
    if due_s is None:
        raise UsageError("it never comes")
    return Due(Instant(due_s * SECOND_NS, offset_s(zone, due_s)), repeats=True)


def _nearest_second(time_ns: int) -> int:
    return (time_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS
