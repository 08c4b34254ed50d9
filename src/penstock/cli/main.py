"""The command `penstock`: its parts, its errors and its exit codes.

What goes wrong on purpose ends as one line on stderr and an exit code, never as a traceback:

    0  done
    1  failed, or damage was found
    2  wrong usage
    3  could not open: in use, wrong key, or written by a newer version
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli import (
    bench,
    bench_streams,
    consumer_messages,
    consumers,
    demo,
    importing,
    jobs,
    jobs_archive,
    jobs_changes,
    jobs_checks,
    kv,
    messaging,
    objects,
    packing,
    pipelines,
    replying,
    serve,
    sql,
    store,
    stream_backup,
    stream_messages,
    streams,
    upkeep,
)
from penstock.cli.output import printable
from penstock.errors import PenstockError, StoreLocked, UnsupportedVersion, UsageError, WrongKey

EXIT_FAILED = 1
EXIT_WRONG_USAGE = 2
EXIT_COULD_NOT_OPEN = 3


def exit_code(error: Exception) -> int:
    """Give the exit code that stands for an error."""
    if isinstance(error, StoreLocked | WrongKey | UnsupportedVersion):
        return EXIT_COULD_NOT_OPEN
    return EXIT_WRONG_USAGE if isinstance(error, UsageError) else EXIT_FAILED


class GuardedGroup(TyperGroup):
    """A group of commands whose errors end as one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:  # typer keeps the class of its context to itself
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever reads us has seen enough; typer ends quietly.
            raise
        except (PenstockError, OSError) as error:
            line = printable(str(error).encode("utf-8", "surrogateescape"))
            sys.stderr.write(f"penstock: {line}\n")
            raise typer.Exit(exit_code(error)) from None


app = typer.Typer(
    name="penstock",
    cls=GuardedGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="More: docs/cli.md, docs/store.md.",
)
app.add_typer(store.app, name="store")
app.add_typer(bench.app, name="bench")
app.add_typer(streams.app, name="stream")
app.add_typer(consumers.app, name="consumer")
app.add_typer(kv.app, name="kv")
app.add_typer(objects.app, name="object")
app.add_typer(jobs.app, name="spark")
for name, command in (
    ("demo", demo.demo),
    ("pub", messaging.pub),
    ("sub", messaging.sub),
    ("req", messaging.req),
    ("reply", replying.reply),
    ("run", pipelines.run),
    ("sql", sql.sql),
):
    app.command(name)(command)
app.command("server", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    serve.serve
)
for name, command in (
    ("get", stream_messages.get),
    ("view", stream_messages.view),
    ("backup", stream_backup.backup),
    ("restore", stream_backup.restore),
):
    streams.app.command(name)(command)
for name, command in (
    ("jspub", bench_streams.jspub),
    ("jsget", bench_streams.jsget),
    ("jsfetch", bench_streams.jsfetch),
    ("jspush", bench_streams.jspush),
):
    bench.app.command(name)(command)
for name, command in (
    ("verify", jobs_checks.verify),
    ("stats", jobs_checks.stats),
    ("diff", jobs_checks.diff),
    ("dedupe", jobs_changes.dedupe),
    ("replay", jobs_changes.replay),
    ("kv", jobs_changes.kv),
    ("compact", jobs_changes.compact),
    ("migrate", jobs_changes.migrate),
    ("archive", jobs_archive.archive),
    ("check-archive", jobs_archive.check_archive),
    ("tier", jobs_archive.tier),
    ("tail", jobs_archive.tail),
    ("restore", jobs_archive.restore),
):
    jobs.app.command(name)(command)
consumers.app.command("next")(consumer_messages.next_messages)
consumers.app.command("sub")(consumer_messages.sub)
jobs.app.command("pack")(packing.pack)
store.app.command("repair")(upkeep.repair)
store.app.command("compact")(upkeep.compact)
store.app.command("import")(importing.import_stream)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Streams that never lose what they acknowledged, and that Spark reads from their files.

    \b
    See it work:                 penstock demo
    Which streams are here?      penstock store ls /var/lib/penstock
    What is in one?              penstock store info DIR --blocks --subjects 10
    Is every byte as written?    penstock store verify DIR
    Show me messages:            penstock store cat DIR --subject 'orders.>' --since 1h
    Talk to a server:            penstock sub 'orders.>'    penstock pub orders.eu hello
    """


def main() -> None:
    """Run the command line."""
    app()
