"""When a scheduled message is due: `@at <time>`, `@every <duration>`, or a cron expression.

A cron expression has six fields: second, minute, hour, day of the month, month, day of the week. A
field is a list of `*`, `n`, `n-m`, each with an optional step (`/2`); months and weekdays may be
English names. If both days are given and neither is `*`, one of them is enough. A time that does
not come within five years never comes.

A civil time that a zone skips or has twice is read like in the reference server: by the offset in
force around it.

Pure, but for the time zones' files.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple, Self

import msgspec

from penstock.errors import InvalidDocument, UsageError
from penstock.limits import SCHEDULE_YEARS_MAX
from penstock.text.times import SECOND_NS, ZERO_TIME_NS, Instant, parse_duration, parse_instant


class Civil(NamedTuple):
    """A date and a time of day; weekday 0 is Sunday."""

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
    """Return a time zone by its name, or None."""
    if name in ("", "UTC"):
        return UTC
    if name == "Local":
        return datetime.now(UTC).astimezone().tzinfo
    # Few streams have schedules in a zone; other servers do not load this.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def offset_s(zone: tzinfo, instant_s: int) -> int:
    """Return how many seconds a zone is ahead of UTC at an instant."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant_s)
    offset = moment.astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def civil_of(zone: tzinfo, instant_s: int) -> Civil:
    """Return the civil time of an instant."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant_s)
    local = moment.astimezone(zone)
    return Civil(local.year, local.month, local.day, local.hour, local.minute, local.second)


def instant_of(zone: tzinfo, civil: Civil) -> int:
    """Return the instant of a civil time, whose month and day may be one beyond the last."""
    year, month = civil.year + (civil.month - 1) // 12, (civil.month - 1) % 12 + 1
    first = timegm((year, month, 1, civil.hour, civil.minute, civil.second))
    as_utc_s = first + (civil.day - 1) * 86_400
    guess_s = offset_s(zone, as_utc_s)
    return as_utc_s - offset_s(zone, as_utc_s - guess_s) if guess_s else as_utc_s


_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NUMBER: Final = re.compile(r"\+?[0-9]{1,9}", re.ASCII)

_SHORT_FORMS: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


class _Field(msgspec.Struct, frozen=True):
    """The values of a field, and whether a `*` was among them."""

    values: frozenset[int]
    is_any: bool

    def __contains__(self, value: int) -> bool:
        return value in self.values


class Cron(msgspec.Struct, frozen=True):
    """A parsed cron expression."""

    seconds: _Field
    minutes: _Field
    hours: _Field
    days: _Field
    months: _Field
    weekdays: _Field

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an expression; raise UsageError."""
        fields = _SHORT_FORMS.get(text, text).split()
        if len(fields) != 6:
            raise UsageError(f"six fields are needed, not {len(fields)}")
        return cls(
            _field(fields[0], 0, 59),
            _field(fields[1], 0, 59),
            _field(fields[2], 0, 23),
            _field(fields[3], 1, 31),
            _field(fields[4], 1, 12, {name: at + 1 for at, name in enumerate(_MONTHS)}),
            _field(fields[5], 0, 6, {name: at for at, name in enumerate(_WEEKDAYS)}),
        )

    def next_after(self, instant_s: int, zone: tzinfo) -> int | None:
        """Return the first matching second after an instant; None if it is too far away."""
        if not (self.seconds.values and self.minutes.values and self.hours.values):
            return None
        now_s = instant_s + 1
        year_max = civil_of(zone, now_s).year + SCHEDULE_YEARS_MAX
        while True:
            civil = civil_of(zone, now_s)
            if civil.year > year_max:
                return None
            later_s = self._skip(now_s, civil, zone)
            if later_s is None:
                return now_s
            # When clocks are set back, the start of a day may lie before the instant itself.
            now_s = max(later_s, now_s + 1)

    def _skip(self, now_s: int, civil: Civil, zone: tzinfo) -> int | None:
        """Return the civil time to try next; None if this second matches."""
        if civil.month not in self.months:
            return instant_of(zone, Civil(civil.year, civil.month + 1, 1, 0, 0, 0))
        if not self._has_day(civil):
            return instant_of(zone, Civil(civil.year, civil.month, civil.day + 1, 0, 0, 0))
        if civil.hour not in self.hours:
            return now_s + 3600 - civil.minute * 60 - civil.second
        if civil.minute not in self.minutes:
            return now_s + 60 - civil.second
        return None if civil.second in self.seconds else now_s + 1

    def _has_day(self, civil: Civil) -> bool:
        is_day, is_weekday = civil.day in self.days, civil.weekday in self.weekdays
        if self.days.is_any or self.weekdays.is_any:
            return is_day and is_weekday
        return is_day or is_weekday


def _field(text: str, low: int, high: int, names: dict[str, int] | None = None) -> _Field:
    values: set[int] = set()
    is_any = False
    for item in text.split(","):
        if not item:
            continue
        first, last, step, is_star = _item(item, low, high, names or {})
        if first < low or last > high or first > last or step < 1:
            raise UsageError(f"{item} is not within {low} to {high}")
        values.update(range(first, last + 1, step))
        is_any = is_any or is_star
    return _Field(frozenset(values), is_any)


def _item(text: str, low: int, high: int, names: dict[str, int]) -> tuple[int, int, int, bool]:
    """Return first, last, step, and whether it is a `*` for every value."""
    bounds, *steps = text.split("/")
    first_text, *lasts = bounds.split("-")
    if len(steps) > 1:
        raise UsageError(f"too many steps: {text}")
    step = _number(steps[0], {}) if steps else 1
    if first_text in ("*", "?"):
        return low, high, step, step == 1
    if len(lasts) > 1:
        raise UsageError(f"too many hyphens: {text}")
    first = _number(first_text, names)
    if lasts:
        return first, _number(lasts[0], names), step, False
    # `n/2` means from n to the end.
    return first, high if steps else first, step, False


def _number(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    if named is not None:
        return named
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"not a number: {text}")
    return int(text)


class Due(NamedTuple):
    """When a schedule is due next, and whether there is a time after that."""

    at: Instant
    repeats: bool


def next_due(pattern: str, zone_name: str | None, *, after_ns: int, now_ns: int) -> Due | None:
    """Return when a pattern is due after an instant; None if never.

    What would have been due several times until now is due once. Raise UsageError for a malformed
    pattern.
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
