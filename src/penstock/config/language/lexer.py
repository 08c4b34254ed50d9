"""The words of the configuration language: text in, items out.

    port: 4222                      # a comment
    authorization { users = [ {user: a, password: "s\\x21"} ] }
    include ./more.conf

The language has no grammar but its first implementation, and files in the wild lean on all of it: a
key may be parted from its value by `=`, `:` or nothing; values end at a new line, `,` or `;`; the
whole file may stand in braces; what starts as a number may turn out to be a string. So this is a
machine of states like the first one, and agrees with it on what is accepted, on values and places.

A place is a line (from 1) and a column in bytes: from 0 in the first line, from 1 in the others.
Nesting is bounded. Pure: no files, no environment. Called by the parser only.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config.language.scanner import (
    BLANKS,
    END,
    NEW_LINES,
    Item,
    Kind,
    ScalarLexer,
    State,
    shown,
)

_SEPARATORS = "=:"
_SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | frozenset(
    map(chr, range(0x2000, 0x200B))
)


class Lexer(ScalarLexer):
    """Cuts one text into items; `items()` may be walked once."""

    def items(self) -> Iterator[Item]:
        """Return the items, the last of kind END; raise ConfigSyntaxError for text that is none."""
        state: State | None = self._top
        while state is not None:
            state = state()
            if self._found:
                yield from self._found
                self._found.clear()

    # Comments.

    def _comment_starts(self, character: str) -> bool:
        """Return True if a comment starts here; a lone slash stays behind the cursor."""
        if character == "#":
            return True
        if character != "/":
            return False
        if self._next() == "/":
            return True
        self._back()
        return False

    def _comment(self, after: State) -> State:
        while self._peek() not in NEW_LINES + END:
            self._next()
        self._drop()
        return after

    # Outside of all maps. `_block…` is the same within braces around the whole file.

    def _top(self) -> State | None:
        return self._outermost(self._top, self._top, self._top_value_end)

    def _block_start(self) -> State | None:
        return self._outermost(self._block_start, self._block_end, self._block_value_end)

    def _outermost(self, again: State, outer: State, value_end: State) -> State | None:
        character = self._next()
        if character in _SPACES:
            return self._skip_to(again)
        if character == "{":
            self._push(outer)
            return self._skip_to(self._block_start)
        if character == "}" and again == self._block_start:
            self._drop()
            return self._pop()
        if self._comment_starts(character):
            return self._comment(again)
        if character in "/" + END:
            self._end_of_text()
            return None
        self._back()
        self._push(value_end)
        return self._key_start

    def _top_value_end(self) -> State | None:
        character = self._next()
        if self._comment_starts(character):
            return self._comment(self._top)
        if character in "/" + BLANKS:
            return self._top_value_end
        if character in NEW_LINES + END + ";,}":
            return self._skip_to(self._top)
        raise self._fail(
            "Expected a top-level value to end with a new line, comment or EOF, "
            f"but got '{shown(character)}' instead."
        )

    def _block_value_end(self) -> State | None:
        character = self._next()
        if self._comment_starts(character):
            return self._comment(self._block_value_end)
        if character in "/" + BLANKS:
            return self._block_value_end
        if character in NEW_LINES + ";,":
            return self._skip_to(self._block_start)
        if character == "}":
            self._back()
            return self._block_end
        raise self._fail(
            "Expected a block-level value to end with a new line, comment or EOF, "
            f"but got '{shown(character)}' instead."
        )

    def _block_end(self) -> State | None:
        character = self._next()
        if self._comment_starts(character):
            return self._comment(self._block_start)
        if character in "/" + BLANKS + NEW_LINES:
            return self._block_end
        if character in ";,":
            return self._skip_to(self._block_start)
        if character == "}":
            self._drop()
            return self._pop()
        raise self._fail(
            f"Expected a block-level to end with a '}}', but got '{shown(character)}' instead."
        )

    # Keys.

    def _key_start(self) -> State | None:
        character = self._peek()
        if character in _SEPARATORS:
            raise self._fail(f"Unexpected key separator '{character}'")
        if character in _SPACES:
            self._next()
            return self._skip_to(self._key_start)
        if character in "\"'":
            self._next()
            self._drop()
            if not self._quoted_key(character):
                self._end_of_text()
                return None
            return self._skip_to(self._key_end)
        self._drop()
        self._next()
        self._bare_key(_SEPARATORS + END)
        if self._is_include():
            return self._include_start
        self._emit(Kind.KEY)
        return self._key_end

    def _quoted_key(self, quote: str) -> bool:
        """Read a key and its closing quote; False if the text ends before."""
        while (character := self._peek()) != quote:
            if character == END:
                return False
            self._next()
        self._emit(Kind.KEY)
        self._next()
        return True

    def _bare_key(self, ends: str) -> None:
        while (character := self._peek()) not in ends and character not in _SPACES:
            self._next()

    def _is_include(self) -> bool:
        """Return True if the word just read is the keyword; before a separator it is not."""
        if self._peek() not in _SPACES:
            return False
        if self._text[self._start : self._position].lower() != "include":
            return False
        self._drop()
        return True

    def _key_end(self) -> State | None:
        character = self._next()
        if character in _SPACES:
            return self._skip_to(self._key_end)
        if character in _SEPARATORS:
            return self._skip_to(self._value)
        if character == END:
            self._emit(Kind.END)
            return None
        self._back()
        return self._value

    def _include_start(self) -> State | None:
        character = self._next()
        if character in BLANKS:
            return self._skip_to(self._include_start)
        found = {"[": "start of an array", "{": "start of a map", "(": "start of a block"}
        found |= {"-": "start of a number", "\\": "escape sequence", "\n": "new line"}
        found |= {"\r": "new line"}
        what = "start of a number" if character.isdecimal() else found.get(character)
        if what is not None:
            prefix = "Expected include value but found "
            raise self._fail(prefix + what)
        if character in "\"'":
            self._drop()
            return self._quoted_include(character)
        self._back()
        return self._bare_include()

    def _quoted_include(self, quote: str) -> State:
        while (character := self._next()) != quote:
            if character == END:
                kind = "quoted" if quote == "'" else "double quoted"
                raise self._fail(f"Unexpected EOF in {kind} include")
        return self._close_quoted(Kind.INCLUDE)

    def _bare_include(self) -> State:
        while (character := self._next()) not in NEW_LINES + BLANKS + END + ";}'":
            pass
        if character == "'":
            return self._close_quoted(Kind.INCLUDE)
        self._back()
        self._emit(Kind.INCLUDE)
        return self._pop()

    # Maps.

    def _map_key_start(self) -> State | None:
        character = self._peek()
        if character in _SEPARATORS:
            raise self._fail(f"Unexpected key separator '{character}'.")
        if character == "]":
            raise self._fail("Unexpected array end ']' processing map.")
        if character == END:
            raise self._fail("Unexpected EOF processing map.")
        if character in _SPACES:
            self._next()
            return self._skip_to(self._map_key_start)
        if character == "}":
            self._next()
            return self._map_end()
        if character in "#/":
            self._next()
            if self._comment_starts(character):
                return self._comment(self._map_key_start)
        elif character in "\"'":
            self._next()
            self._drop()
            if not self._quoted_key(character):
                kind = "quoted" if character == "'" else "double quoted"
                raise self._fail(f"Unexpected EOF processing {kind} map key.")
            return self._skip_to(self._map_key_end)
        self._drop()
        self._next()
        return self._map_key()

    def _map_key(self) -> State:
        self._bare_key(_SEPARATORS + END)
        if self._peek() == END:
            raise self._fail("Unexpected EOF processing map key.")
        if self._is_include():
            self._push(self._map_value_end)
            return self._include_start
        self._emit(Kind.KEY)
        return self._map_key_end

    def _map_key_end(self) -> State | None:
        character = self._next()
        if character in _SPACES:
            return self._skip_to(self._map_key_end)
        if character in _SEPARATORS:
            return self._skip_to(self._map_value)
        self._back()
        return self._map_value

    def _map_value(self) -> State | None:
        character = self._next()
        if character in _SPACES:
            return self._skip_to(self._map_value)
        if character == ",":
            raise self._fail('Unexpected map value terminator ",".')
        if character == "}":
            return self._map_end()
        self._back()
        self._push(self._map_value_end)
        return self._value

    def _map_value_end(self) -> State | None:
        character = self._next()
        if character in BLANKS:
            return self._skip_to(self._map_value_end)
        if self._comment_starts(character):
            return self._comment(self._map_value_end)
        if character in NEW_LINES + "/;,":
            return self._skip_to(self._map_key_start)
        if character == "}":
            return self._map_end()
        raise self._fail(
            'Expected a map value terminator "," or a map terminator "}", '
            f"but got '{shown(character)}' instead."
        )

    def _map_end(self) -> State:
        self._drop()
        self._emit(Kind.MAP_END)
        return self._pop()

    # Arrays.

    def _array_value(self) -> State | None:
        character = self._next()
        if character in _SPACES:
            return self._skip_to(self._array_value)
        if self._comment_starts(character):
            return self._comment(self._array_value)
        if character in "/,":
            raise self._fail("Unexpected array value terminator ','.")
        if character == "]":
            return self._array_end()
        self._back()
        self._push(self._array_value_end)
        return self._value

    def _array_value_end(self) -> State | None:
        character = self._next()
        if character in BLANKS:
            return self._skip_to(self._array_value_end)
        if self._comment_starts(character):
            return self._comment(self._array_value_end)
        if character in NEW_LINES + "/,":
            return self._skip_to(self._array_value)
        if character == "]":
            return self._array_end()
        raise self._fail(
            'Expected an array value terminator "," or an array terminator "]", '
            f"but got '{shown(character)}' instead."
        )

    def _array_end(self) -> State:
        self._drop()
        self._emit(Kind.ARRAY_END)
        return self._pop()

    # Values.

    def _value(self) -> State | None:
        character = self._next()
        if character in BLANKS:
            return self._skip_to(self._value)
        if character in "[{":
            self._drop()
            self._emit(Kind.ARRAY_START if character == "[" else Kind.MAP_START)
            return self._array_value if character == "[" else self._map_key_start
        if character in "'\"(":
            self._drop()
            return self._opened_string(character)
        if character == "-":
            return self._negative_number()
        if character.isdecimal():
            return self._number_or_string
        if character == ".":
            raise self._fail("Floats must start with a digit")
        if character in NEW_LINES:
            raise self._fail("Expected value but found new line")
        self._back()
        self._string_state = self._string
        return self._string
