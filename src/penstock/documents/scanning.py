"""JSON text into a tree of values that still know where they stood.

The tree keeps the order of keys and every key that comes twice, because what such a document means
is decided by who reads it. The words of errors and the offsets are the reference server's: an
offset counts the bytes up to and with the ones that are wrong.

What always holds: nesting is bounded (`JSON_DEPTH_MAX`) and costs no stack; a text is walked once.

Pure; any thread.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NoReturn

import msgspec

from penstock.errors import InvalidDocument
from penstock.limits import JSON_DEPTH_MAX
from penstock.protocol.quoting import quoted

_WHITE: Final = re.compile(rb"[ \t\r\n]*")
_TEXT_BODY: Final = rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
_TEXT_START: Final = re.compile(_TEXT_BODY)
_TEXT: Final = re.compile(_TEXT_BODY + b'"')
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_UNICODE_ESCAPE_START: Final = re.compile(rb"\\u[0-9a-fA-F]{0,3}")
_ESCAPE: Final = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\.")
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}
_CLOSING: Final = {"object": b"}", "array": b"]"}
_REPLACEMENT: Final = "\ufffd"


class Kind(StrEnum):
    """What a value is, in the word that errors use for it."""

    NULL = "null"
    BOOL = "bool"
    NUMBER = "number"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"


class SyntaxFault(InvalidDocument):
    """Text that is no JSON; `offset` counts the bytes up to and with the ones that are wrong."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class UnfinishedText(InvalidDocument):
    """The text ends within a value."""

    def __init__(self) -> None:
        super().__init__("unexpected end of JSON input")


class Node(msgspec.Struct, eq=False):
    """A value, from `start` to `end` of `data`; arrays have items, objects keys and items."""

    kind: Kind
    data: bytes
    start: int
    end: int
    keys: list[str] = msgspec.field(default_factory=list)
    items: list[Node] = msgspec.field(default_factory=list)

    @property
    def raw(self) -> bytes:
        """Its text as it was sent."""
        return self.data[self.start : self.end]

    @property
    def text(self) -> str:
        """What a string says."""
        return unquoted(self.raw)


def scan(data: bytes, start: int = 0) -> tuple[Node | None, int]:
    """Read one value; give it and where it ends, None where only white space is left.

    Raises SyntaxFault and UnfinishedText.
    """
    scanner = _Scanner(data, start)
    if scanner.at_end():
        return None, scanner.position
    return scanner.value(), scanner.position


def check_end(data: bytes, start: int) -> None:
    """Raise SyntaxFault if anything but white space follows."""
    scanner = _Scanner(data, start)
    if not scanner.at_end():
        scanner.fail("after top-level value")


def unquoted(raw: bytes) -> str:
    """Give what a string says; bytes and surrogates that are no text become U+FFFD."""
    try:
        text = raw[1:-1].decode()
    except UnicodeDecodeError:
        # Every byte for itself, where Python's own "replace" would take some together.
        text = raw[1:-1].decode("utf-8", "surrogateescape")
        text = re.sub("[\udc80-\udcff]", _REPLACEMENT, text)
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(found: re.Match[str]) -> str:
    escape = found[0]
    if not escape.startswith("\\u"):
        return _ESCAPED.get(escape[1], escape[1])
    units = b"".join(int(code, 16).to_bytes(2, "big") for code in escape.split("\\u")[1:])
    text = units.decode("utf-16-be", "surrogatepass")
    return re.sub("[\ud800-\udfff]", _REPLACEMENT, text)


