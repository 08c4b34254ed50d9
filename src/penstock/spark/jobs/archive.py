"""The jobs `archive`, `tail` and `tier`: a stream's messages as Parquet files, named by a manifest.

A task reads its range of the stream and writes it as one file; the driver then names all new files
in the next manifest. A run goes on where the last manifest ended. An interrupted run leaves files
that no manifest names: the next run keeps their ranges, and does not write whole files again.

`tail` follows the stream by Structured Streaming. The query only says when there is something new;
its rows are never read. Each of its batches runs `archive`, whose manifest says how far it came. So
a batch that Spark runs again archives nothing twice, the query needs no checkpoint of its own, and
`archive` may run beside it: of two that write one manifest, one does. Every batch leaves a file for
each of its parts, so batches should be far apart, or large.

`tier` moves old messages: all below a cut is archived, the files of messages that the stream still
has are read again and checked, and the stream is purged up to the end of the last file that is
whole. An interrupted run is finished by the next.

Invariants: the archive answers for every message of its ranges that was there when they were read.
A reader sees a manifest with all its files, or the one before. A message is purged only if a
manifest names the file that holds it, and this run has read that file.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.jetstream import JetStream
from penstock.errors import PenstockError, UsageError
from penstock.spark.archives.folder import (
    TEMPORARY_SUFFIX,
    AlreadyThere,
    ArchiveFolder,
    FileEntry,
    Manifest,
    commit,
    find_manifest,
)
from penstock.spark.archives.parquet import (
    DATA,
    SOURCE_COLUMNS,
    FileTask,
    find_written,
    group_rows_for,
    write_file,
)
from penstock.spark.connection import streams_of
from penstock.spark.jobs.job import (
    BlockFormat,
    Finding,
    Input,
    OnProgress,
    Origin,
    Report,
    StreamFormat,
    between,
    find_origin,
    run_parts,
)
from penstock.spark.jobs.verify import check_files
from penstock.spark.part import StreamPart
from penstock.spark.position import DataLoss
from penstock.spark.streams import settings as stream_settings
from penstock.spark.streams.facts import StreamFacts, end_of_rows, position_at

# Archiving

_FILE_NAME = re.compile(r"(\d{20})-(\d{20})\.parquet(\.[0-9a-f]+)?")


class TableFormat(StrEnum):
    """The format in which other engines can open the archive."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class ArchiveTask(msgspec.Struct, frozen=True):
    """What one task writes: a file, and the parts that its messages come from."""

    place: str
    file: FileTask
    parts: tuple[StreamPart, ...]


class Written(msgspec.Struct, frozen=True):
    """The result of a task."""

    entry: FileEntry
    was_there: bool


class Plan(msgspec.Struct, frozen=True):
    """What a run has to do."""

    manifest: Manifest
    """The next manifest, without the files that are still to be written."""

    tasks: tuple[ArchiveTask, ...]


