"""A cursor over configuration text, and the scalar values that it reads.

A location is a line (from 1) and a column in bytes: from 0 in the first line, from 1 in the others,
as the reference server counts them. The depth of nesting is bounded here.

Strings come bare, quoted, with escapes, or as blocks in parentheses. What starts as a number may
turn out to be a size (64mb), a date, an address (127.0.0.1:4222) or just a string (30s).

Pure. The lexer is built on it.
"""

from __future__ import annotations

import re
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
    """Return a character as error messages show it."""
    return "\\n" if character == "\n" else character


NEW_LINES = "\n\r"
BLANKS = " \t"

_BOOLEANS = frozenset({"true", "false", "on", "off", "yes", "no"})
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r", '"': b'"', "\\": b"\\"}
_SIZE_SUFFIXES = "kKmMgGtTpPeE"
_NUMBER_ENDS = NEW_LINES + BLANKS + END + "};,"
_STRING_ENDS = NEW_LINES + BLANKS + END + ";,]}"
_HEX_PAIR = re.compile("[0-9a-fA-F]{2}")
_DATE_SHAPE = "00-00T00:00:00Z"


class ScalarLexer(Cursor):
    """The states that read one string or number, from its first character to its end."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        # Where reading goes on after an escape.
        self._string_state: State = self._string

    def _opened_string(self, opening: str) -> State | None:
        if opening == "(":
            return self._block_string()
        if opening == '"':
            self._string_state = self._double_quoted
            return self._double_quoted
        while (character := self._next()) != "'":
            if character == END:
                self._end_of_text()
                return None
        return self._close_quoted(Kind.STRING)

    def _double_quoted(self) -> State | None:
        while (character := self._next()) != '"':
            if character == "\\":
                return self._escape()
            if character == END:
                self._end_of_text()
                return None
        return self._close_quoted(Kind.STRING)

    def _string(self) -> State | None:
        while (character := self._next()) not in _STRING_ENDS:
            if character == "\\":
                return self._escape()
            if character == "'":
                return self._close_quoted(Kind.STRING)
        self._back()
        word = self._text[self._start : self._position]
        if self._parts:
            self._emit(Kind.STRING)
        elif word.lower() in _BOOLEANS:
            self._emit(Kind.BOOLEAN)
        elif word.startswith("$"):
            self._start += 1
            self._emit(Kind.VARIABLE)
        else:
            self._emit(Kind.STRING)
        return self._pop()

    def _block_string(self) -> State:
        """Read up to a `)` alone on its line; where the text ends right there, it is part of it."""
        while (character := self._next()) != END:
            if character != ")" or self._text[self._position - 2] != "\n":
                continue
            if self._position >= len(self._text):
                self._emit(Kind.STRING)
                return self._pop()
            if self._text[self._position] == "\n":
                return self._close_quoted(Kind.STRING)
        raise self._fail("Unexpected EOF processing block.")

    def _escape(self) -> State:
        before = self._text[self._start : self._position - 1]
        self._parts.append(before.encode("utf-8", "surrogateescape"))
        character = self._next()
        if character == "x":
            self._parts.append(self._hex_escape())
        elif character in _ESCAPES:
            self._parts.append(_ESCAPES[character])
        else:
            raise self._fail(
                f"Invalid escape character '{shown(character)}'. Only the following "
                'escape characters are allowed: \\xXX, \\t, \\n, \\r, \\", \\\\.'
            )
        self._start = self._position
        return self._string_state

    def _hex_escape(self) -> bytes:
        prefix = "Expected two hexadecimal digits after '\\x', but "
        for _ in range(2):
            if self._next() in NEW_LINES:
                raise self._fail(prefix + "hit end of line")
        pair = self._text[self._position - 2 : self._position]
        if _HEX_PAIR.fullmatch(pair) is None:
            raise self._fail(f"{prefix}got '{pair}'")
        return bytes.fromhex(pair)

    # Numbers, and what turns out to be none.

    def _number_or_string(self) -> State:
        while (character := self._next()).isdecimal():
            pass
        if character == "-":
            if self._position - self._start != len("YYYY-"):
                raise self._fail("All ISO8601 dates must be in full Zulu form.")
            return self._date()
        if character == ".":
            return self._fraction()
        if character in _SIZE_SUFFIXES:
            return self._sized_number()
        if character not in _NUMBER_ENDS:
            self._string_state = self._string
            return self._string
        return self._number_ends(Kind.INTEGER)

    def _negative_number(self) -> State:
        character = self._next()
        if character == ".":
            raise self._fail("Floats must start with a digit, not '.'.")
        if not character.isdecimal():
            raise self._fail(f"Expected a digit but got '{shown(character)}'.")
        while (character := self._next()).isdecimal():
            pass
        if character == ".":
            return self._fraction()
        if character in _SIZE_SUFFIXES:
            return self._sized_number()
        return self._number_ends(Kind.INTEGER)

    def _number_ends(self, kind: Kind) -> State:
        self._back()
        self._emit(kind)
        return self._pop()

    def _sized_number(self) -> State:
        while (character := self._next()) in "bBiI":
            pass
        if character in _NUMBER_ENDS:
            return self._number_ends(Kind.INTEGER)
        self._back()
        self._string_state = self._string
        return self._string

    def _fraction(self) -> State:
        character = self._next()
        if not character.isdecimal():
            raise self._fail(
                f"Floats must have a digit after the '.', but got '{shown(character)}' instead."
            )
        while (character := self._next()).isdecimal():
            pass
        if character != ".":
            return self._number_ends(Kind.FLOAT)
        # A second point: an address, with or without a port.
        while (character := self._next()).isdecimal() or character in ".:-":
            pass
        return self._number_ends(Kind.STRING)

    def _date(self) -> State:
        for expected in _DATE_SHAPE:
            character = self._next()
            if expected == "0":
                if not character.isdecimal():
                    raise self._fail(
                        "Expected digit in ISO8601 datetime, "
                        f"but found '{shown(character)}' instead."
                    )
            elif character != expected:
                raise self._fail(
                    f"Expected '{expected}' in ISO8601 datetime, "
                    f"but found '{shown(character)}' instead."
                )
        self._emit(Kind.DATE)
        return self._pop()
