"""Checking an archive: by itself, or against the directory of its stream. Read-only.

By itself: a task reads one file and compares its length, its hash, and the hash of its messages,
which was taken when they were read from the stream.

Against a directory (`compare_with_archive`): the manifest has for each file the number of its
messages and the sum of their hashes. Tasks add up the same of the directory. Only the manifest of
the archive is read. Files whose messages were purged from the directory are skipped.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import partial

import msgspec
from pyspark.sql import SparkSession

from penstock.errors import CorruptStore, UsageError
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FileEntry, hex_of, load_manifest
from penstock.spark.archives.parquet import SOURCE_COLUMNS, check_file, column_numbers, hash_of_rows
from penstock.spark.jobs.inputs import Input, find_origin
from penstock.spark.jobs.job import Finding, OnProgress, Report, run_parts
from penstock.spark.part import StreamPart


class CheckTask(msgspec.Struct, frozen=True):
    """One file to check."""

    place: str
    entry: FileEntry


def check_archive(
    spark: SparkSession, place: str, *, dry_run: bool = False, on_progress: OnProgress | None = None
) -> Report:
    """Check every file of an archive, and report ranges that no file answers for."""
    manifest = load_manifest(ArchiveFolder(place))
    report = Report("check-archive", place, dry_run=dry_run, parts=len(manifest.files))
    if not dry_run:
        report.findings = check_files(spark, place, manifest.files, on_progress)
    report.findings += [
        Finding("hole", f"{first}-{last}", "gone before anybody archived them")
        for first, last in manifest.holes()
    ]
    report.add(
        files=len(manifest.files),
        messages=manifest.messages,
        bytes=manifest.bytes,
        first=manifest.first,
        end=manifest.end,
    )
    return report


def check_files(
    spark: SparkSession,
    place: str,
    files: Sequence[FileEntry],
    on_progress: OnProgress | None = None,
) -> list[Finding]:
    """Return a finding for each file that differs from the manifest."""
    tasks = [CheckTask(place, each) for each in files]
    found = run_parts(spark, check_part, tasks, on_progress)
    return [each for each in found if each is not None]


def check_part(task: CheckTask) -> Finding | None:
    """Return a finding if a file is damaged; in a task."""
    try:
        check_file(ArchiveFolder(task.place), task.entry)
    except CorruptStore as error:
        return Finding("damaged", task.entry.name, error.reason)
    return None


Sums = dict[int, tuple[int, int]]
"""By the first sequence of a file: how many messages, and the sum of their hashes."""


def compare_with_archive(
    spark: SparkSession,
    source: Input,
    archive: str,
    report: Report,
    on_progress: OnProgress | None = None,
) -> None:
    """Add differences of a directory and its archive to a report; raise UsageError."""
    manifest = load_manifest(ArchiveFolder(archive))
    origin = find_origin(source.whole())
    if manifest.created != origin.created:
        raise UsageError(
            f"{archive} is of the stream {manifest.stream} that was made {manifest.created}, and "
            f"{source.shown} is {origin.stream}, which was made {origin.created}"
        )
    entries = [each for each in manifest.files if each.first >= origin.first]
    report.add(archive_files=len(entries), archive_files_passed=len(manifest.files) - len(entries))
    if manifest.end > origin.end:
        report.findings.append(
            Finding(
                "archive",
                archive,
                f"it goes up to sequence {manifest.end - 1}, and the directory to {origin.end - 1}",
            )
        )
    firsts = tuple(each.first for each in entries)
    lasts = tuple(each.last for each in entries)
    parts = source.parts() if entries else []
    found = _total(run_parts(spark, partial(add_up, firsts, lasts), parts, on_progress))
    report.findings += [
        finding for each in entries if (finding := _compared(each, found, archive)) is not None
    ]


def _total(parts: Sequence[Sums]) -> Sums:
    total: Sums = {}
    for sums in parts:
        for first, (count, hashed) in sums.items():
            known = total.get(first, (0, 0))
            total[first] = (known[0] + count, (known[1] + hashed) % 2**64)
    return total


def _compared(entry: FileEntry, found: Sums, archive: str) -> Finding | None:
    count, hashed = found.get(entry.first, (0, 0))
    if count == entry.messages and hex_of(hashed) == entry.rows_hash:
        return None
    what = "other messages" if count == entry.messages else f"{count} messages"
    return Finding(
        "archive",
        f"{archive}/{entry.name}",
        f"the directory has {what} from {entry.first} to {entry.last}; archived were "
        f"{entry.messages}",
    )


def add_up(firsts: Sequence[int], lasts: Sequence[int], part: StreamPart) -> Sums:
    """Return the sums of a part's messages by file; in a task."""
    sums: Sums = {}
    for batch in part.read(SOURCE_COLUMNS):
        sequences = column_numbers(batch.column("sequence"))
        if not len(batch):
            continue
        place = bisect.bisect_left(lasts, sequences[0])
        while place < len(firsts) and firsts[place] <= sequences[-1]:
            first = firsts[place]
            begin = bisect.bisect_left(sequences, first)
            count = bisect.bisect_right(sequences, lasts[place]) - begin
            known = sums.get(first, (0, 0))
            hashed = known[1] + hash_of_rows(batch.slice(begin, count))
            sums[first] = (known[0] + count, hashed % 2**64)
            place += 1
    return sums
