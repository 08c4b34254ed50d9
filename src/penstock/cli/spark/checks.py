"""Jobs that look and change nothing: `penstock spark verify | stats | diff`.

Spark is loaded when a job runs, so that the command line stays quick without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import (
    Column,
    OnProgress,
    Value,
    count,
    make_output,
    moment,
    progress,
    rfc3339,
    size,
    text,
)
from penstock.cli.spark.jobs import (
    FormatOptions,
    JobOptions,
    LeftOptions,
    RightOptions,
    Source,
    expand_tree,
    finish,
    parse_source,
    run_job,
    spark_session,
    with_job,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.job import Report
    from penstock.spark.jobs.stats import StatsReport

_GROUPS = (
    Column("subject", "subject", text),
    Column("hour", "hour", moment),
    Column("messages", "messages", count, right=True),
    Column("bytes", "bytes", size, right=True),
    Column("first_seq", "first", right=True),
    Column("last_seq", "last", right=True),
    Column("first_time", "first time", moment),
    Column("last_time", "last time", moment),
    Column("size_p50", "size p50", count, right=True),
    Column("size_p90", "p90", count, right=True),
    Column("size_p99", "p99", count, right=True),
)
_NAMES = (Column("name", "header", text), Column("messages", "messages", count, right=True))


@with_job
def verify(
    job: JobOptions,
    directories: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Directories of streams, or trees of them."),
    ],
    stream: Annotated[
        str, typer.Option(metavar="NAME", help="The stream's name, where its folder has another.")
    ] = "",
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The key of encrypted stores.", exists=True, show_default=False
        ),
    ] = None,
    archive: Annotated[
        str, typer.Option(metavar="PLACE", help="Hold the stream against its archive, too.")
    ] = "",
) -> None:
    """Read every byte of streams: checksums, order, indexes, blocks that are gone.

    \b
    penstock spark verify /var/lib/penstock
    penstock spark verify DIR --archive s3://archives/orders
    penstock spark verify DIR --json --report verify.json

    Findings tell block, offset and sequences. Works beside a server that writes, also on the
    directories of Go's nats-server. Ends with 1 where anything was found.
    """

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import verify as job_verify

        return job_verify.verify(
            spark,
            [each for path in directories for each in expand_tree(path)],
            key_file=str(key_file or ""),
            stream=stream,
            archive=archive,
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "verify", run)


@with_job
def stats(
    job: JobOptions,
    source: Source,
    depth: Annotated[
        int,
        typer.Option(
            metavar="N", help="Group subjects by their first N tokens; -1: by all.", min=-1
        ),
    ] = -1,
    by_hour: Annotated[bool, typer.Option("--by-hour", help="Group by hour, too.")] = False,
    header_names: Annotated[
        bool, typer.Option("--header-names", help="Count the names of headers; reads all of them.")
    ] = False,
    by_bytes: Annotated[
        bool, typer.Option("--by-bytes", help="Show the groups with the most bytes.")
    ] = False,
    rows: Annotated[int, typer.Option(metavar="N", help="Show so many groups.", min=1)] = 20,
    output: Annotated[
        str, typer.Option(metavar="DIR", help="Write all groups there, as Parquet.")
    ] = "",
    option: FormatOptions = None,
) -> None:
    """Count a stream by subject and hour: messages, bytes, first and last, sizes.

    \b
    penstock spark stats nats://127.0.0.1:4222/ORDERS --depth 2
    penstock spark stats DIR --by-hour --output s3://reports/orders -o subject='orders.eu.>'

    A directory of ours is counted by its indexes, without reading the messages.
    """
    with (
        spark_session(job.session, "penstock stats") as spark,
        progress("stats", is_shown=not job.as_json) as tell,
    ):
        from penstock.spark.jobs.stats import Order, StatsRequest
        from penstock.spark.jobs.stats import stats as job_stats

        order = Order.BYTES if by_bytes else Order.MESSAGES
        report = job_stats(
            spark,
            parse_source(source, option),
            request=StatsRequest(depth, by_hour, header_names, order, rows),
            output=output,
            dry_run=job.dry_run,
            on_progress=tell,
        )
    if not job.as_json:
        _print_groups(report, by_hour=by_hour)
    finish(job.session, report)


def _print_groups(report: StatsReport, *, by_hour: bool) -> None:
    output = make_output(as_json=False)
    rows: list[dict[str, Value]] = [
        {
            **{name: getattr(each, name) for name in each.__struct_fields__},
            "hour": rfc3339(each.hour_ns or 0),
            "first_time": rfc3339(each.first_ns),
            "last_time": rfc3339(each.last_ns),
        }
        for each in report.groups
    ]
    output.rows("groups", [each for each in _GROUPS if by_hour or each.name != "hour"], rows)
    if report.header_names:
        names = [{"name": name, "messages": many} for name, many in report.header_names.items()]
        output.rows("header_names", _NAMES, names)


@with_job
def diff(
    job: JobOptions,
    left: Source,
    right: Source,
    by_content: Annotated[
        bool,
        typer.Option("--by-content", help="The same wherever they stand, whatever their times."),
    ] = False,
    ignore_time: Annotated[
        bool, typer.Option("--ignore-time", help="Times may differ where sequences agree.")
    ] = False,
    left_option: LeftOptions = None,
    right_option: RightOptions = None,
) -> None:
    """Compare two streams, directories or archives: what is missing, extra or different.

    \b
    penstock spark diff nats://a:4222/ORDERS nats://b:4222/ORDERS
    penstock spark diff DIR archive:s3://archives/orders --ignore-time
    penstock spark diff nats://a:4222/ORDERS nats://b:4222/COPY --by-content

    Hashes of ranges are compared first, and messages only where these differ. Missing is what the
    right side lacks. Ends with 1 where anything was found.
    """

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import diff as job_diff

        return job_diff.diff(
            spark,
            parse_source(left, left_option),
            parse_source(right, right_option),
            by=job_diff.CompareBy.CONTENT if by_content else job_diff.CompareBy.SEQUENCE,
            with_time=not ignore_time,
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "diff", run)