def archive(
    spark: SparkSession,
    source: Input,
    target: str,
    *,
    until: int | None = None,
    table: TableFormat = TableFormat.PARQUET,
    allow_holes: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Archive a stream at `target` up to its end, or up to the sequence `until`, exclusive.

    Raise DataLoss if messages were removed before they were archived, unless holes are allowed.
    Raise UsageError if the archive is of another stream.
    """
    plan = plan_archive(source, target, until=until, allow_holes=allow_holes)
    report = Report("archive", source.shown, dry_run=dry_run, parts=len(plan.tasks))
    report.counts |= {"first": plan.manifest.first, "end": plan.manifest.end}
    if dry_run:
        report.outputs = [f"{target}/{each.file.name}" for each in plan.tasks]
        return report
    written = run_parts(spark, write_part, plan.tasks, on_progress)
    manifest = conclude(target, plan, written)
    bring_tables(target, manifest, table)
    _tell_counts(report, target, manifest, written)
    return report


def conclude(target: str, plan: Plan, written: Sequence[Written]) -> Manifest:
    """Write and return the manifest with the files of a plan's tasks; raise AlreadyThere."""
    if not written:
        return plan.manifest
    folder = ArchiveFolder(target)
    manifest = commit(folder, plan.manifest, [each.entry for each in written])
    _sweep(folder, manifest)
    return manifest


def _tell_counts(
    report: Report, target: str, manifest: Manifest, written: Sequence[Written]
) -> None:
    report.parts_skipped = sum(each.was_there for each in written)
    report.add(
        files=len(written),
        messages=sum(each.entry.messages for each in written),
        bytes=sum(each.entry.bytes for each in written),
        file_bytes=sum(each.entry.file_bytes for each in written),
        archived_messages=manifest.messages,
    )
    report.outputs = [f"{target}/{each.entry.name}" for each in written]


def bring_tables(target: str, manifest: Manifest, table: TableFormat) -> None:
    """Add the manifest's files to a Delta or Iceberg table; raise UsageError."""
    if not manifest.number:
        return
    if table is TableFormat.DELTA:
        from penstock.spark.jobs.delta_table import commit_delta

        commit_delta(target, manifest)
    elif table is TableFormat.ICEBERG:
        from penstock.spark.jobs.iceberg_table import commit_iceberg

        commit_iceberg(target, manifest)


# Planning, in the driver


def plan_archive(
    source: Input, target: str, *, until: int | None = None, allow_holes: bool = False
) -> Plan:
    """Return what is still to be archived; raise what `archive` raises."""
    folder = ArchiveFolder(target)
    origin = find_origin(source)
    before = find_manifest(folder)
    begin = _begin(folder, origin, before, allow_holes=allow_holes)
    end = origin.end if until is None else min(origin.end, until)
    now = Manifest(origin.stream, origin.created, origin.config, begin, max(begin, end))
    if before is not None:
        now = replace(
            now, first=before.first, number=before.number, files=before.files, end=max(begin, end)
        )
    tasks = [
        _task(target, origin, stretch, source) for stretch in _stretches(folder, source, begin, end)
    ]
    return Plan(now, tuple(tasks))


def _begin(
    folder: ArchiveFolder, origin: Origin, before: Manifest | None, *, allow_holes: bool
) -> int:
    if before is None:
        return origin.first
    if before.stream != origin.stream:
        raise UsageError(f"{folder.place} is an archive of {before.stream}, not {origin.stream}")
    if before.created != origin.created:
        raise UsageError(
            f"{folder.place} is of a stream {before.stream} that was made {before.created}, and "
            f"this one was made {origin.created}: archive it to another place"
        )
    if origin.first > before.end and not allow_holes:
        raise DataLoss(
            f"stream {origin.stream}: the archive ends before sequence {before.end}, and the first "
            f"that is left is {origin.first}: what lay between is gone. Allow holes to go on there"
        )
    return max(origin.first, before.end)


def _stretches(
    folder: ArchiveFolder, source: Input, begin: int, end: int
) -> Iterator[tuple[int, int, tuple[StreamPart, ...]]]:
    """Yield the first and last sequence of each file, and the parts of its messages."""
    at = begin
    for first, last in [*_left_behind(folder, begin, end), (end, end)]:
        yield from _planned(source, at, first)
        if first < end:
            parts = tuple(part for _, _, each in _planned(source, first, last + 1) for part in each)
            yield first, last, parts
        at = last + 1


def _planned(
    source: Input, first: int, end: int
) -> Iterator[tuple[int, int, tuple[StreamPart, ...]]]:
    if first >= end:
        return
    parts = between(source, first, end).parts()
    lasts = [each.last_seq for each in parts[:-1]] + [end - 1]
    # Sequences between two parts have no messages: the part behind them answers for them.
    firsts = [first, *(last + 1 for last in lasts)]
    if not parts:
        yield first, end - 1, ()
    for part, start, last in zip(parts, firsts, lasts, strict=False):
        yield start, last, (part,)


def _left_behind(folder: ArchiveFolder, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of files that an interrupted run left."""
    found: list[tuple[int, int]] = []
    for name in folder.names(DATA):
        told = _FILE_NAME.fullmatch(name)
        if told is None or told[3]:
            continue
        first, last = int(told[1]), int(told[2])
        behind = found[-1][1] + 1 if found else begin
        if behind <= first <= last < end:
            found.append((first, last))
    return found


def _task(
    target: str, origin: Origin, stretch: tuple[int, int, tuple[StreamPart, ...]], source: Input
) -> ArchiveTask:
    first, last, parts = stretch
    rows = group_rows_for(sum(each.count for each in parts), sum(each.bytes for each in parts))
    return ArchiveTask(target, FileTask(origin.stream, origin.created, first, last, rows), parts)


def _sweep(folder: ArchiveFolder, manifest: Manifest) -> None:
    """Remove files of interrupted runs in the ranges that the manifest answers for."""
    named = {each.name for each in manifest.files}
    for name in folder.names(DATA):
        told = _FILE_NAME.match(name)
        is_ours = told is not None and (told.end() == len(name) or name.endswith(TEMPORARY_SUFFIX))
        if told and is_ours and f"{DATA}/{name}" not in named and int(told[2]) < manifest.end:
            folder.remove(f"{DATA}/{name}")


# In tasks


def write_part(task: ArchiveTask) -> Written:
    """Write one file, unless an earlier run wrote it."""
    folder = ArchiveFolder(task.place)
    found = find_written(folder, task.file)
    if found is not None:
        return Written(found, was_there=True)
    rows = itertools.chain.from_iterable(each.read(SOURCE_COLUMNS) for each in task.parts)
    return Written(write_file(folder, task.file, rows), was_there=False)


class Tail:
    """Keeps an archive up to its stream; `report` is what it has done so far."""

    def __init__(
        self,
        spark: SparkSession,
        source: Input,
        target: str,
        *,
        table: TableFormat = TableFormat.PARQUET,
        allow_holes: bool = False,
    ) -> None:
        self._spark = spark
        self._source = source
        self._target = target
        self._table = table
        self._allow_holes = allow_holes
        self._failure: PenstockError | OSError | None = None
        self.report = Report("tail", source.shown)

    def run(self, *, every_s: float | None = None) -> Report:
        """Follow the stream until the query is stopped; without `every_s` up to its present end.

        Raise what `archive` raises.
        """
        with tempfile.TemporaryDirectory(prefix="penstock-tail-") as checkpoint:
            query = self.start(checkpoint, every_s=every_s)
            try:
                query.awaitTermination()
            except StreamingQueryException:
                if self._failure is None:
                    raise
                raise self._failure from None
            finally:
                query.stop()
        return self.report

    def start(self, checkpoint: str, *, every_s: float | None = None) -> StreamingQuery:
        """Start to follow the stream; `checkpoint` is the folder of Spark's checkpoint."""
        manifest = find_manifest(ArchiveFolder(self._target))
        options = {
            **self._source.options,
            "startingOffsets": "earliest" if manifest is None else str(manifest.end),
            # The job `archive` decides about losses: it knows what the archive holds.
            "failOnDataLoss": "false",
            "columns": "sequence",
        }
        path = options.pop("path", None) if self._source.format == BlockFormat else None
        frame = self._spark.readStream.format(self._source.format).options(**options).load(path)
        writer = frame.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", checkpoint)
        writer = (
            writer.trigger(availableNow=True)
            if every_s is None
            else writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        )
        return writer.start()

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        try:
            done = archive(
                self._spark,
                self._source,
                self._target,
                table=self._table,
                allow_holes=self._allow_holes,
            )
        except AlreadyThere:
            # Another job has archived these messages: the next batch goes on behind
            # them.
            return
        except (PenstockError, OSError) as error:
            self._failure = error
            raise
        self.report.parts += done.parts
        self.report.parts_skipped += done.parts_skipped
        self.report.outputs += done.outputs
        self.report.counts |= {name: done.counts[name] for name in ("first", "end")}
        self.report.add(
            **{name: done.counts[name] for name in ("files", "messages", "bytes", "file_bytes")}
        )


# Tiering: archive, check, then purge


class Keep(msgspec.Struct, frozen=True):
    """What stays in the stream: messages from a time on, or the last so many."""

    since_ns: int | None = None
    messages: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for both, for neither, and for a negative number."""
        if (self.since_ns is None) == (self.messages is None):
            raise UsageError("say what stays in the stream: a time, or a number of messages")
        if self.messages is not None and self.messages < 0:
            raise UsageError("what stays in the stream cannot be less than nothing")


def tier(
    spark: SparkSession,
    source: Input,
    target: str,
    keep: Keep,
    *,
    table: TableFormat = TableFormat.PARQUET,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Archive messages that do not stay, check the files, and purge the stream.

    Raise what `archive` raises. If a file is damaged, the purge ends before it, and the report has
    it as a finding.
    """
    if source.format != StreamFormat:
        raise UsageError(f"only a server can purge a stream: read it as {StreamFormat}")
    settings = stream_settings.read_settings(source.options)
    facts = stream_settings.find_streams(settings)[0]
    if facts.takes_messages:
        raise UsageError(f"stream {facts.name} loses messages to its consumers, not to their age")
    with streams_of(settings.connection) as streams:
        cut = find_cut(streams, facts, keep)
    report = archive(
        spark, source, target, until=cut, table=table, dry_run=dry_run, on_progress=on_progress
    )
    report.job = "tier"
    report.counts["cut"] = cut
    manifest = find_manifest(ArchiveFolder(target))
    if dry_run or manifest is None or facts.first_seq >= cut:
        report.add(purged=0)
        return report
    files = manifest.between(facts.first_seq, cut - 1)
    report.findings = check_files(spark, target, files, on_progress)
    end = min(_proved_end(facts.first_seq, files, report.findings), cut)
    if end < cut and not report.findings:
        what = f"no file answers for sequence {end}, which the stream still has"
        report.findings.append(Finding("not archived", target, what))
    with streams_of(settings.connection) as streams:
        report.add(purged=_purge(streams, facts, end))
    return report


def find_cut(streams: JetStream, facts: StreamFacts, keep: Keep) -> int:
    """Return the first sequence that stays in the stream."""
    if keep.messages is not None:
        gone = facts.messages - keep.messages
        if gone <= 0:
            return facts.first_seq
        return end_of_rows(streams, facts, facts.first_seq, facts.last_seq + 1, gone)[0]
    assert keep.since_ns is not None, "one of them is given"
    position = position_at(streams, facts, keep.since_ns)
    return facts.last_seq + 1 if position is None else max(position, facts.first_seq)


def _proved_end(first: int, files: list[FileEntry], findings: list[Finding]) -> int:
    damaged = {each.where for each in findings}
    at = first
    for each in files:
        if each.first > at or each.name in damaged:
            break
        at = each.last + 1
    return at


def _purge(streams: JetStream, facts: StreamFacts, end: int) -> int:
    if end <= facts.first_seq:
        return 0
    info = streams.call(f"STREAM.INFO.{facts.name}")
    if info["created"] != facts.created:
        raise DataLoss(
            f"stream {facts.name} was made anew while it was archived; nothing is purged"
        )
    purged: int = streams.call(f"STREAM.PURGE.{facts.name}", {"seq": end})["purged"]
    return purged
