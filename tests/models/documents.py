"""Documents as plain values: the slow, obvious way from a document to what is written of it."""

from __future__ import annotations

import typing
from typing import Annotated, Any

import msgspec

from penstock.text.json.shapes import OMIT_EMPTY, Word
from penstock.text.times import Instant


def plain(value: Any) -> Any:
    """Return a value of dicts, lists, strings and numbers, in the order in which it is written."""
    if isinstance(value, Instant | Word):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value, key=str.encode)}
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def _fields(document: msgspec.Struct) -> dict[str, Any]:
    found = {}
    hints = typing.get_type_hints(type(document), include_extras=True)
    for name in document.__struct_fields__:
        value = getattr(document, name)
        marks = typing.get_args(hints[name]) if typing.get_origin(hints[name]) is Annotated else ()
        if not (OMIT_EMPTY in marks and _is_empty(value)):
            found[name] = plain(value)
    return found


def _is_empty(value: Any) -> bool:
    if isinstance(value, Word):
        return value == next(iter(type(value)))
    return not isinstance(value, msgspec.Struct) and not value
