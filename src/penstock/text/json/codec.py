"""JSON documents read and written by the rules of the reference server, which are Go's.

Reading: keys match in any case, an exact match first. If a key occurs twice, the second value is
read over the first. A null leaves texts, numbers and flags unchanged and empties other fields. An
empty body is an empty document; several documents in one body are read one over the other. In
strict mode, a server's default, an unknown key is refused. Otherwise unknown keys are skipped, but
the body must be a single document. Errors name the first fault from the left.

Writing: documents by `write`, other values by `to_json`, compact or indented by two spaces. `<`,
`>` and `&` are escaped. Keys of documents' maps stand in the order of their bytes. Fields that a
class declares as `OMIT_EMPTY` are left out if empty, zero or false.

Pure; any thread.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from penstock import error_codes
from penstock.errors import ApiError, InvalidDocument
from penstock.limits import JSON_WORDS_AT_ONCE
from penstock.text.json import write
from penstock.text.json.faults import SyntaxFault, UnfinishedText
from penstock.text.json.scan import scan
from penstock.text.json.shapes import TEXT, Reading, StructShape, shape_of
from penstock.text.json.walk import check_end

D = TypeVar("D", bound=msgspec.Struct)


def decode_request(made: type[D], body: bytes, *, strict: bool = True) -> D:
    """Read the body of an API request; raise ApiError (invalid JSON)."""
    try:
        return decode(made, body, strict=strict)
    except InvalidDocument as error:
        raise ApiError(error_codes.INVALID_JSON, err=error.reason) from None


def decode(made: type[D], body: bytes, *, strict: bool = True) -> D:
    """Read a body; raise InvalidDocument in the reference server's words."""
    document: D | None = shape_of(made).quick.read(body)
    return decode_carefully(made, body, strict=strict) if document is None else document


def decode_carefully(made: type[D], body: bytes, *, strict: bool = True) -> D:
    """As `decode`, by all the rules: what is written in an unusual way, or wrongly."""
    shape = shape_of(made)
    try:
        draft = _read_all(shape, body)
    except InvalidDocument:
        if strict:
            raise
        draft = _read_one(shape, body)
    document: D = shape.finish(draft)
    return document


def decode_one(made: type[D], body: bytes) -> D:
    """Read a body that is a single document, passing over keys that are not known.

    Raises InvalidDocument.
    """
    shape = shape_of(made)
    document: D | None = shape.quick.read(body)
    if document is None:
        document = shape.finish(_read_one(shape, body))
    return document


def decode_plain(made: type[D], body: bytes) -> D:
    """Read a body that must be one document, and may say more than is known; raise ApiError."""
    try:
        return decode_one(made, body)
    except InvalidDocument as error:
        raise ApiError(error_codes.INVALID_JSON, err=error.reason) from None


def decode_text(raw: bytes) -> str:
    """Read a single string, empty for null; `raw` is one JSON value."""
    node, _ = scan(raw)
    return "" if node is None else str(TEXT.read(node, "", Reading("", strict=True)))


def _read_all(shape: StructShape, body: bytes) -> dict[str, Any]:
    draft = shape.zero()
    position = 0
    while True:
        try:
            node, position = scan(body, position)
        except SyntaxFault as fault:
            raise InvalidDocument(f"{fault.reason} at offset {fault.offset}") from None
        except UnfinishedText:
            raise InvalidDocument("unexpected EOF") from None
        if node is None:
            return draft
        draft = shape.read(node, draft, Reading(shape.made.__name__, strict=True))


def _read_one(shape: StructShape, body: bytes) -> dict[str, Any]:
    node, end = scan(body)
    check_end(body, end)
    if node is None:
        raise UnfinishedText
    return shape.read(node, shape.zero(), Reading(shape.made.__name__, strict=False))


_ESCAPES: Final = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


_PLANS: Final[dict[type[msgspec.Struct], write.StructPlan]] = {}


def to_json(value: Any, *, indented: bool = False) -> bytes:
    """Write a value of dicts, lists, strings and numbers."""
    return _written(_encoder(indented).encode(value))


def to_json_in_slices(value: Any) -> Generator[None, None, bytes]:
    """Write what `to_json` does, indented, some words at a time; the value may not change."""
    words = _encoder(indented=True).iterencode(value)
    parts = []
    while some := "".join(islice(words, JSON_WORDS_AT_ONCE)):
        parts.append(_written(some))
        yield
    return b"".join(parts)


def _encoder(indented: bool) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        indent=2 if indented else None,
        separators=(",", ": " if indented else ":"),
    )


def _written(text: str) -> bytes:
    # These characters can only stand within strings, so the whole text may be translated.
    return text.translate(_ESCAPES).encode("utf-8", "replace")


def encode(value: msgspec.Struct) -> bytes:
    """Write a document."""
    return shape_of(type(value)).plan.encode(value)


def encode_after(start: bytes, *values: msgspec.Struct | write.Encoded) -> bytes:
    """Write the fields of documents as one object behind `start`, its brace and first fields."""
    for each in values:
        if type(each) not in _PLANS and not isinstance(each, write.Encoded):
            _PLANS[type(each)] = shape_of(type(each)).plan
    return write.encode_after(start, values, _PLANS)


def document_of(value: msgspec.Struct) -> dict[str, Any]:
    """Return a document's fields as they are written, in their order."""
    document: dict[str, Any] = msgspec.json.decode(encode(value))
    return document
