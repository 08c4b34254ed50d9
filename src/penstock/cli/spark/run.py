"""`penstock run`: runs a pipeline until it is stopped, and says how its flows are doing.

Everything that can be known before Spark starts is checked before: the file, the options, whether
the server is there and has the streams. Ctrl-C and SIGTERM stop the flows; the next start goes on
where they were.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.arguments import ConnectionOptions, with_server
from penstock.cli.output import Column, count, make_output, text
from penstock.cli.spark.jobs import Conf, Master, Remote, Session, spark_session
from penstock.client.client import DEFAULT_URL
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.protocol.pipeline_reports import FlowReport
    from penstock.spark.pipelines import Pipeline

PARTS = "spark.sql.shuffle.partitions"
PARTS_ON_ONE_MACHINE = 8
"""Each part is a task in Python, and a fence in a stream. It does not hang on the number of cores,
because a checkpoint keeps to what it began with."""

_FLOWS = (
    Column("flow", "flow"),
    Column("from", "from", text),
    Column("to", "to", text),
    Column("mode", "mode"),
    Column("dead_letters", "dead letters", text),
    Column("checkpoint", "checkpoint", text),
)


@with_server
def run(
    connection: ConnectionOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline: .py or .yaml.")],
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there now is dealt with.")
    ] = False,
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="Where it notes how far it is; `checkpoints` here if the file says nothing.",
            show_default=False,
        ),
    ] = "",
    master: Master = "local[*]",
    remote: Remote = "",
    conf: Conf = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the file, and say what it does.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each report of a flow.")
    ] = False,
) -> None:
    """Run a pipeline: from streams, through Spark, to streams, tables and buckets.

    Started again it goes on where it was; what was written is not written twice.

    \b
    Exit codes:
      0  done, or stopped
      1  a flow has failed
      2  wrong usage: the file, an option, a stream that is not there
    """
    pipeline = _loaded(file)
    _take_connection(pipeline, connection)
    if dry_run:
        _describe(pipeline, checkpoint, as_json=as_json)
        return
    from penstock.spark.pipelines.run import check_endpoints, connection_options

    check_endpoints(pipeline, connection_options(pipeline, ""))
    wanted = Session(master, remote, _with_defaults(conf or [], master, remote), as_json)
    with (
        spark_session(wanted, f"penstock {pipeline.name}") as spark,
        _stopped_by_signals() as until,
    ):
        tell = _tell_json if as_json else _tell_people
        pipeline.run(spark, checkpoint=checkpoint, once=once, on_report=tell, until=until)


def _with_defaults(conf: list[str], master: str, remote: str) -> list[str]:
    """Return the settings of Spark: on one machine its 200 parts of a shuffle are too many."""
    is_said = any(each.startswith(f"{PARTS}=") for each in conf)
    if remote or not master.startswith("local") or is_said:
        return conf
    return [*conf, f"{PARTS}={PARTS_ON_ONE_MACHINE}"]


def _loaded(file: Path) -> Pipeline:
    try:
        from penstock.spark.pipelines.load import load_pipeline
    except ImportError as error:
        raise UsageError(
            f"this needs Spark ({error.name} is missing): pip install 'penstock[spark]'"
        ) from None
    return load_pipeline(file)


def _take_connection(pipeline: Pipeline, connection: ConnectionOptions) -> None:
    """Let the command line's options for the server override those of the file."""
    if connection.tls_first:
        raise UsageError("--tls-first is not known to connections of Spark")
    if connection.server != DEFAULT_URL or not pipeline.server:
        pipeline.server = connection.server
    known = connection.credentials()
    given = {
        "user": known.user,
        "password": known.password,
        "token": known.token,
        "nkeySeedFile": connection.nkey,
        "credsFile": connection.creds,
        "tls.ca": connection.tls_ca,
        "tls.cert": connection.tls_cert,
        "tls.key": connection.tls_key,
    }
    pipeline.options |= {name: value for name, value in given.items() if value}


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield the event that Ctrl-C and SIGTERM set.

    An exception of a handler would break off a call to Spark's machine anywhere, and the session
    with it: hence a word that is looked at in between. A session has handlers of its own, so it
    must be open already.
    """
    until = threading.Event()
    before = {
        each: signal.signal(each, lambda _, __: until.set())
        for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield until
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _describe(pipeline: Pipeline, checkpoint: str, *, as_json: bool) -> None:
    from penstock.spark.pipelines.run import checkpoint_of

    output = make_output(as_json=as_json)
    output.facts({"pipeline": pipeline.name, "server": pipeline.server}, ())
    rows = [
        {
            "flow": flow.name,
            "from": ", ".join(each.streams for each in flow.inputs),
            "to": str(flow.output),
            "mode": str(flow.mode),
            "dead_letters": ", ".join(
                each.dead_letters.text for each in flow.inputs if each.dead_letters is not None
            )
            or None,
            "checkpoint": f"{checkpoint_of(pipeline, checkpoint)}/{flow.name}",
        }
        for flow in pipeline.flows
    ]
    output.rows("flows", _FLOWS, rows, title=f"pipeline {pipeline.name}")
    output.finish()


def _tell_json(flow: str, report: FlowReport) -> None:
    sys.stdout.write(msgspec.json.encode({"flow": flow, **msgspec.to_builtins(report)}).decode())
    sys.stdout.write("\n")
    sys.stdout.flush()


def _tell_people(flow: str, report: FlowReport) -> None:
    parts = [
        f"{flow}: {report.state}",
        f"batch {report.batch}" if report.batch >= 0 else "no batch yet",
        f"{count(report.rows)} rows",
        f"{count(round(report.rows_per_second))} rows/s",
        f"lag {count(report.lag_messages)}",
    ]
    if report.dead_letters:
        parts.append(f"{count(report.dead_letters)} dead letters")
    sys.stdout.write(", ".join(parts) + "\n")
    sys.stdout.flush()
