"""What a JSON value is, in the words that errors use for it. Pure."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """The kinds of values."""

    NULL = "null"
    BOOL = "bool"
    NUMBER = "number"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"
