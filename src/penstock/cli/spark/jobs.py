"""The group `penstock spark …`: what its commands share, and `penstock spark pack`.

    @with_job
    def stats(job: JobOptions, source: Source, …) -> None: …

A command reads its options; `run_job` opens the session, shows progress, prints the report and ends
with the report's exit code. Spark is loaded when a job runs, so that the command line starts
quickly without it. A source is a server with a stream, or a directory:

    nats://127.0.0.1:4222/ORDERS      the stream ORDERS of that server
    /var/lib/penstock/…/ORDERS        a stream's directory, of Penstock or of Go's server
    s3://bucket/ORDERS                the same, on a file system that pyarrow knows
    archive:PLACE                     an archive there

Other options of the formats are given by `--option name=value`, under their own names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli.arguments import AsJson, with_options
from penstock.cli.output import (
    Column,
    JsonOutput,
    OnProgress,
    Output,
    count,
    make_output,
    progress,
    size,
    text,
)
from penstock.cli.store.sources import find_streams, layout_of
from penstock.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.job import Input, Report


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Run jobs over streams with Spark: on this machine, or on a cluster.

    Each job can be run again at any time: what is done already is not done twice.

    \b
    Exit codes:
      0  done
      1  failed, or something was found
      2  wrong usage
      3  could not open
    """,
)

Master = Annotated[
    str,
    typer.Option(metavar="URL", help="Where to run: local[2], spark://host:7077, yarn, k8s://…"),
]
Remote = Annotated[
    str,
    typer.Option(
        metavar="URL", help="A Spark Connect server: sc://host:15002.", show_default=False
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="K=V", help="A setting of Spark; may be repeated.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Write the report there, as JSON.", show_default=False
    ),
]

SERVER_SCHEMES = ("nats", "tls", "ws", "wss")

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="nats://HOST:PORT/STREAM, a stream's directory, or archive:PLACE."
    ),
]
ARCHIVE = "archive:"


def _format_option(*names: str, of: str = "") -> Any:
    return typer.Option(
        *names,
        metavar="K=V",
        help=f"An option of the format{of}, as subject=orders.> or credsFile=F; may be repeated.",
        show_default=False,
    )


FormatOptions = Annotated[list[str] | None, _format_option("--option", "-o")]
LeftOptions = Annotated[list[str] | None, _format_option("--left-option", of=" on the left")]
RightOptions = Annotated[list[str] | None, _format_option("--right-option", of=" on the right")]
TargetOptions = Annotated[
    list[str] | None, _format_option("--target-option", of=" that is written with")
]

_FACTS = (
    Column("job", "job"),
    Column("of", "of", text),
    Column("parts", "parts", count),
    Column("parts_skipped", "done before", count),
)
_FINDINGS = (
    Column("kind", "finding"),
    Column("where", "where", text),
    Column("what", "what", text),
)


class Session(msgspec.Struct):
    """How a job's session is opened, and where its report goes."""

    master: str
    remote: str
    conf: list[str] | None
    as_json: bool
    report_file: Path | None = None


def require_spark() -> None:
    """Raise UsageError if Spark is not installed."""
    try:
        import penstock.spark  # noqa: F401 - it is what is asked for
    except ImportError as error:
        raise UsageError(
            f"this needs Spark ({error.name} is missing): pip install 'penstock[spark]'"
        ) from None


@contextlib.contextmanager
def spark_session(wanted: Session, name: str) -> Iterator[SparkSession]:
    """Open a session for a command, and end it; raise UsageError without Spark."""
    require_spark()
    from penstock.spark.session import open_session, parse_conf

    spark = open_session(
        master=wanted.master, remote=wanted.remote, name=name, conf=parse_conf(wanted.conf or [])
    )
    try:
        yield spark
    finally:
        spark.stop()


def run_job(wanted: Session, name: str, job: Callable[[SparkSession, OnProgress], Report]) -> None:
    """Run a job in its own session; end the command with the report's exit code."""
    with (
        spark_session(wanted, f"penstock {name}") as spark,
        progress(name, is_shown=not wanted.as_json) as tell,
    ):
        report = job(spark, tell)
    finish(wanted, report)


