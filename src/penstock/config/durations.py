"""Durations as Go writes them: "1h30m", "100ms", "-1.5s"; always nanoseconds here.

The texts of errors and of durations are those of Go's time package, because they end up in messages
that people search for. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.config.quoting import quoted

SECOND_NS: Final = 1_000_000_000
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
    """Give a duration in nanoseconds; raise ValueError in Go's words."""
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
