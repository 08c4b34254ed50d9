"""Instants and durations as text: RFC 3339 to the nanosecond, and Go's "1h30m".

An instant is written in its own time zone, without zeros at the end of its fraction. No time at all
is the year 1. Durations are nanoseconds here and text outside ("1h30m", "100ms", "-1.5s"). Error
texts are those of the reference server and of Go's time package, because users search for them.

Pure; any thread.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from penstock.errors import InvalidDocument
from penstock.text.quoting import quoted

SECOND_NS: Final = 1_000_000_000
ZERO_TIME_NS: Final = -62_135_596_800 * SECOND_NS
"""The first instant of the year 1: what stands where no time is known."""

DURATION_NS_MAX: Final = 2**63 - 1
"""The longest time that clients can read: some 292 years."""

_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_DAY_S: Final = 86_400

# The pieces of the layout, each with what it matches.
_PIECES: Final = tuple(
    (name, re.compile(pattern, re.ASCII))
    for name, pattern in (
        ("2006", r"\d{4}"),
        ("-", "-"),
        ("01", r"\d\d"),
        ("-", "-"),
        ("02", r"\d\d"),
        ("T", "T"),
        ("15", r"\d\d?"),
        (":", ":"),
        ("04", r"\d\d"),
        (":", ":"),
        ("05", r"\d\d(?:[.,]\d+)?"),
        ("Z07:00", r"Z|[+-]\d\d:\d\d"),
    )
)
_RANGES: Final = (("01", "month", 1, 12), ("15", "hour", 0, 23), ("04", "minute", 0, 59))


class Instant(msgspec.Struct, frozen=True):
    """A point in time, and how far its zone is ahead of UTC."""

    time_ns: int
    offset_s: int = 0

    def __str__(self) -> str:
        return timestamp(self.time_ns, offset_s=self.offset_s)

    def remaining_ns(self, now_ns: int) -> int:
        """Return the time until then, at most the longest duration that the wire can carry."""
        return min(self.time_ns - now_ns, DURATION_NS_MAX)


ZERO_TIME: Final = Instant(ZERO_TIME_NS)


def timestamp(time_ns: int, *, offset_s: int = 0) -> str:
    """Write Unix nanoseconds as RFC 3339, without zeros at the end."""
    seconds, rest_ns = divmod(time_ns, SECOND_NS)
    days, second = divmod(seconds + offset_s, _DAY_S)
    year, month, day = _date(days)
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    digits = f".{rest_ns:09d}".rstrip("0").rstrip(".")
    minutes = abs(offset_s) // 60
    sign = "-" if offset_s < 0 else "+"
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if offset_s else "Z"
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}{digits}{zone}"


def parse_instant(text: str) -> Instant:
    """Read RFC 3339; raise InvalidDocument in the reference server's words."""
    fields = _fields(text)
    year, month, day = (int(fields[name]) for name in ("2006", "01", "02"))
    hour, minute = int(fields["15"]), int(fields["04"])
    second, _, fraction = fields["05"].replace(",", ".").partition(".")
    if not 1 <= day <= _days_in(year, month):
        raise _out_of_range(text, "day")
    # A fraction is cut, not rounded.
    rest_ns = int(fraction[:9].ljust(9, "0"))
    seconds = _days(year, month, day) * _DAY_S + hour * 3600 + minute * 60 + int(second)
    offset_s = _offset_s(text, fields["Z07:00"])
    return Instant((seconds - offset_s) * SECOND_NS + rest_ns, offset_s)


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    for name, pattern in _PIECES:
        found = pattern.match(text, position)
        if found is None:
            rest = _quoted(text[position:])
            reason = f'as "{_LAYOUT}": cannot parse {rest} as "{name}"'
            raise InvalidDocument(f"parsing time {_quoted(text)} {reason}")
        fields[name] = found[0]
        position = found.end()
        for ranged, what, low, high in _RANGES:
            if name == ranged and not low <= int(found[0]) <= high:
                raise _out_of_range(text, what)
        if name == "05" and int(found[0][:2]) > 59:
            raise _out_of_range(text, "second")
    if position < len(text):
        extra = _quoted(text[position:])
        raise InvalidDocument(f"parsing time {_quoted(text)}: extra text: {extra}")
    return fields


