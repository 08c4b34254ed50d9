"""The command `penstock`: its groups of commands, its exit codes, and `penstock server`.

An expected error ends as one line on stderr and an exit code, never as a traceback:

    0  done
    1  failed, or damage was found
    2  wrong usage
    3  could not open: in use, wrong key, or written by a newer version

`penstock server` takes nats-server's flags and listens on the loopback unless an address is given.
The executable `penstock-server` is the drop-in and keeps nats-server's own defaults.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli import pubsub
from penstock.cli.bench import bench
from penstock.cli.demo import demo
from penstock.cli.jetstream import consumers, kv, messages, objects, streams
from penstock.cli.output import printable
from penstock.cli.spark import archive, changes, checks, jobs, run, sql
from penstock.cli.store import inspect, upkeep
from penstock.errors import PenstockError, StoreLocked, UnsupportedVersion, UsageError, WrongKey

EXIT_FAILED = 1
EXIT_WRONG_USAGE = 2
EXIT_COULD_NOT_OPEN = 3

_ADDRESS_FLAGS = ("a", "addr", "net", "c", "config")


def exit_code(error: Exception) -> int:
    """Return the exit code that stands for an error."""
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
            # The reader of our output has closed it; typer ends quietly.
            raise
        except (PenstockError, OSError) as error:
            line = printable(str(error).encode("utf-8", "surrogateescape"))
            sys.stderr.write(f"penstock: {line}\n")
            raise typer.Exit(exit_code(error)) from None


def serve(context: typer.Context) -> None:
    """Run the server; takes nats-server's flags (see: penstock server -- --help).

    Listens on 127.0.0.1 unless an address (-a) or a configuration file (-c) says otherwise.

        penstock server -p 4222 -m 8222
    """
    # Loaded here: the other commands need none of it.
    from penstock.server.main import run

    arguments = list(context.args)
    if not any(_flag(word) in _ADDRESS_FLAGS for word in arguments):
        arguments = ["-a", "127.0.0.1", *arguments]
    raise typer.Exit(run(arguments, os.environ))


def _flag(word: str) -> str:
    return word.lstrip("-").partition("=")[0] if word.startswith("-") else ""


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
app.add_typer(inspect.app, name="store")
app.add_typer(bench.app, name="bench")
app.add_typer(streams.app, name="stream")
app.add_typer(consumers.app, name="consumer")
app.add_typer(kv.app, name="kv")
app.add_typer(objects.app, name="object")
app.add_typer(jobs.app, name="spark")
for name, command in (
    ("demo", demo.demo),
    ("pub", pubsub.pub),
    ("sub", pubsub.sub),
    ("req", pubsub.req),
    ("reply", pubsub.reply),
    ("run", run.run),
    ("sql", sql.sql),
):
    app.command(name)(command)
app.command("server", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    serve
)
for name, command in (
    ("get", messages.get),
    ("view", messages.view),
    ("backup", streams.backup),
    ("restore", streams.restore),
):
    streams.app.command(name)(command)
for name, command in (
    ("verify", checks.verify),
    ("stats", checks.stats),
    ("diff", checks.diff),
    ("dedupe", changes.dedupe),
    ("replay", changes.replay),
    ("kv", changes.kv),
    ("compact", changes.compact),
    ("migrate", changes.migrate),
    ("archive", archive.archive),
    ("check-archive", archive.check_archive),
    ("tier", archive.tier),
    ("tail", archive.tail),
    ("restore", archive.restore),
):
    jobs.app.command(name)(command)
consumers.app.command("next")(messages.next_messages)
consumers.app.command("sub")(messages.sub)
jobs.app.command("pack")(jobs.pack)
inspect.app.command("repair")(upkeep.repair)
inspect.app.command("compact")(upkeep.compact)
inspect.app.command("import")(upkeep.import_stream)


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