def finish(wanted: Session, report: Report) -> None:
    """Print a report, write it where it was asked for, and end the command with its exit code."""
    facts = msgspec.to_builtins(report)
    if wanted.report_file is not None:
        wanted.report_file.write_bytes(msgspec.json.format(msgspec.json.encode(facts)) + b"\n")
    output = make_output(as_json=wanted.as_json)
    _print(output, facts, report)
    output.finish()
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _print(output: Output, facts: dict[str, object], report: Report) -> None:
    counts = tuple(Column(name, name.replace("_", " "), count) for name in report.counts)
    output.facts(facts, _FACTS)
    if not isinstance(output, JsonOutput):
        # In the document they stand together, under `counts`.
        output.facts(report.counts, counts)
    for each in report.outputs:
        output.say(f"wrote {text(each)}")
    if report.findings:
        output.rows("findings", _FINDINGS, facts["findings"], title="Findings")  # type: ignore[arg-type]
    if report.dry_run:
        output.say("Nothing was changed: this was a dry run.")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options that all jobs share."""

    dry_run: DryRun = False
    as_json: AsJson = False
    report_file: ReportFile = None
    master: Master = "local[*]"
    remote: Remote = ""
    conf: Conf = None

    @property
    def session(self) -> Session:
        """Return how to open the session, and where the report goes."""
        return Session(self.master, self.remote, self.conf, self.as_json, self.report_file)


with_job = with_options(JobOptions)
"""Adds the options that all jobs share to a command, whose first argument they become."""


def parse_options(given: list[str] | None) -> dict[str, str]:
    """Return `name=value` options as a dict; raise UsageError."""
    options = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UsageError(f"an option is name=value, not {each!r}")
        options[name] = value
    return options


def split_server(source: str) -> tuple[str, str] | None:
    """Return address and stream if a source is one of a server, else None; raise UsageError."""
    scheme, found, rest = source.partition("://")
    if not found or scheme not in SERVER_SCHEMES:
        return None
    host, _, stream = rest.rstrip("/").partition("/")
    if not stream or "/" in stream:
        raise UsageError(f"{source}: which stream? Like {scheme}://{host}/ORDERS")
    return f"{scheme}://{host}", stream


def parse_source(source: str, given: list[str] | None) -> Input:
    """Return the input that a source names; raise UsageError."""
    from penstock.spark.jobs.job import ArchiveFormat, BlockFormat, Input, StreamFormat

    options = parse_options(given)
    if source.startswith(ARCHIVE):
        return Input(ArchiveFormat, {**options, "path": source.removeprefix(ARCHIVE)})
    server = split_server(source)
    if server is None:
        return Input(BlockFormat, {**options, "path": source})
    return Input(StreamFormat, {**options, "servers": server[0], "stream": server[1]})


def parse_target(target: str, given: list[str] | None) -> dict[str, str]:
    """Return the options of `penstock` for writing into a stream; raise UsageError."""
    server = split_server(target)
    if server is None:
        raise UsageError(f"{target}: a target is a stream, like nats://127.0.0.1:4222/COPY")
    return {**parse_options(given), "servers": server[0], "stream": server[1]}


def expand_tree(path: str) -> list[str]:
    """Return a directory itself if it holds a stream, else every stream below it."""
    if "://" in path or layout_of(path) is not None:
        return [path]
    return [each for each, _ in find_streams(path)] or [path]


def pack(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write it: env.tar.gz.", dir_okay=False)
    ],
) -> None:
    """Pack Penstock for a cluster: spark-submit --archives env.tar.gz#env

    Executors then run with PYSPARK_PYTHON=./env/bin/python. Their machines need the same Python
    version on the PATH, and nothing else.
    """
    require_spark()
    from penstock.spark import packaging

    typer.echo(f"{file}: {size(packaging.pack(file))}")
