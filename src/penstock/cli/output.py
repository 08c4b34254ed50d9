"""What commands print: tables for people or one JSON document, and messages line by line.

A command passes its facts and rows as plain values under stable names; this module decides how they
look. For people they are printed at once. As JSON they are collected and printed at the end, so
that a program reads the whole document or nothing. Progress goes to stderr, and only to a terminal.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import BinaryIO, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from penstock.format.columns import MessageRow

Value = object
"""What JSON can hold: None, bool, int, float, str, and lists and dicts of these."""

Show = Callable[[object], str]

OnProgress = Callable[[int, int], None]
"""Called with how much is done and how much there is in all."""

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
        """Add single values; for people those that have a column are shown, one a line."""
        ...

    def rows(
        self,
        name: str,
        columns: Sequence[Column],
        rows: Sequence[Mapping[str, Value]],
        *,
        title: str = "",
    ) -> None:
        """Add a list of rows with the same fields."""
        ...

    def say(self, text: str, *, style: str = "") -> None:
        """Print a sentence for people; it is no part of the JSON document."""
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
    """Return the output for JSON, or else for people."""
    return JsonOutput() if as_json else PeopleOutput()


def people_console() -> Console:
    """Return a console on stdout that prints text as it is, without markup."""
    width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(markup=False, highlight=False, emoji=False, width=width)


@contextlib.contextmanager
def progress(what: str, *, is_shown: bool = True) -> Iterator[OnProgress]:
    """Yield a function to report progress with; a bar shows it if stderr is a terminal."""
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
    """Return a number with its thousands separated."""
    return f"{value:,}"


def size(value: object) -> str:
    """Return a number of bytes in a fitting unit."""
    assert isinstance(value, int | float)
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def listed(values: object) -> str:
    """Return a list's values on one line."""
    assert isinstance(values, list)
    return ", ".join(text(value) for value in values) or "none"


def text(value: object) -> str:
    """Return text of other clients so that it cannot control the terminal."""
    return printable(str(value).encode("utf-8", "backslashreplace"))


def moment(value: object) -> str:
    """Return an RFC 3339 time as people read it: to the millisecond, without the T."""
    return f"{str(value)[:23].replace('T', ' ')}Z"


def yes_or_no(value: object) -> str:
    """Return "yes" or "no"."""
    return "yes" if value else "no"


def rfc3339(time_ns: int) -> str | None:
    """Return a time in UTC with all nine digits, None for 0, which is no time."""
    if not time_ns:
        return None
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    try:
        whole = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def printable(data: bytes) -> str:
    """Return bytes as text that is safe on a terminal: what does not print is escaped."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class Format(StrEnum):
    """What one message becomes."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


def text_line(message: MessageRow, *, headers: bool) -> bytes:
    """Return a message as a line for people: sequence, time, subject, payload."""
    parts = [
        f"{message.seq:>10}",
        moment(rfc3339(message.timestamp_ns) or ""),
        printable(message.subject),
    ]
    if headers and message.headers:
        parts.append(f"[{printable(message.headers.strip())}]")
    parts.append(printable(message.payload))
    return "  ".join(parts).encode() + b"\n"


def json_line(message: MessageRow, *, headers: bool) -> bytes:
    """Return a message as a JSON object on a line."""
    document: dict[str, object] = {
        "seq": message.seq,
        "time": rfc3339(message.timestamp_ns),
        "subject": message.subject.decode("utf-8", "backslashreplace"),
    }
    return json_document(document, message.headers if headers else None, message.payload)


def json_document(
    document: dict[str, object], headers: bytes | None, payload: bytes | None
) -> bytes:
    """Return fields, with headers and a payload if they are wanted, as a JSON object on a line.

    A payload that is UTF-8 stands under `payload`, any other in base64 under `payload_base64`.
    """
    if headers is not None:
        document["headers"] = parse_headers(headers)
    if payload is not None:
        try:
            document["payload"] = payload.decode()
        except UnicodeDecodeError:
            document["payload_base64"] = base64.b64encode(payload).decode()
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def raw_line(message: MessageRow, *, headers: bool) -> bytes:
    """Return the payload as it is and a line end, after the header block if that is wanted."""
    return (message.headers if headers else b"") + message.payload + b"\n"


LINES: dict[Format, Callable[..., bytes]] = {
    Format.TEXT: text_line,
    Format.JSON: json_line,
    Format.RAW: raw_line,
}


def parse_headers(block: bytes) -> dict[str, list[str]]:
    """Return a header block's values by name, without the status line and malformed lines."""
    headers: dict[str, list[str]] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            key = name.decode("utf-8", "backslashreplace")
            headers.setdefault(key, []).append(value.strip().decode("utf-8", "backslashreplace"))
    return headers


def write_message(target: BinaryIO, message: MessageRow, how: Format, *, headers: bool) -> None:
    """Write one message."""
    target.write(LINES[how](message, headers=headers))
