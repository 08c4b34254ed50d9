"""A cursor over configuration text, and the items that it leaves behind.

A place is a line (from 1) and a column in bytes: from 0 in the first line, from 1 in the others, as
the reference server counts them. Nesting is bounded here, at the one place where it grows.

Pure. Only the lexer and its values stand on it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import msgspec

from penstock import limits
from penstock.errors import ConfigSyntaxError

END = "\0"
"""Stands for the end of the text; a NUL in the text is taken for it too."""


class Kind(Enum):
    """What an item is."""

    KEY = auto()
    STRING = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    FLOAT = auto()
    DATE = auto()
    VARIABLE = auto()
    INCLUDE = auto()
    ARRAY_START = auto()
    ARRAY_END = auto()
    MAP_START = auto()
    MAP_END = auto()
    END = auto()


class Item(msgspec.Struct, frozen=True):
    """One word of a file and where it is."""

    kind: Kind
    text: str
    line: int
    column: int


State = Callable[[], "State | None"]


class Cursor:
    """Walks one text. States read on from here: each reads some characters, may leave items, and
    names the state that follows; `_after` holds what follows the value being read.
    """

    def __init__(self, text: str, file: str) -> None:
        """`text` is UTF-8 decoded with surrogateescape, so that bad bytes keep their place."""
        self._text = text
        self._file = file
        self._is_ascii = text.isascii()
        self._start = 0
        self._position = 0
        self._width = 0
        self._line = 1
        # Where the line under the cursor starts, and the line where the item being read started.
        self._line_start = 0
        self._item_line_start = 0
        self._after: list[State] = []
        self._parts: list[bytes] = []
        self._found: list[Item] = []

    def _next(self) -> str:
        if self._position >= len(self._text):
            self._width = 0
            return END
        character = self._text[self._position]
        if character == "\n":
            self._line += 1
            self._line_start = self._position
        self._width = 1
        self._position += 1
        return character

    def _back(self) -> None:
        self._position -= self._width
        if self._position < len(self._text) and self._text[self._position] == "\n":
            self._line -= 1

    def _peek(self) -> str:
        character = self._next()
        self._back()
        return character

    def _drop(self) -> None:
        self._start = self._position
        self._item_line_start = self._line_start

    def _skip_to(self, state: State) -> State:
        self._drop()
        return state

    def _bytes_between(self, start: int, end: int) -> int:
        if self._is_ascii:
            return end - start
        return len(self._text[start:end].encode("utf-8", "surrogateescape"))

    def _emit(self, kind: Kind) -> None:
        text = self._text[self._start : self._position]
        length = self._bytes_between(self._start, self._position)
        if self._parts:
            whole = b"".join((*self._parts, text.encode("utf-8", "surrogateescape")))
            text = whole.decode("utf-8", "surrogateescape")
            length = len(whole)
            self._parts.clear()
        column = self._bytes_between(self._item_line_start, self._position) - length
        self._found.append(Item(kind, text, self._line, column))
        self._drop()

    def _fail(self, reason: str) -> ConfigSyntaxError:
        column = self._bytes_between(self._line_start, self._position)
        text = f"Parse error on line {self._line}: '{reason}'"
        return ConfigSyntaxError(self._file, self._line, column, text)

    def _push(self, state: State) -> None:
        if len(self._after) >= limits.CONFIG_DEPTH_MAX:
            raise self._fail("Maps and arrays are nested too deeply.")
        self._after.append(state)

    def _pop(self) -> State:
        if not self._after:
            raise self._fail("Unexpected end of a block.")
        return self._after.pop()

    def _close_quoted(self, kind: Kind) -> State:
        self._back()
        self._emit(kind)
        self._next()
        self._drop()
        return self._pop()

    def _end_of_text(self) -> None:
        if self._position > self._start:
            raise self._fail("Unexpected EOF.")
        self._emit(Kind.END)


def shown(character: str) -> str:
    """Give a character as error messages show it."""
    return "\\n" if character == "\n" else character
