"""Options of the formats, as Spark hands them over: texts under names of any case.

A group of options is a Struct whose field names, in camel case, are the options' names. A format
reads the groups that it has; what none of them knows is refused with the nearest name, because
Spark itself passes a misspelt option over in silence. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from penstock.errors import UsageError

_SUFFIXES = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?)(?P<unit>ms|s|m|h|d)")

_REPEATED = "option."
"""What the options of a catalog's table begin with, which Spark hands over a second time so."""

_OF_TABLES = {
    "provider",
    "location",
    "owner",
    "external",
    "comment",
    "collation",
    "is_managed_location",
    "table_type",
}
"""What a catalog keeps with a table, and hands over with its options."""

SHARED = {"path", "checkpointlocation"}
"""What Spark itself adds to the options of any format."""

Group = TypeVar("Group", bound=msgspec.Struct)


class Options:
    """The options that one use of a format was given; see the module."""

    def __init__(
        self, format_name: str, given: Mapping[str, str], aliases: Mapping[str, str] | None = None
    ) -> None:
        """`aliases` gives other names of options, in lower case, with the names they stand for."""
        self._format = format_name
        self._aliases = aliases or {}
        self._given: dict[str, tuple[str, str]] = {}
        is_table = any(name.lower().startswith(_REPEATED) for name in given)
        for name, text in given.items():
            if name.lower().startswith(_REPEATED) or (is_table and name.lower() in _OF_TABLES):
                continue
            meant = self._aliases.get(name.lower(), name).lower()
            known = self._given.setdefault(meant, (name, text))
            if known[1] != text:
                raise UsageError(
                    f"{format_name}: options {known[0]} and {name} are one and the same, "
                    "with different values"
                )
        self._known: dict[str, str] = {}

    def group(self, kind: type[Group]) -> Group:
        """Read a group; raises UsageError that names the option that is wrong."""
        values: dict[str, Any] = {}
        for field in msgspec.structs.fields(kind):
            name = field.encode_name
            self._known[name.lower()] = name
            if name.lower() in self._given:
                shown, text = self._given[name.lower()]
                values[name] = self._convert(shown, text, field.type)
        try:
            return msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            raise UsageError(f"{self._format}: {error}") from None

    def _convert(self, name: str, text: str, kind: Any) -> Any:
        try:
            return msgspec.convert(text, kind, strict=False, dec_hook=_of_our_own)
        except (msgspec.ValidationError, ValueError) as error:
            raise UsageError(f"{self._format}: option {name}: {text!r}: {error}") from None

    def finish(self) -> None:
        """Refuse what no group knew."""
        for meant, (name, _) in self._given.items():
            if meant not in self._known and meant not in SHARED:
                raise UsageError(self._unknown(name))

    def _unknown(self, name: str) -> str:
        names = {**self._known, **self._aliases}
        near = difflib.get_close_matches(name.lower(), list(names), n=1)
        listed = ", ".join(sorted(self._known.values()))
        hint = f"; did you mean {names[near[0]]}?" if near else "."
        return f"{self._format}: no option {name!r}{hint} There are: {listed}"


def hint_of(given: Mapping[str, str]) -> str:
    """Say why there may be no options at all."""
    if given:
        return ""
    return "; a table of the catalog is read WITH its options: FROM orders WITH (`stream` = 'A')"


class Size(int):
    """A number of bytes; written as 1024, 64k, 256m, 2g."""


class Duration(float):
    """Some seconds; written as 250ms, 30s, 15m, 2h."""


class Names(tuple[str, ...]):
    """Several names; written with commas between them."""

    __slots__ = ()


def _of_our_own(kind: type, text: Any) -> Any:
    if kind is Size:
        return _size(text)
    if kind is Names:
        return _names(text)
    if kind is Duration:
        return _duration(text)
    raise NotImplementedError(kind)


def _size(text: str) -> Size:
    number = text.strip().lower().removesuffix("b")
    factor = _SUFFIXES.get(number[-1:], 1)
    digits = number[:-1] if factor > 1 else number
    if not digits.isdecimal() or int(digits) * factor < 1:
        raise ValueError("a size is a number of bytes, as in 1024, 64k, 256m or 2g")
    return Size(int(digits) * factor)


def _duration(text: str) -> Duration:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("a duration is a number with its unit, as in 250ms, 30s, 15m or 2h")
    return Duration(float(found["number"]) * _SECONDS[found["unit"]])


def _names(text: str) -> Names:
    names = Names(name for each in text.split(",") if (name := each.strip()))
    if not names:
        raise ValueError("a name is missing")
    return names
