"""Jobs that make or change something: `penstock spark compact | migrate | kv | dedupe | replay`.

Spark is loaded when a job runs, so that the command line stays quick without it.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import duration_s
from penstock.cli.output import OnProgress
from penstock.cli.spark.jobs import (
    FormatOptions,
    JobOptions,
    Source,
    TargetOptions,
    expand_tree,
    parse_source,
    parse_target,
    run_job,
    with_job,
)
from penstock.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.job import Report
    from penstock.spark.jobs.replay import ReplayOptions


class CompressionChoice(StrEnum):
    """How a copy's records are compressed."""

    NONE = "none"
    SNAPPY = "snappy"


class CipherChoice(StrEnum):
    """How a copy's records are encrypted."""

    NONE = "none"
    CHACHA20 = "chacha20"
    AES = "aes"


class DeliveryChoice(StrEnum):
    """The delivery guarantee of published messages."""

    EXACTLY_ONCE = "exactly-once"
    DEDUPE = "dedupe"
    AT_LEAST_ONCE = "at-least-once"


_CIPHERS = {
    CipherChoice.NONE: "NONE",
    CipherChoice.CHACHA20: "CHACHA20_POLY1305",
    CipherChoice.AES: "AES_256_GCM",
}

_KeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The key of what is read.", exists=True, show_default=False),
]
_Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="The stream to write: nats://HOST:PORT/STREAM.")
]
_Maps = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FROM=TO",
        help="Other subjects, as orders.*.>=copy.$1.>; may be repeated.",
        show_default=False,
    ),
]
_Delivery = Annotated[DeliveryChoice, typer.Option("--delivery", help="What is promised.")]
_Parallel = Annotated[
    int, typer.Option(metavar="N", help="Tasks; each takes some of the subjects.", min=1)
]
_SinkId = Annotated[
    str, typer.Option(metavar="NAME", help="By which a run knows what the last ones have done.")
]


@with_job
def compact(
    job: JobOptions,
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Directories of ours, or trees of them.")
    ],
    copy_to: Annotated[
        str, typer.Option(metavar="DIR", help="Leave them as they are, and write copies there.")
    ] = "",
    compression: Annotated[
        CompressionChoice, typer.Option(help="Of copies.")
    ] = CompressionChoice.NONE,
    encryption: Annotated[CipherChoice, typer.Option(help="Of copies.")] = CipherChoice.NONE,
    key_file: _KeyFile = None,
    target_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The key of copies.", exists=True, show_default=False),
    ] = None,
) -> None:
    """Free the disk space of removed messages, in place or by a copy.

    \b
    penstock spark compact /var/lib/penstock
    penstock spark compact DIR --copy-to /backup --compression snappy

    In place the server must be stopped: a directory that is open is a finding. A copy is
    a directory of blocks, under the stream's name, and works beside a server that writes.
    """

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.format.envelope import Cipher, Compression
        from penstock.spark.jobs import compact as job_compact

        copying = None
        if copy_to:
            copying = job_compact.CopyOptions(
                copy_to,
                Compression[compression.name],
                Cipher[_CIPHERS[encryption]],
                str(target_key_file or ""),
            )
        elif compression is not CompressionChoice.NONE or encryption is not CipherChoice.NONE:
            raise UsageError("--compression and --encryption are for copies: --copy-to DIR")
        return job_compact.compact(
            spark,
            [each for path in directories for each in expand_tree(path)],
            copying=copying,
            key_file=str(key_file or ""),
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "compact", run)


@with_job
def migrate(
    job: JobOptions,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A store_dir of Go's nats-server, a stream of it, or a tree of JSON lines.",
            exists=True,
            file_okay=False,
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Where our streams go.")],
    key_file: _KeyFile = None,
) -> None:
    """Bring streams over from Go's nats-server, or from JSON lines, many at a time.

    \b
    penstock spark migrate /var/lib/nats /var/lib/penstock
    penstock server --jetstream --store_dir /var/lib/penstock

    Configurations, messages with their sequences and times, and consumers with what they have
    acknowledged stay as they are. Stop the server first. What is there already is left alone, so
    that a run that was broken off is finished by the next one.
    """

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import migrate as job_migrate

        return job_migrate.migrate(
            spark,
            str(source),
            str(target),
            key_file=str(key_file or ""),
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "migrate", run)


