"""Restoring an archive by publishing it: into any stream, of any server, under new sequences.

A message tells where it was before: `Nats-Orig-Stream`, `Nats-Orig-Sequence`, `Nats-Orig-Time`.
Headers that would tell the server to do something (expectations, ids, rollups, schedules, times to
live) are left out: they were meant for the stream that it was in.

Files are published one after the other, in order, each by a task that has first checked it. How
far a restore has come stands in the stream itself, in the last message's headers, and each message
has an id: so a restore that was broken off, or a task that is run again, goes on behind that. The
stream must be empty, therefore, or end with a message of this archive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from penstock import error_codes
from penstock.client.jetstream import JetStream
from penstock.client.rows import Rows
from penstock.errors import ApiError, UsageError
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FileEntry
from penstock.spark.archives.rows import binary_buffers, check_file, read_exact
from penstock.spark.connecting import ALIASES, Connection, streams_of
from penstock.spark.jobs.report import Report
from penstock.spark.jobs.republish import origin_headers
from penstock.spark.jobs.restore import begin_restore, named_config
from penstock.spark.jobs.work import Tell, run_parts
from penstock.spark.options import Options
from penstock.spark.streams.facts import stream_facts

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
    tell: Tell | None = None,
) -> Report:
    """Publish an archive into a stream, which `create` makes as it was where there is none.

    `options` are those of a connection. Raises UsageError where the stream holds something else.
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
            if tell is not None:
                tell(number + 1, len(tasks))
    return report


def _create(streams: JetStream, target: str, config: dict[str, object]) -> None:
    try:
        streams.call(f"STREAM.INFO.{target}")
    except ApiError as error:
        if error.err_code != error_codes.STREAM_NOT_FOUND.err_code:
            raise
        streams.call(f"STREAM.CREATE.{target}", config)


def last_restored(streams: JetStream, target: str, stream: str) -> int:
    """Give the sequence that the stream's last message had in the archive; 0 for an empty stream.

    Raises UsageError where that message is of somewhere else.
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
    """Publish what is still to be published of a file; give how many messages. In a task."""
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
    """Give each message's headers as they are published."""
    return origin_headers(
        batch,
        task.stream,
        first_lines=f"Nats-Expected-Stream: {task.target}\r\n",
        id_start=f"{task.stream}:{task.created}:",
    )
