"""Which fields the JSON payloads of a stream have, and of which types: inferred from samples.

Invariant: a field with several types is a variant, which holds anything. A value that was not among
the samples is at worst null in its column, and never an error. Pure.
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
    """What is known of one field's type; nothing yet if `name` is empty."""

    name: str = ""
    fields: dict[str, _Kind] = msgspec.field(default_factory=dict)
    items: _Kind | None = None


def infer(payloads: Iterable[bytes]) -> list[Field]:
    """Return the fields of payloads, in the order in which they appear.

    Payloads that are no JSON objects are ignored.
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
    # These letters cannot be in a path into a variant.
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
    # A bool is an int in Python, so it is checked first.
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
    # Spark ignores case: of fields that differ only by case, the first is returned.
    met: dict[str, tuple[str, _Kind]] = {}
    for name, kind in fields.items():
        met.setdefault(name.lower(), (name, kind))
    return list(met.values())


def _sql(kind: _Kind) -> str:
    if kind.name == "struct":
        if not kind.fields or len(_distinct(kind.fields)) < len(kind.fields):
            return VARIANT
        inner = ", ".join(f"{quote_name(name)}: {_sql(each)}" for name, each in kind.fields.items())
        return f"struct<{inner}>"
    if kind.name == "array":
        return f"array<{_sql(kind.items or _Kind())}>"
    return kind.name or VARIANT


def quote_name(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(value: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
