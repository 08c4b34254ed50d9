"""The job `restore`: an archive becomes a stream again, in one of three ways.

    publish     its messages are published: new sequences and times, the old ones in headers
    blocks      a directory of blocks: the same sequences, times, headers and gaps
    snapshot    a backup of the stream, as `penstock stream restore` and the `nats` tool take it

Publishing is here; the other two, which need no server, are in `restore_files`.

A published message has its origin in headers: `Nats-Orig-Stream`, `Nats-Orig-Sequence`,
`Nats-Orig-Time`. Headers that would tell the server to do something (expectations, ids, rollups,
schedules, times to live) are left out: they were meant for the stream that the message was in.

Files are published one after the other, in order, each by a task that checks it first. The last
message's headers in the stream say how far a restore has come, and each message has an id: an
interrupted restore, or a task that is run again, goes on behind that. So the stream must be empty,
or end with a message of this archive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.errors import ApiError, UsageError
from penstock.spark.archives.folder import ArchiveFolder, FileEntry, Manifest, load_manifest
from penstock.spark.archives.parquet import binary_buffers, check_file, read_exact
from penstock.spark.connection import ALIASES, Connection, streams_of
from penstock.spark.jobs.job import OnProgress, Report, run_parts
from penstock.spark.jobs.replay import origin_headers
from penstock.spark.options import Options
from penstock.spark.streams.facts import stream_facts


def begin_restore(
    place: str, *, dry_run: bool, allow_holes: bool
) -> tuple[ArchiveFolder, Manifest, Report]:
    """Open an archive for a restore; raise UsageError if it has holes and they are not allowed."""
    folder = ArchiveFolder(place)
    manifest = load_manifest(folder)
    holes = manifest.holes()
    if holes and not allow_holes:
        first, last = holes[0]
        raise UsageError(
            f"{place} has nothing of the sequences from {first} to {last}, which were gone before "
            "they were archived; allow holes to restore the rest"
        )
    report = Report("restore", place, dry_run=dry_run, parts=len(manifest.files))
    report.counts |= {"messages": manifest.messages, "bytes": manifest.bytes}
    report.counts |= {"first": manifest.first, "end": manifest.end}
    return folder, manifest, report


def rows_of(
    folder: ArchiveFolder, manifest: Manifest, on_progress: OnProgress | None
) -> Iterator[pa.RecordBatch]:
    """Yield an archive's messages in order, and report how many files are done."""
    for number, entry in enumerate(manifest.files):
        if on_progress is not None:
            on_progress(number, len(manifest.files))
        yield from read_exact(folder, [entry])
    if on_progress is not None:
        on_progress(len(manifest.files), len(manifest.files))


def named_config(manifest: Manifest, name: str) -> dict[str, object]:
    """Return the stream's configuration with a name; raise UsageError if it is unknown."""
    if not manifest.config.get("name"):
        raise UsageError(
            "the archive was made of a directory that says nothing of the stream's configuration"
        )
    return {**manifest.config, "name": name or manifest.stream}


IN_FLIGHT = 4096
"""Messages that wait for their acknowledgement at a time."""

_ORIGIN = re.compile(rb"\r\nNats-Orig-(Stream|Sequence): ([^\r\n]*)")


class PublishTask(msgspec.Struct, frozen=True):
    """One file to publish."""

    place: str
    entry: FileEntry
    connection: Connection
    target: str
    stream: str
    created: str


def restore_publish(
    spark: SparkSession,
    place: str,
    options: Mapping[str, str],
    *,
    name: str = "",
    create: bool = False,
    allow_holes: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Publish an archive into a stream; with `create`, create it as it was if there is none.

    `options` are those of a connection. Raise UsageError if the stream holds something else.
    """
    given = Options("restore", options, ALIASES)
    connection = given.group(Connection)
    given.finish()
    _, manifest, report = begin_restore(place, dry_run=dry_run, allow_holes=allow_holes)
    target = name or manifest.stream
    with streams_of(connection) as streams:
        if create and not dry_run:
            _create(streams, target, named_config(manifest, target))
        if not (create and dry_run):
            stream_facts(streams, target)
        done = 0 if create and dry_run else last_restored(streams, target, manifest.stream)
    tasks = [
        PublishTask(place, each, connection, target, manifest.stream, manifest.created)
        for each in manifest.files
        if each.last > done and each.messages
    ]
    report.parts_skipped = len(manifest.files) - len(tasks)
    if not dry_run:
        for number, task in enumerate(tasks):
            report.add(published=run_parts(spark, publish_part, [task])[0])
            if on_progress is not None:
                on_progress(number + 1, len(tasks))
    return report


def _create(streams: JetStream, target: str, config: dict[str, object]) -> None:
    try:
        streams.call(f"STREAM.INFO.{target}")
    except ApiError as error:
        if error.err_code != error_codes.STREAM_NOT_FOUND.err_code:
            raise
        streams.call(f"STREAM.CREATE.{target}", config)


def last_restored(streams: JetStream, target: str, stream: str) -> int:
    """Return the sequence that the stream's last message had in the archive; 0 if it is empty.

    Raise UsageError if that message is not of this archive.
    """
    last = streams.find(target, last_by_subj=">")
    if last is None:
        return 0
    told = {found[1]: found[2] for found in _ORIGIN.finditer(last.headers)}
    if told.get(b"Stream") != stream.encode() or not told.get(b"Sequence", b"").isdigit():
        raise UsageError(
            f"stream {target} ends with a message that is not of this archive: restore into an "
            "empty stream"
        )
    return int(told[b"Sequence"])


def publish_part(task: PublishTask) -> int:
    """Publish the rest of a file; return how many messages. In a task."""
    folder = ArchiveFolder(task.place)
    check_file(folder, task.entry)
    published = 0
    with streams_of(task.connection) as streams:
        done = last_restored(streams, task.target, task.stream)
        with streams.client.publishing_rows(in_flight=IN_FLIGHT) as publisher:
            for batch in read_exact(folder, [task.entry]):
                left = batch.filter(pc.greater(batch.column("sequence"), done))
                publisher.publish(
                    Rows(
                        binary_buffers(left.column("subject_raw")),
                        binary_buffers(headers_of(left, task)),
                        binary_buffers(left.column("data")),
                    )
                )
                published += left.num_rows
    return published


def headers_of(batch: pa.RecordBatch, task: PublishTask) -> pa.Array:
    """Return the headers with which messages are published."""
    return origin_headers(
        batch,
        task.stream,
        first_lines=f"Nats-Expected-Stream: {task.target}\r\n",
        id_start=f"{task.stream}:{task.created}:",
    )