def _offset_s(text: str, zone: str) -> int:
    if zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[4:]) * 60
    # A whole day or more could be read and never be written again.
    if seconds >= _DAY_S or int(zone[4:]) > 60:
        raise _out_of_range(text, "time zone offset")
    return -seconds if zone[0] == "-" else seconds


def _out_of_range(text: str, what: str) -> InvalidDocument:
    return InvalidDocument(f"parsing time {_quoted(text)}: {what} out of range")


def _quoted(text: str) -> str:
    # Go's time package has its own way: every byte that is not ASCII is shown by its number.
    shown = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(map(_shown, shown)) + '"'


def _shown(character: str) -> str:
    if " " <= character <= "\x7f":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def _days_in(year: int, month: int) -> int:
    following = (year, month + 1) if month < 12 else (year + 1, 1)
    return _days(*following, 1) - _days(year, month, 1)


def _days(year: int, month: int, day: int) -> int:
    # Days since 1970 in the Gregorian calendar, counted from a March so that the leap day is last.
    year -= month <= 2
    month = month - 3 if month > 2 else month + 9
    leaps = year // 4 - year // 100 + year // 400
    return year * 365 + leaps + (153 * month + 2) // 5 + day - 1 - 719_468


def _date(days: int) -> tuple[int, int, int]:
    days += 719_468
    era, rest = divmod(days, 146_097)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    rest -= 365 * year + year // 4 - year // 100
    month = (5 * rest + 2) // 153
    day = rest - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return era * 400 + year + (month <= 2), month, day


MINUTE_NS: Final = 60 * SECOND_NS

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": MINUTE_NS,
    "h": 60 * MINUTE_NS,
}
_PIECE: Final = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]*)")
_NS_MAX: Final = 2**63 - 1


def parse_duration(text: str) -> int:
    """Return a duration in nanoseconds; raise ValueError in Go's words."""
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    invalid = ValueError(f"time: invalid duration {quoted(text)}")
    if not body:
        raise invalid
    total_ns = 0
    position = 0
    while position < len(body):
        piece = _PIECE.match(body, position)
        if piece is None or not (piece[1] or piece[3]):
            raise invalid
        if not piece[4]:
            raise ValueError(f"time: missing unit in duration {quoted(text)}")
        unit_ns = _UNITS_NS.get(piece[4])
        if unit_ns is None:
            raise ValueError(f"time: unknown unit {quoted(piece[4])} in duration {quoted(text)}")
        fraction = piece[3] or ""
        total_ns += int(piece[1] or 0) * unit_ns
        total_ns += int(fraction or 0) * unit_ns // 10 ** len(fraction)
        if total_ns > _NS_MAX:
            raise invalid
        position = piece.end()
    return -total_ns if text[0] == "-" else total_ns


def format_duration(duration_ns: int) -> str:
    """Write a duration as Go does: 1h30m0s, 1.5s, 100ms, 0s."""
    sign = "-" if duration_ns < 0 else ""
    rest_ns = abs(duration_ns)
    if rest_ns < SECOND_NS:
        for unit in ("ms", "µs"):
            if rest_ns >= _UNITS_NS[unit]:
                return f"{sign}{_decimal(rest_ns, _UNITS_NS[unit])}{unit}"
        return f"{sign}{rest_ns}ns" if rest_ns else "0s"
    hours, rest_ns = divmod(rest_ns, 60 * MINUTE_NS)
    minutes, rest_ns = divmod(rest_ns, MINUTE_NS)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{sign}{text}{_decimal(rest_ns, SECOND_NS)}s"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
