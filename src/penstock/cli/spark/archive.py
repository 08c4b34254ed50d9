"""Jobs around archives: `penstock spark archive | tier | tail | check-archive | restore`.

Spark is loaded when a job runs, so that the command line stays quick without it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import duration_s, parse_time
from penstock.cli.output import OnProgress, progress
from penstock.cli.spark.jobs import (
    FormatOptions,
    JobOptions,
    Source,
    finish,
    parse_options,
    parse_source,
    run_job,
    split_server,
    with_job,
)
from penstock.clock import SystemClock
from penstock.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.job import Report


class TableKind(StrEnum):
    """As what other engines can open an archive."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class Mode(StrEnum):
    """What becomes of an archive."""

    PUBLISH = "publish"
    BLOCKS = "blocks"
    SNAPSHOT = "snapshot"


Archive = Annotated[
    str, typer.Argument(metavar="ARCHIVE", help="The archive's folder: a path or a URI.")
]
Table = Annotated[
    TableKind,
    typer.Option("--format", help="Parquet alone, or a table for other engines beside it."),
]
AllowHoles = Annotated[
    bool,
    typer.Option("--allow-holes", help="Go on where messages went before they were archived."),
]


@with_job
def archive(
    job: JobOptions,
    source: Source,
    target: Archive,
    table: Table = TableKind.PARQUET,
    allow_holes: AllowHoles = False,
    option: FormatOptions = None,
) -> None:
    """Write a stream's messages into Parquet files, from where the last run ended.

    \b
    penstock spark archive nats://127.0.0.1:4222/ORDERS /archive/ORDERS
    penstock spark archive DIR s3://bucket/ORDERS --format delta

    A manifest vouches for every file: its sequences, its messages, its hash. A run that was broken
    off is finished by the next; what it had written whole is not written again.
    """
    split_server(source)

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import archive as jobs_archive

        return jobs_archive.archive(
            spark,
            parse_source(source, option),
            target,
            table=jobs_archive.TableFormat(table),
            allow_holes=allow_holes,
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "archive", run)


@with_job
def tier(
    job: JobOptions,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="nats://HOST:PORT/STREAM.")],
    target: Archive,
    keep: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Keep what is younger in the stream: 7d, 12h, or a time."
        ),
    ] = "",
    keep_messages: Annotated[
        int | None,
        typer.Option(metavar="N", help="Keep the last N messages.", min=0, show_default=False),
    ] = None,
    table: Table = TableKind.PARQUET,
    option: FormatOptions = None,
) -> None:
    """Move a stream's old messages into its archive: archive, check, then purge.

    \b
    penstock spark tier nats://127.0.0.1:4222/ORDERS /archive/ORDERS --keep 7d

    Only what stands in a file that this run has read and found whole is purged from the stream.
    """
    if split_server(source) is None:
        raise UsageError(f"{source}: only a server can purge: nats://HOST:PORT/STREAM")
    if bool(keep) == (keep_messages is not None):
        raise UsageError("say what stays in the stream: --keep or --keep-messages")
    since_ns = parse_time(keep, SystemClock().now_ns()) if keep else None

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import archive as jobs_archive

        return jobs_archive.tier(
            spark,
            parse_source(source, option),
            target,
            jobs_archive.Keep(since_ns, keep_messages),
            table=jobs_archive.TableFormat(table),
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "tier", run)


@with_job
def tail(
    job: JobOptions,
    source: Source,
    target: Archive,
    every: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Go on for ever, with a batch so often; else up to the end."
        ),
    ] = "",
    table: Table = TableKind.PARQUET,
    allow_holes: AllowHoles = False,
    option: FormatOptions = None,
) -> None:
    """Keep an archive up to its stream, by Structured Streaming.

    \b
    penstock spark tail nats://127.0.0.1:4222/ORDERS /archive/ORDERS --every 10m
    penstock spark tail nats://127.0.0.1:4222/ORDERS /archive/ORDERS       from cron

    Each batch archives what is new; how far it is stands in the archive alone.
    """
    if job.dry_run:
        raise UsageError("following has no dry run: use archive --dry-run")
    split_server(source)
    every_s = duration_s(every) if every else None

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs.archive import TableFormat, Tail

        following = Tail(
            spark,
            parse_source(source, option),
            target,
            table=TableFormat(table),
            allow_holes=allow_holes,
        )
        return following.run(every_s=every_s)

    run_job(job.session, "tail", run)


@with_job
def check_archive(job: JobOptions, target: Archive) -> None:
    """Read every file of an archive, and hold it against the manifest.

    \b
    penstock spark check-archive /archive/ORDERS

    Ends with 1 if a file is damaged or gone, or if sequences are in no file.
    """

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import verify as jobs_verify

        return jobs_verify.check_archive(spark, target, dry_run=job.dry_run, on_progress=tell)

    run_job(job.session, "check-archive", run)


@with_job
def restore(
    job: JobOptions,
    target: Archive,
    into: Annotated[
        str,
        typer.Argument(
            metavar="INTO", help="A folder that is not there yet; for publish nats://HOST/STREAM."
        ),
    ],
    mode: Annotated[Mode, typer.Option(help="What to make of it.")] = Mode.BLOCKS,
    name: Annotated[str, typer.Option(metavar="STREAM", help="Another name for the stream.")] = "",
    create: Annotated[
        bool, typer.Option("--create", help="Make the stream to publish into, as it was.")
    ] = False,
    allow_holes: AllowHoles = False,
    option: FormatOptions = None,
) -> None:
    """Make a stream of an archive again.

    \b
    penstock spark restore /archive/ORDERS /data/jetstream/'$G'/streams/ORDERS
    penstock spark restore /archive/ORDERS /backups/ORDERS --mode snapshot
    penstock spark restore /archive/ORDERS nats://127.0.0.1:4222/OLD --mode publish --create

    Blocks and snapshots keep sequences, times, headers and gaps; `penstock stream restore` and the
    nats tool make a stream of a snapshot. Publishing gives new sequences, and tells the old ones
    in headers.
    """
    if mode is Mode.PUBLISH:
        _publish(job, target, into, name, option, create=create, allow_holes=allow_holes)
        return
    if create or option:
        raise UsageError("--create and --option are for --mode publish")
    with progress("restore", is_shown=not job.as_json) as tell:
        from penstock.spark.jobs.restore_files import restore_blocks, restore_snapshot

        write = restore_blocks if mode is Mode.BLOCKS else restore_snapshot
        report = write(
            target, into, name=name, allow_holes=allow_holes, dry_run=job.dry_run, on_progress=tell
        )
    finish(job.session, report)


def _publish(
    job: JobOptions,
    target: str,
    into: str,
    name: str,
    option: list[str] | None,
    *,
    create: bool,
    allow_holes: bool,
) -> None:
    server = split_server(into)
    if server is None:
        raise UsageError(f"{into}: to publish, say where: nats://HOST:PORT/STREAM")
    if name:
        raise UsageError("--name is in the address: nats://HOST:PORT/STREAM")

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs.restore import restore_publish

        return restore_publish(
            spark,
            target,
            {**parse_options(option), "servers": server[0]},
            name=server[1],
            create=create,
            allow_holes=allow_holes,
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "restore", run)
