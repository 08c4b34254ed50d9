"""What people type for a job: the options that all jobs share, and what a job is to read.

    @with_job
    def stats(job: JobOptions, source: Source, …) -> None: …

A source is a server with a stream, or a directory:

    nats://127.0.0.1:4222/ORDERS      the stream ORDERS of that server
    /var/lib/penstock/…/ORDERS        a stream's directory, of ours or of Go's server
    s3://bucket/ORDERS                the same, on a file system that pyarrow knows
    archive:PLACE                     an archive there

Whatever else the formats know is given by `--option name=value`, under their own names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import AsJson
from penstock.cli.connecting import with_options
from penstock.cli.jobs import Conf, DryRun, Master, Remote, ReportFile, Session
from penstock.cli.sources import find_streams, layout_of
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.spark.jobs.inputs import Input

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


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the options that all jobs share say."""

    dry_run: DryRun = False
    as_json: AsJson = False
    report_file: ReportFile = None
    master: Master = "local[*]"
    remote: Remote = ""
    conf: Conf = None

    @property
    def session(self) -> Session:
        """Give how to open the session, and where the report goes."""
        return Session(self.master, self.remote, self.conf, self.as_json, self.report_file)


with_job = with_options(JobOptions)
"""Gives a command the options that all jobs share; its first argument is what they say."""


def parse_options(given: list[str] | None) -> dict[str, str]:
    """Read `name=value` options; raises UsageError."""
    options = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UsageError(f"an option is name=value, not {each!r}")
        options[name] = value
    return options


def split_server(source: str) -> tuple[str, str] | None:
    """Give the address and the stream where a source is one of a server; raises UsageError."""
    scheme, found, rest = source.partition("://")
    if not found or scheme not in SERVER_SCHEMES:
        return None
    host, _, stream = rest.rstrip("/").partition("/")
    if not stream or "/" in stream:
        raise UsageError(f"{source}: which stream? Like {scheme}://{host}/ORDERS")
    return f"{scheme}://{host}", stream


def parse_source(source: str, given: list[str] | None) -> Input:
    """Give what a source stands for; raises UsageError."""
    from penstock.spark.jobs.inputs import ArchiveFormat, BlockFormat, Input, StreamFormat

    options = parse_options(given)
    if source.startswith(ARCHIVE):
        return Input(ArchiveFormat, {**options, "path": source.removeprefix(ARCHIVE)})
    server = split_server(source)
    if server is None:
        return Input(BlockFormat, {**options, "path": source})
    return Input(StreamFormat, {**options, "servers": server[0], "stream": server[1]})


def parse_target(target: str, given: list[str] | None) -> dict[str, str]:
    """Give the options of `penstock` for writing into a stream; raises UsageError."""
    server = split_server(target)
    if server is None:
        raise UsageError(f"{target}: a target is a stream, like nats://127.0.0.1:4222/COPY")
    return {**parse_options(given), "servers": server[0], "stream": server[1]}


def expand_tree(path: str) -> list[str]:
    """Give a directory itself where it holds a stream, else every stream below it."""
    if "://" in path or layout_of(path) is not None:
        return [path]
    return [each for each, _ in find_streams(path)] or [path]
