"""Documents written as the reference server writes them.

JSON is Go's: compact or indented by two spaces, `<`, `>` and `&` escaped, keys of maps in the order
of their bytes, and of what a class declares as `OMIT_EMPTY` nothing where it is empty, zero or
false. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from penstock.documents.shapes import shape_of

_ESCAPES: Final = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def to_json(value: Any, *, indented: bool = False) -> bytes:
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


def document_of(value: msgspec.Struct) -> dict[str, Any]:
    """Give a document's fields as they are written, in their order."""
    return shape_of(type(value)).plain(value)


def encode(value: msgspec.Struct) -> bytes:
    """Write a document."""
    return to_json(document_of(value))