@with_job
def kv(
    job: JobOptions,
    source: Source,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="The folder for cuts.")],
    as_of: Annotated[
        str, typer.Option(metavar="TIME|REVISION", help="As it was then, that revision included.")
    ] = "",
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Do not go on from the last cut.")
    ] = False,
    option: FormatOptions = None,
) -> None:
    """Write a bucket as it is, or was, to Parquet: the value of each key.

    \b
    penstock spark kv nats://127.0.0.1:4222/KV_config ./config
    penstock spark kv nats://127.0.0.1:4222/KV_config ./config --as-of 2026-07-20T12:00:00Z

    The next run reads only what has changed since.
    """

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import kv as job_kv

        until = []
        if as_of.isdecimal():
            until = [f"endingOffsets={int(as_of) + 1}"]
        elif as_of:
            until = [f"endingTimestamp={as_of}"]
        return job_kv.materialise(
            spark,
            parse_source(source, [*(option or []), *until]),
            output,
            from_start=from_start,
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "kv", run)


@with_job
def dedupe(
    job: JobOptions,
    source: Source,
    by: Annotated[
        str,
        typer.Option(
            metavar="KEY", help="What makes them the same: msg-id, payload, subject, header:NAME."
        ),
    ] = "msg-id",
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="Only so shortly after another, as 2m.")
    ] = "",
    into: Annotated[
        str, typer.Option(metavar="STREAM", help="Publish the others: nats://HOST:PORT/STREAM.")
    ] = "",
    subject_map: _Maps = None,
    delivery: _Delivery = DeliveryChoice.EXACTLY_ONCE,
    sink_id: _SinkId = "dedupe",
    parallel: _Parallel = 1,
    option: FormatOptions = None,
    target_option: TargetOptions = None,
) -> None:
    """Find messages that are in a stream more than once, or publish a stream without them.

    \b
    penstock spark dedupe nats://127.0.0.1:4222/ORDERS
    penstock spark dedupe DIR --by header:Order-Id --window 10m
    penstock spark dedupe DIR --into nats://127.0.0.1:4222/CLEAN --map 'orders.>=clean.>'

    Without --into duplicates are findings, and the command ends with 1 where there are any.
    """

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import dedupe as job_dedupe

        published = None
        if into:
            target = {"sinkId": sink_id, **parse_target(into, target_option)}
            published = _replaying(target, delivery, subject_map, parallel)
        window_ns = round(duration_s(window) * 1e9) if window else 0
        return job_dedupe.dedupe(
            spark,
            parse_source(source, option),
            job_dedupe.Rule(by, window_ns),
            into=published,
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "dedupe", run)


@with_job
def replay(
    job: JobOptions,
    source: Source,
    target: _Target,
    subject_map: _Maps = None,
    delivery: _Delivery = DeliveryChoice.EXACTLY_ONCE,
    sink_id: _SinkId = "replay",
    parallel: _Parallel = 1,
    speed: Annotated[
        float,
        typer.Option(metavar="FACTOR", help="1: as they came, 10: ten times as fast; 0: at once."),
    ] = 0.0,
    option: FormatOptions = None,
    target_option: TargetOptions = None,
) -> None:
    """Publish the messages of a stream or directory into another stream.

    \b
    penstock spark replay nats://a:4222/ORDERS nats://b:4222/ORDERS
    penstock spark replay DIR nats://b:4222/TEST --map 'orders.>=test.>' --speed 10
    penstock spark replay DIR nats://b:4222/EU -o subject='orders.eu.>' --delivery dedupe

    Exactly once, the next run with the same --sink-id publishes what came since, and finishes one
    that was broken off. The stream needs allow_atomic and a subject for fences then.
    """

    def run(spark: SparkSession, tell: OnProgress) -> Report:
        from penstock.spark.jobs import replay as job_replay

        options = {"sinkId": sink_id, **parse_target(target, target_option)}
        return job_replay.replay(
            spark,
            parse_source(source, option),
            _replaying(options, delivery, subject_map, parallel, speed),
            dry_run=job.dry_run,
            on_progress=tell,
        )

    run_job(job.session, "replay", run)


def _replaying(
    target: dict[str, str],
    delivery: DeliveryChoice,
    maps: list[str] | None,
    parallel: int,
    speed: float = 0.0,
) -> ReplayOptions:
    from penstock.spark.jobs.replay import ReplayOptions, parse_map
    from penstock.spark.sinks.settings import Delivery

    return ReplayOptions(
        target,
        Delivery(delivery.value),
        tuple(parse_map(each) for each in maps or []),
        parallel,
        speed,
    )
