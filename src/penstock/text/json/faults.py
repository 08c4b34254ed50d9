"""Errors of text that is no JSON, and the names of the kinds of values, in the server's words.

The texts are those of the reference server. An offset counts the bytes up to and with the wrong
ones.

Pure; any thread. Called by `scan` and `walk` after they met something wrong.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from penstock.errors import InvalidDocument
from penstock.text.quoting import quoted_bytes

_TEXT_START: Final = re.compile(
    rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
)
_UNICODE_ESCAPE_START: Final = re.compile(rb"\\u[0-9a-fA-F]{0,3}")


class SyntaxFault(InvalidDocument):
    """Text that is no JSON; `offset` counts the bytes up to and with the ones that are wrong."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class UnfinishedText(InvalidDocument):
    """The text ends within a value."""

    def __init__(self) -> None:
        super().__init__("unexpected end of JSON input")


def character_fault(data: bytes, position: int, where: str) -> InvalidDocument:
    """Say that the character at a position is wrong, or that one is missing there."""
    if position == len(data):
        return UnfinishedText()
    rest = data[position : position + 4]
    for size in range(1, len(rest) + 1):
        try:
            character = rest[:size].decode()
        except UnicodeDecodeError:
            continue
        break
    else:
        size, character = 1, ""
    shown = quoted_bytes(character.encode() or rest[:1])[1:-1].replace('\\"', '"')
    shown = "\\'" if character == "'" else shown
    return SyntaxFault(f"invalid character '{shown}' {where}", position + size)


def text_fault(data: bytes, start: int) -> InvalidDocument:
    """Say what is wrong with the string that starts at a position."""
    found = _TEXT_START.match(data, start)
    position = found.end() if found else start
    following = data[position : position + 6]
    if not following or following == b"\\":
        return UnfinishedText()
    if not following.startswith(b"\\"):
        return character_fault(data, position, "in string")
    if not following.startswith(b"\\u"):
        following = following[:2]
    elif len(following) < 6 and _UNICODE_ESCAPE_START.fullmatch(following):
        return UnfinishedText()
    shown = following.decode("utf-8", "replace")
    if shown.isprintable() and " " not in shown and "`" not in shown and "\ufffd" not in shown:
        escape = f"`{shown}`"
    else:
        escape = quoted_bytes(following)
    reason = f"invalid escape sequence {escape} in string"
    return SyntaxFault(reason, position + len(following))


class Kind(StrEnum):
    """The kinds of values."""

    NULL = "null"
    BOOL = "bool"
    NUMBER = "number"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"
