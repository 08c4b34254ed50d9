"""Query strings of monitoring requests, and values as pages write them.

A query string is read with the reference server's strictness: a value that cannot be read raises
UsageError, whose text is the answer. Invariant: numbers are bounded to 64 bits here.

Pages write values as the reference server does: whole floats without a point, ages in words. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from penstock.errors import UsageError
from penstock.text.json.codec import to_json as to_json
from penstock.text.quoting import quoted
from penstock.text.times import timestamp as timestamp

INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_SIGNED = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII)
_STATES = {"open": 0, "closed": 1, "any": 2, "all": 2}


class Query:
    """The parameters of one request; of a repeated one the first counts."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, str] = {}
        for pair in text.split("&"):
            # A pair with a semicolon is dropped, as Go's net/url does.
            if pair and ";" not in pair:
                name, _, value = pair.partition("=")
                self._values.setdefault(unquote_plus(name), unquote_plus(value))

    def text(self, name: str) -> str:
        """Return a parameter; "" where it is absent."""
        return self._values.get(name, "")

    def boolean(self, name: str) -> bool:
        """Return a truth value; False where it is absent."""
        text = self.text(name)
        if not text or text in _FALSE:
            return False
        if text in _TRUE:
            return True
        raise _unreadable("boolean", name, "ParseBool", text, "invalid syntax")

    def integer(self, name: str) -> int:
        """Return a whole number of 64 bits; 0 where it is absent."""
        text = self.text(name)
        if not text:
            return 0
        if not _SIGNED.fullmatch(text):
            raise _unreadable("int", name, "Atoi", text, "invalid syntax")
        if len(text) > 40 or not -INT64_MAX - 1 <= int(text) <= INT64_MAX:
            raise _unreadable("int", name, "Atoi", text, "value out of range")
        return int(text)

    def unsigned(self, name: str) -> int:
        """Return a whole number of 64 bits without a sign; 0 where it is absent."""
        text = self.text(name)
        if not text:
            return 0
        if not _UNSIGNED.fullmatch(text):
            raise _unreadable("uint64", name, "ParseUint", text, "invalid syntax")
        if len(text) > 40 or int(text) > UINT64_MAX:
            raise _unreadable("uint64", name, "ParseUint", text, "value out of range")
        return int(text)

    def state(self) -> int:
        """Return the wanted state of connections: 0 open, 1 closed, 2 all."""
        text = self.text("state")
        if not text:
            return 0
        state = _STATES.get(text.lower())
        if state is None:
            raise UsageError(f"Error decoding state for {text}")
        return state

    def subscriptions(self) -> tuple[bool, bool]:
        """Return (True if subscriptions are wanted by subject, True if in detail)."""
        if self.text("subs").lower() == "detail":
            return False, True
        return self.boolean("subs"), False


def _unreadable(kind: str, name: str, function: str, text: str, why: str) -> UsageError:
    return UsageError(
        f"Error decoding {kind} for '{name}': strconv.{function}: parsing {quoted(text)}: {why}"
    )


def without_empty(fields: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    """Return fields without those of the optional ones that are empty, zero, false or None."""
    return {name: value for name, value in fields.items() if value or name not in optional}


def number(value: float) -> float:
    """Return a float as it is written: a whole one without a point."""
    return int(value) if float(value).is_integer() else value


def age(duration_ns: int) -> str:
    """Return a duration in whole seconds as text: 3s, 1h2m3s, 1y2d3h4m5s."""
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
    """Return bytes of the wire as text; what is no UTF-8 is replaced."""
    return (text or b"").decode("utf-8", "replace")
