"""Requests into documents, by the reference server's rules.

Keys match whatever their case; an exact match goes first. A key that comes twice counts twice: the
second goes on with what the first one left. A null leaves texts, numbers and flags as they are and
empties the rest. An empty body is the document with nothing said; several documents in one body are
read one over the other.

Strict, which is a server's default, a key that is not known is refused. Otherwise such keys are
passed over, but then the body must be a single document.

The first thing that is wrong, from the left, is the one that is told. Pure.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from penstock import error_codes
from penstock.documents.faults import SyntaxFault, UnfinishedText
from penstock.documents.scanning import scan
from penstock.documents.shapes import TEXT, Reading, StructShape, shape_of
from penstock.documents.walking import check_end
from penstock.errors import ApiError, InvalidDocument

D = TypeVar("D", bound=msgspec.Struct)


def decode_request(made: type[D], body: bytes, *, strict: bool = True) -> D:
    """Read the body of an API request; raise ApiError (invalid JSON)."""
    try:
        return decode(made, body, strict=strict)
    except InvalidDocument as error:
        raise ApiError(error_codes.INVALID_JSON, err=error.reason) from None


def decode(made: type[D], body: bytes, *, strict: bool = True) -> D:
    """Read a body; raise InvalidDocument in the reference server's words."""
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
    document: D = shape.finish(_read_one(shape, body))
    return document


def decode_plain(made: type[D], body: bytes) -> D:
    """Read a body that must be one document, and may say more than is known; raise ApiError."""
    shape = shape_of(made)
    try:
        document: D = shape.finish(_read_one(shape, body))
    except InvalidDocument as error:
        raise ApiError(error_codes.INVALID_JSON, err=error.reason) from None
    return document


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
