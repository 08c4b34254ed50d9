"""The prompt of `penstock sql`: lines until `;`, with history and names of tables to complete.

    .tables          the tables
    .schema TABLE    the columns of one
    .help  .quit

An error is one line and the prompt comes back; in a script it ends the command. Ctrl-C drops what
was typed, or stops the query that runs; Ctrl-D leaves.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from penstock.cli.output import text
from penstock.errors import PenstockError
from penstock.limits import SQL_HISTORY_LINES_MAX

Show = Callable[[str], None]
"""Runs a statement and shows its result; raises PenstockError."""

PROMPT = "penstock> "
MORE = "       -> "

_HELP = """.tables         the tables
.schema TABLE   the columns of one
.quit           leave; so does Ctrl-D
Anything else is SQL, and ends with a semicolon."""

_WORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "COUNT", "DISTINCT", "JOIN",
    "DESCRIBE", "EXPLAIN",
)  # fmt: skip


def run_script(script: str, show: Show) -> None:
    """Run the statements of a text; the last one needs no semicolon."""
    from penstock.spark.sql.statements import split, tokens

    statements, rest = split(script)
    for each in [*statements, *([rest.strip()] if any(tokens(rest)) else [])]:
        show(each)


def run_shell(tables: Sequence[str], show: Show) -> None:
    """Read statements and show their results until the input ends."""
    with _line_editing(tables):
        typer.echo(f"{len(tables):,} tables; .tables lists them, .help says more.")
        for each in _commands():
            try:
                if not _command(each, tables, show):
                    return
            except PenstockError as error:
                typer.echo(f"error: {text(error)}", err=True)
            except KeyboardInterrupt:
                typer.echo("stopped", err=True)


def _commands() -> Iterator[str]:
    """Yield statements and commands as they are typed."""
    from penstock.spark.sql.statements import split

    typed = ""
    while True:
        try:
            line = input(MORE if typed else PROMPT)
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            typed = ""
            continue
        except EOFError:
            sys.stdout.write("\n")
            return
        if not typed and line.lstrip().startswith("."):
            yield line.strip()
            continue
        statements, typed = split(f"{typed}\n{line}" if typed else line)
        typed = typed if typed.strip() else ""
        yield from statements


def _command(line: str, tables: Sequence[str], show: Show) -> bool:
    """Run one line; return False to leave."""
    word, _, rest = line.partition(" ")
    if word in (".quit", ".exit"):
        return False
    if word == ".tables":
        for name in tables:
            typer.echo(text(name))
    elif word == ".schema" and rest.strip():
        name = rest.strip().strip("`;").replace("`", "``")
        show(f"DESCRIBE `{name}`")
    elif word.startswith("."):
        typer.echo(_HELP)
    else:
        show(line)
    return True


@contextlib.contextmanager
def _line_editing(tables: Sequence[str]) -> Iterator[None]:
    """Offer history and completion if Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    from penstock.spark.sql.catalog import quote_if_needed

    offered = [*map(quote_if_needed, tables), *_WORDS]

    def complete(start: str, number: int) -> str | None:
        found = [each for each in offered if each.lower().startswith(start.lower())]
        return found[number] if number < len(found) else None

    history = _history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        readline.set_history_length(SQL_HISTORY_LINES_MAX)
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            # Statements may hold secrets.
            history.touch(mode=0o600)
            readline.write_history_file(history)


def _history_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "penstock" / "sql_history"
