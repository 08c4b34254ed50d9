"""The values of the configuration language that are no maps and no arrays.

Strings come bare, quoted, with escapes, or as blocks in parentheses; what starts as a number may
turn out to be a size (64mb), a date, an address (127.0.0.1:4222) or just a string (30s).

Pure. The lexer stands on it.
"""

from __future__ import annotations

import re

from penstock.config.cursor import END, Cursor, Kind, State, shown

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
