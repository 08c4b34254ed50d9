"""SQL text, parsed just enough: where statements end, and which names and columns they mention.

Spark parses SQL. Only this must be known before: a table that no statement mentions need not be
created, and a column that none mentions need not be read. In doubt everything is mentioned, so that
a wrong guess costs time and never rows. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>\w+)
    |(?P<open>['"`]|/\*)
    |(?P<symbol>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_READING = frozenset(
    {"select", "with", "from", "values", "table", "(", "explain", "describe", "desc", "show"}
)
"""The first words of statements that only read."""

_CHANGES = frozenset({"insert", "update", "delete", "merge", "create", "cache"})

_WHOLE_ROWS = frozenset({"natural", "pivot", "unpivot", "identifier", "table", "describe", "desc"})
"""Words with which a statement may read columns that it does not mention."""

_BEFORE_SELECT = frozenset({"", "(", "as", "all", "distinct", "union", "intersect", "except"})
"""The words before a `FROM` that stands for `SELECT * FROM`."""


class Token(msgspec.Struct, frozen=True):
    """A piece of a statement that is no space and no comment."""

    kind: str
    text: str
    start: int

    @property
    def name(self) -> str:
        """The token as an identifier, without its quotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def tokens(text: str) -> Iterator[Token]:
    """Yield the pieces of a text; one of kind `open` is a quote or comment that never ends."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "symbol"
        if kind != "space":
            yield Token(kind, found.group(), found.start())
        if kind == "open":
            return


def split(text: str) -> tuple[list[str], str]:
    """Return the statements of a text that end with `;`, and the text behind the last."""
    statements = []
    start = 0
    for token in tokens(text):
        if token.text == ";":
            statements.append(text[start : token.start])
            start = token.start + 1
    return [each.strip() for each in statements if any(tokens(each))], text[start:]


def names(statement: str) -> frozenset[str]:
    """Return every name in a statement as written, SQL keywords included."""
    found = tokens(statement)
    return frozenset(each.name for each in found if each.kind in ("word", "quoted"))


def lowered(found: Iterable[str]) -> frozenset[str]:
    """Return names as Spark compares them: in lower case."""
    return frozenset(each.lower() for each in found)


def only_reads(statement: str) -> bool:
    """Return True if a statement surely changes nothing, so that Spark may run it twice."""
    first = next(tokens(statement), None)
    if first is None or first.text.lower() not in _READING:
        return False
    return not lowered(names(statement)) & _CHANGES


def reads_whole_rows(statement: str) -> bool:
    """Return True if a statement may read columns that it does not mention."""
    if lowered(names(statement)) & _WHOLE_ROWS:
        return True
    texts = ["", *(each.text.lower() for each in tokens(statement)), ""]
    for place, text in enumerate(texts):
        # The star of `count(*)` stands for no column; any other may stand for all of them.
        if text == "*" and texts[max(place - 2, 0) : place + 2] != ["count", "(", "*", ")"]:
            return True
        if text == "from" and texts[place - 1] in _BEFORE_SELECT:
            return True
        if text == "|" and texts[place + 1] == ">":
            return True
    return False
