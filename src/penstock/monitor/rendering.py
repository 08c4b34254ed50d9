"""Values as the reference server writes them: JSON, times, ages.

JSON is Go's: two spaces of indent or none at all, `<`, `>` and `&` escaped, whole floats without a
point. Pure.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

_ESCAPES = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def to_json(value: Any, *, indented: bool) -> bytes:
    """Write a value of dicts, lists, strings and numbers."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        allow_nan=False,
        indent=2 if indented else None,
        separators=(",", ": " if indented else ":"),
    )
    # These characters can only stand within strings, so the whole text may be translated.
    return text.translate(_ESCAPES).encode("utf-8", "replace")


def without_empty(fields: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    """Leave out those of the optional fields that are empty, zero, false or None."""
    return {name: value for name, value in fields.items() if value or name not in optional}


def number(value: float) -> float:
    """Give a float as it is written: a whole one without a point."""
    return int(value) if float(value).is_integer() else value


def timestamp(time_ns: int) -> str:
    """Write Unix nanoseconds as RFC 3339 in UTC, without zeros at the end."""
    seconds, rest_ns = divmod(time_ns, 10**9)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    digits = f"{rest_ns:09d}".rstrip("0")
    return f"{text}.{digits}Z" if digits else f"{text}Z"


def age(duration_ns: int) -> str:
    """Write how long something has lasted, in whole seconds: 3s, 1h2m3s, 1y2d3h4m5s."""
    seconds = max(duration_ns, 0) // 10**9
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    years = days // 365
    text = f"{seconds % 60}s"
    if minutes:
        text = f"{minutes % 60}m{text}"
    if hours:
        text = f"{hours % 24}h{text}"
    if days:
        text = f"{days % 365}d{text}"
    return f"{years}y{text}" if years else text


def shown(text: bytes | None) -> str:
    """Give bytes of the wire as text; what is no UTF-8 is replaced."""
    return (text or b"").decode("utf-8", "replace")
