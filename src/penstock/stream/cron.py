"""Cron expressions of six fields: second, minute, hour, day of the month, month, day of the week.

A field is a list of `*`, `n`, `n-m`, each with a step (`/2`) behind it; months and weekdays may go
by their English names. Where both days are given and neither is `*`, one of them is enough. What
does not come within five years never comes. Pure.
"""

from __future__ import annotations

import re
from datetime import tzinfo
from typing import Final, Self

import msgspec

from penstock.errors import UsageError
from penstock.stream.civil_times import Civil, civil_of, instant_of

YEARS_MAX: Final = 5

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
    """An expression that was understood."""

    seconds: _Field
    minutes: _Field
    hours: _Field
    days: _Field
    months: _Field
    weekdays: _Field

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an expression; raise UsageError."""
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
        """Give the first second after an instant that is meant; None where it is too far away."""
        if not (self.seconds.values and self.minutes.values and self.hours.values):
            return None
        now_s = instant_s + 1
        year_max = civil_of(zone, now_s).year + YEARS_MAX
        while True:
            civil = civil_of(zone, now_s)
            if civil.year > year_max:
                return None
            later_s = self._skip(now_s, civil, zone)
            if later_s is None:
                return now_s
            # Where clocks are set back the start of a day may lie before the instant itself.
            now_s = max(later_s, now_s + 1)

    def _skip(self, now_s: int, civil: Civil, zone: tzinfo) -> int | None:
        """Give where to look next; None where this second is meant."""
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
    """Give first, last, step and whether it is a `*` of every value."""
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
    # `n/2` goes on to the end.
    return first, high if steps else first, step, False


def _number(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    if named is not None:
        return named
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"not a number: {text}")
    return int(text)
