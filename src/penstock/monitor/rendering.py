"""Values of pages as the reference server writes them: JSON and times as in any document, ages.

Whole floats have no point. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.documents.encoding import to_json as to_json
from penstock.documents.times import timestamp as timestamp


def without_empty(fields: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    """Leave out those of the optional fields that are empty, zero, false or None."""
    return {name: value for name, value in fields.items() if value or name not in optional}


def number(value: float) -> float:
    """Give a float as it is written: a whole one without a point."""
    return int(value) if float(value).is_integer() else value


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
