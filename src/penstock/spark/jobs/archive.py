"""The job `archive`: a stream's messages as Parquet files, with a manifest that vouches for them.

A task reads its stretch of the stream and writes it as one file; the driver then names all new
files in the next manifest. A run goes on where the last manifest ended. One that was broken off
leaves files that no manifest names: the next run keeps their stretches, and those that prove whole
are not written again.

What always holds: the archive answers for every message of its stretches that was there when they
were read; a reader sees a manifest with all its files, or the one before.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace
from pyspark.sql import SparkSession

from penstock.errors import UsageError
from penstock.spark.archives.folder import TEMPORARY_SUFFIX, ArchiveFolder
from penstock.spark.archives.manifest import FileEntry, Manifest, commit, find_manifest
from penstock.spark.archives.rows import (
    DATA,
    SOURCE_COLUMNS,
    FileTask,
    find_written,
    group_rows_for,
    write_file,
)
from penstock.spark.archives.scan import ArchivePart
from penstock.spark.blocks.scan import Stretch
from penstock.spark.jobs.archive_origin import Origin, between, find_origin
from penstock.spark.jobs.inputs import Input, InputPart, read_part
from penstock.spark.jobs.report import Report
from penstock.spark.jobs.work import Tell, run_parts
from penstock.spark.positions import DataLoss

_FILE_NAME = re.compile(r"(\d{20})-(\d{20})\.parquet(\.[0-9a-f]+)?")


class TableFormat(StrEnum):
    """As what other engines can open the archive."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class ArchiveTask(msgspec.Struct, frozen=True):
    """What one task does: a file, and where its messages come from."""

    place: str
    file: FileTask
    parts: tuple[InputPart, ...]


class Written(msgspec.Struct, frozen=True):
    """What a task did."""

    entry: FileEntry
    was_there: bool


class Plan(msgspec.Struct, frozen=True):
    """What a run is to do."""

    manifest: Manifest
    """As it will be, but for the files that are still to be written."""

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
    tell: Tell | None = None,
) -> Report:
    """Bring the archive at `target` up to the stream's end, or up to the sequence `until`.

    `until` itself is left to the stream. Raises DataLoss where messages went before they were
    archived, unless holes are allowed; UsageError where the archive is of another stream.
    """
    plan = plan_archive(source, target, until=until, allow_holes=allow_holes)
    report = Report("archive", source.shown, dry_run=dry_run, parts=len(plan.tasks))
    report.counts |= {"first": plan.manifest.first, "end": plan.manifest.end}
    if dry_run:
        report.outputs = [f"{target}/{each.file.name}" for each in plan.tasks]
        return report
    written = run_parts(spark, write_part, plan.tasks, tell)
    manifest = conclude(target, plan, written)
    bring_tables(target, manifest, table)
    _tell_counts(report, target, manifest, written)
    return report


def conclude(target: str, plan: Plan, written: Sequence[Written]) -> Manifest:
    """Name in a manifest what the tasks of a plan have written; raises AlreadyThere."""
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
    """Make a table of another engine name what the manifest names; raises UsageError."""
    if not manifest.number:
        return
    if table is TableFormat.DELTA:
        from penstock.spark.jobs.tables_delta import commit_delta

        commit_delta(target, manifest)
    elif table is TableFormat.ICEBERG:
        from penstock.spark.jobs.tables_iceberg import commit_iceberg

        commit_iceberg(target, manifest)


# Planning, in the driver


def plan_archive(
    source: Input, target: str, *, until: int | None = None, allow_holes: bool = False
) -> Plan:
    """Find out what is still to be archived; see `archive` for what it raises."""
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
) -> Iterator[tuple[int, int, tuple[InputPart, ...]]]:
    """Give the first and last sequence of each file, and where its messages come from."""
    at = begin
    for first, last in [*_left_behind(folder, begin, end), (end, end)]:
        yield from _planned(source, at, first)
        if first < end:
            parts = tuple(part for _, _, each in _planned(source, first, last + 1) for part in each)
            yield first, last, parts
        at = last + 1


def _planned(
    source: Input, first: int, end: int
) -> Iterator[tuple[int, int, tuple[InputPart, ...]]]:
    if first >= end:
        return
    parts = between(source, first, end).parts()
    lasts = [_last_of(each) for each in parts[:-1]] + [end - 1]
    # What lies between two parts has no messages: the one behind it answers for it.
    firsts = [first, *(last + 1 for last in lasts)]
    if not parts:
        yield first, end - 1, ()
    for part, start, last in zip(parts, firsts, lasts, strict=False):
        yield start, last, (part,)


def _last_of(part: InputPart) -> int:
    if isinstance(part.source, Stretch):
        return min(part.source.blocks[-1].last_seq, part.source.wanted.last_seq)
    if isinstance(part.source, ArchivePart):
        return part.source.files[-1].last
    return part.source.end - 1


def _left_behind(folder: ArchiveFolder, begin: int, end: int) -> list[tuple[int, int]]:
    """Give the stretches of files that a run which was broken off has left."""
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
    target: str, origin: Origin, stretch: tuple[int, int, tuple[InputPart, ...]], source: Input
) -> ArchiveTask:
    first, last, parts = stretch
    blocks = [
        block for each in parts if isinstance(each.source, Stretch) for block in each.source.blocks
    ]
    rows = group_rows_for(sum(each.count for each in blocks), sum(each.bytes for each in blocks))
    return ArchiveTask(target, FileTask(origin.stream, origin.created, first, last, rows), parts)


def _sweep(folder: ArchiveFolder, manifest: Manifest) -> None:
    """Remove what broken-off runs left of the stretches that the manifest answers for."""
    named = {each.name for each in manifest.files}
    for name in folder.names(DATA):
        told = _FILE_NAME.match(name)
        is_ours = told is not None and (told.end() == len(name) or name.endswith(TEMPORARY_SUFFIX))
        if told and is_ours and f"{DATA}/{name}" not in named and int(told[2]) < manifest.end:
            folder.remove(f"{DATA}/{name}")


# In tasks


def write_part(task: ArchiveTask) -> Written:
    """Write one file, unless it is there."""
    folder = ArchiveFolder(task.place)
    found = find_written(folder, task.file)
    if found is not None:
        return Written(found, was_there=True)
    rows = itertools.chain.from_iterable(read_part(each, SOURCE_COLUMNS) for each in task.parts)
    return Written(write_file(folder, task.file, rows), was_there=False)
