"""Texts with names of columns in braces: `totals.{region}.{day}`.

They say where a row goes: its subject, or its key. Pure but for the columns that they become.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.errors import UsageError

_PART = re.compile(r"\{([^{}]*)\}|([^{}]+)|(.)", re.DOTALL)


class Template(msgspec.Struct, frozen=True):
    """A text, taken apart: pairs of words that stand as they are and of columns' names."""

    text: str
    parts: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> list[str]:
        """The names in it."""
        return [column for _, column in self.parts if column]

    def example(self) -> str:
        """Give a text that it might become."""
        return "".join(word or "x" for word, _ in self.parts)

    def value(self) -> Column:
        """Give it as a column; it is null where one of its columns is."""
        every = [
            F.col(f"`{column}`").cast("string") if column else F.lit(word)
            for word, column in self.parts
        ]
        return F.concat(*every)

    def check(self, known: Iterable[str], what: str) -> None:
        """Refuse a template with names that no column has."""
        names = list(known)
        for column in self.columns:
            if column not in names:
                raise UsageError(
                    f"{what} {self.text!r}: the frame has no column {column!r}, "
                    f"but {', '.join(names)}"
                )


def read_template(text: str, what: str) -> Template:
    """Take a text apart; raises UsageError."""
    parts = []
    for name, word, stray in _PART.findall(text):
        if stray or not (name or word) or "`" in name:
            raise UsageError(f"{what} {text!r}: braces hold the name of a column, as in {{region}}")
        parts.append((word, name))
    if not parts:
        raise UsageError(f"{what}: a text with names of columns in braces, not {text!r}")
    return Template(text, tuple(parts))
