"""Which fields the JSON payloads of a stream have, and of which types: told from some of them.

What always holds: a field whose payloads disagree is given as a variant, which holds anything, so
that what was not among the samples is at worst null in its column, and never an error. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.limits import INFERRED_DEPTH_MAX, INFERRED_FIELDS_MAX

VARIANT = "variant"
_INT64_MAX = 2**63 - 1


class Field(msgspec.Struct, frozen=True):
    """A field of payloads: its name there, and its type in SQL."""

    name: str
    type: str


class _Kind(msgspec.Struct):
    """What is known of one place in the payloads; nothing yet where `name` is empty."""

    name: str = ""
    fields: dict[str, _Kind] = msgspec.field(default_factory=dict)
    items: _Kind | None = None


def infer(payloads: Iterable[bytes]) -> list[Field]:
    """Give the fields that the payloads have, in the order in which they were met.

    Payloads that are no JSON objects say nothing.
    """
    whole = _Kind()
    for payload in payloads:
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            _learn(whole, value, 0)
    found = _distinct(whole.fields)
    # These letters cannot stand in a path into a variant.
    return [Field(name, _sql(kind)) for name, kind in found if name and not set(name) & {"'", "?"}]


def _learn(kind: _Kind, value: Any, depth: int) -> None:
    if value is None or kind.name == VARIANT:
        return
    found = _name_of(value) if depth <= INFERRED_DEPTH_MAX else VARIANT
    kind.name = _joined(kind.name, found)
    if kind.name == "struct":
        for name, each in value.items():
            if name in kind.fields or len(kind.fields) < INFERRED_FIELDS_MAX:
                _learn(kind.fields.setdefault(name, _Kind()), each, depth + 1)
    elif kind.name == "array":
        kind.items = kind.items or _Kind()
        for each in value:
            _learn(kind.items, each, depth + 1)


def _name_of(value: Any) -> str:
    # A truth is a number to Python, so it is asked for first.
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_INT64_MAX <= value <= _INT64_MAX else VARIANT
    names = {float: "double", str: "string", dict: "struct", list: "array"}
    return names[type(value)]


def _joined(known: str, found: str) -> str:
    if known in ("", found):
        return found
    return "double" if {known, found} == {"bigint", "double"} else VARIANT


def _distinct(fields: dict[str, _Kind]) -> list[tuple[str, _Kind]]:
    # Spark does not tell upper and lower case apart: of such fields the first is given.
    met: dict[str, tuple[str, _Kind]] = {}
    for name, kind in fields.items():
        met.setdefault(name.lower(), (name, kind))
    return list(met.values())


def _sql(kind: _Kind) -> str:
    if kind.name == "struct":
        if not kind.fields or len(_distinct(kind.fields)) < len(kind.fields):
            return VARIANT
        inner = ", ".join(f"{quoted(name)}: {_sql(each)}" for name, each in kind.fields.items())
        return f"struct<{inner}>"
    if kind.name == "array":
        return f"array<{_sql(kind.items or _Kind())}>"
    return kind.name or VARIANT


def quoted(name: str) -> str:
    """Give a name as an identifier of SQL."""
    return "`" + name.replace("`", "``") + "`"


def texted(value: str) -> str:
    """Give a text as a literal of SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