class _Scanner:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._open: list[Node] = []
        self.position = position

    def at_end(self) -> bool:
        """Pass white space; tell whether nothing follows."""
        found = _WHITE.match(self._data, self.position)
        self.position = found.end() if found else self.position
        return self.position == len(self._data)

    def value(self) -> Node:
        """Read the value that starts here."""
        while True:
            node = self._begin()
            if node.kind in (Kind.ARRAY, Kind.OBJECT):
                if len(self._open) == JSON_DEPTH_MAX:
                    raise SyntaxFault("exceeded max depth", self.position)
                self._open.append(node)
                if self._next() != _CLOSING[node.kind]:
                    if node.kind is Kind.OBJECT:
                        self._key(node)
                    continue
                self._close()
            while self._open and not self._goes_on():
                self._close()
            if not self._open:
                return self._root

    def _begin(self) -> Node:
        first = self._next()
        start = self.position
        if first == b'"':
            kind = Kind.STRING
            self._take_text()
        elif first in (b"{", b"["):
            kind = Kind.OBJECT if first == b"{" else Kind.ARRAY
            self.position += 1
        elif first in _LITERALS:
            kind = Kind.NULL if first == b"n" else Kind.BOOL
            self._take_literal(_LITERALS[first])
        elif first == b"-" or first.isdigit():
            kind = Kind.NUMBER
            self._take_number()
        else:
            self.fail("looking for beginning of value")
        node = Node(kind, self._data, start, self.position)
        if self._open:
            self._open[-1].items.append(node)
        else:
            self._root = node
        return node

    def _goes_on(self) -> bool:
        """Pass what follows a value in an array or object; tell whether another one comes."""
        node = self._open[-1]
        following = self._next()
        if following == _CLOSING[node.kind]:
            return False
        if following != b",":
            is_object = node.kind is Kind.OBJECT
            self.fail("after object key:value pair" if is_object else "after array element")
        self.position += 1
        if node.kind is Kind.OBJECT:
            self._key(node)
        return True

    def _key(self, node: Node) -> None:
        if self._next() != b'"':
            self.fail("looking for beginning of object key string")
        node.keys.append(unquoted(self._take_text()))
        if self._next() != b":":
            self.fail("after object key")
        self.position += 1

    def _close(self) -> None:
        node = self._open.pop()
        self.position += 1
        node.end = self.position

    def _next(self) -> bytes:
        """Pass white space; give the byte that follows, which must be there."""
        if self.at_end():
            raise UnfinishedText
        return self._data[self.position : self.position + 1]

    def _take_literal(self, literal: bytes) -> None:
        start = self.position
        for place, wanted in enumerate(literal):
            self.position = start + place
            if self.position == len(self._data):
                raise UnfinishedText
            if self._data[self.position] != wanted:
                self.fail(f"in literal {literal.decode()} (expecting '{chr(wanted)}')")
        self.position += 1

    def _take_number(self) -> None:
        found = _NUMBER.match(self._data, self.position)
        if found is None:
            self.position += 1
            self._fail_number()
        self.position = found.end()
        following = self._data[self.position : self.position + 1]
        if following == b"." and found[1] is None and found[2] is None:
            self.position += 1
            self._fail_number()
        if following in (b"e", b"E") and found[2] is None:
            self.position += 1
            self.position += self._data[self.position : self.position + 1] in (b"+", b"-")
            self._fail_number()

    def _fail_number(self) -> NoReturn:
        if self.position == len(self._data):
            raise UnfinishedText
        self.fail("in numeric literal")

    def _take_text(self) -> bytes:
        found = _TEXT.match(self._data, self.position)
        if found is None:
            self._fail_text()
        self.position = found.end()
        return found[0]

    def _fail_text(self) -> NoReturn:
        found = _TEXT_START.match(self._data, self.position)
        start = self.position = found.end() if found else self.position
        following = self._data[start : start + 6]
        if not following or following == b"\\":
            raise UnfinishedText
        if not following.startswith(b"\\"):
            self.fail("in string")
        if not following.startswith(b"\\u"):
            following = following[:2]
        elif len(following) < 6 and _UNICODE_ESCAPE_START.fullmatch(following):
            raise UnfinishedText
        shown = following.decode("utf-8", "replace")
        if shown.isprintable() and " " not in shown and "`" not in shown and "\ufffd" not in shown:
            escape = f"`{shown}`"
        else:
            escape = quoted(following)
        raise SyntaxFault(f"invalid escape sequence {escape} in string", start + len(following))

    def fail(self, where: str) -> NoReturn:
        """Say that the character here is wrong."""
        rest = self._data[self.position : self.position + 4]
        for size in range(1, len(rest) + 1):
            try:
                character = rest[:size].decode()
            except UnicodeDecodeError:
                continue
            break
        else:
            size, character = 1, ""
        shown = quoted(character.encode() or rest[:1])[1:-1].replace('\\"', '"')
        shown = "\\'" if character == "'" else shown
        raise SyntaxFault(f"invalid character '{shown}' {where}", self.position + size)
