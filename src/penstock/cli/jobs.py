"""Jobs over streams: the group `penstock spark …`, and what its commands share.

A command reads its options, and `run_job` does the rest: it opens the session, shows how far the
job is, prints its report and ends with the report's exit code. Spark is loaded when a job runs, so
that the command line stays quick without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.output import Column, JsonOutput, Output, Tell, count, make_output, progress, text
from penstock.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.report import Report

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
    """Raise UsageError where Spark is not installed."""
    try:
        import penstock.spark  # noqa: F401 - it is what is asked for
    except ImportError as error:
        raise UsageError(
            f"this needs Spark ({error.name} is missing): pip install 'penstock[spark]'"
        ) from None


@contextlib.contextmanager
def spark_session(wanted: Session, name: str) -> Iterator[SparkSession]:
    """Open a session for a command, and end it; raises UsageError without Spark."""
    require_spark()
    from penstock.spark.session import open_session, parse_conf

    spark = open_session(
        master=wanted.master, remote=wanted.remote, name=name, conf=parse_conf(wanted.conf or [])
    )
    try:
        yield spark
    finally:
        spark.stop()


def run_job(wanted: Session, name: str, job: Callable[[SparkSession, Tell], Report]) -> None:
    """Run a job in a session of its own; ends the command with the report's exit code."""
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
