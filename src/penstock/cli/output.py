"""What commands print: tables for people or one JSON document, behind one small interface.

A command tells its facts and rows as plain values under stable names; how they look is decided
here. For people they are printed at once; as JSON they are gathered and printed at the end, so that
what a program reads is whole or not there. Progress goes to stderr, and only to a terminal.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Value = object
"""What JSON can hold: None, bool, int, float, str, and lists and dicts of these."""

Show = Callable[[object], str]

Tell = Callable[[int, int], None]
"""Called with how much is done, and how much there is in all."""

WIDTH_WITHOUT_TERMINAL = 10_000
"""Into a file or a pipe a table is as wide as its contents: nothing is cut off or folded."""


@dataclass(frozen=True, slots=True)
class Column:
    """One field of rows: its name in JSON, its heading for people, and how a value looks."""

    name: str
    heading: str
    show: Show = str
    right: bool = False


class Output(Protocol):
    """Where a command's results go."""

    def facts(self, facts: Mapping[str, Value], shown: Sequence[Column]) -> None:
        """Tell single values; people see those that have a column, one a line."""
        ...

    def rows(
        self,
        name: str,
        columns: Sequence[Column],
        rows: Sequence[Mapping[str, Value]],
        *,
        title: str = "",
    ) -> None:
        """Tell a list of alike things."""
        ...

    def say(self, text: str, *, style: str = "") -> None:
        """Tell people something that is no value of its own."""
        ...

    def finish(self) -> None:
        """Print what is still to be printed."""
        ...


class PeopleOutput:
    """Tables and sentences."""

    def __init__(self) -> None:
        self._console = people_console()

    def facts(self, facts: Mapping[str, Value], shown: Sequence[Column]) -> None:
        """Print the facts that have a column, one a line."""
        if not shown:
            return
        grid = Table.grid(padding=(0, 2))
        for column in shown:
            grid.add_row(column.heading, _shown(column, facts.get(column.name)))
        self._console.print(grid)

    def rows(
        self,
        name: str,
        columns: Sequence[Column],
        rows: Sequence[Mapping[str, Value]],
        *,
        title: str = "",
    ) -> None:
        """Print a table."""
        table = Table(title=title or None, title_justify="left", header_style="bold")
        for column in columns:
            table.add_column(column.heading, justify="right" if column.right else "left")
        for row in rows:
            table.add_row(*(_shown(column, row.get(column.name)) for column in columns))
        self._console.print(table)

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line."""
        self._console.print(text, style=style or None, soft_wrap=True)

    def finish(self) -> None:
        """Nothing is left to print."""


class JsonOutput:
    """One JSON document on stdout."""

    def __init__(self) -> None:
        self._document: dict[str, Value] = {}

    def facts(self, facts: Mapping[str, Value], shown: Sequence[Column]) -> None:
        """Put the facts into the document."""
        self._document.update(facts)

    def rows(
        self,
        name: str,
        columns: Sequence[Column],
        rows: Sequence[Mapping[str, Value]],
        *,
        title: str = "",
    ) -> None:
        """Put the list into the document."""
        self._document[name] = list(rows)

    def say(self, text: str, *, style: str = "") -> None:
        """Leave out what is only for people."""

    def finish(self) -> None:
        """Print the document."""
        sys.stdout.write(json.dumps(self._document, indent=2) + "\n")
        self._document = {}


def make_output(*, as_json: bool) -> Output:
    """Give the output that was asked for."""
    return JsonOutput() if as_json else PeopleOutput()


def people_console() -> Console:
    """Give a console on stdout that prints text as it is, without markup."""
    width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(markup=False, highlight=False, emoji=False, width=width)


@contextlib.contextmanager
def progress(what: str, *, is_shown: bool = True) -> Iterator[Tell]:
    """Give a function to tell how far it is; a bar shows it where stderr is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (is_shown and console.is_terminal),
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _shown(column: Column, value: Value) -> str:
    return "-" if value is None else column.show(value)


# How values look


def count(value: object) -> str:
    """Give a number with its thousands apart."""
    return f"{value:,}"


def size(value: object) -> str:
    """Give a number of bytes in the unit that suits it."""
    assert isinstance(value, int | float)
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def listed(values: object) -> str:
    """Give a list's values on one line."""
    assert isinstance(values, list)
    return ", ".join(text(value) for value in values) or "none"


def text(value: object) -> str:
    """Give a text of others so that it cannot play with the terminal."""
    return printable(str(value).encode("utf-8", "backslashreplace"))


def moment(value: object) -> str:
    """Give a time of ours as people read it: to the millisecond, without the T."""
    return f"{str(value)[:23].replace('T', ' ')}Z"


def yes_or_no(value: object) -> str:
    """Give a truth in a word."""
    return "yes" if value else "no"


def rfc3339(time_ns: int) -> str | None:
    """Give a time in UTC with all nine digits, None for no time at all."""
    if not time_ns:
        return None
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    try:
        whole = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def printable(data: bytes) -> str:
    """Give bytes as text that is safe on a terminal: what does not print is escaped."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
