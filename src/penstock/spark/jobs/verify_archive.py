"""Holding a stream's directory against its archive: the same messages in both, by their hashes.

The manifest says of each file how many messages it has and what their hashes add up to. Tasks add
up the same of the directory, each for its part; nothing of the archive but the manifest is read.
Files whose messages the directory no longer has, since they were purged, are passed over.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import msgspec
from pyspark.sql import SparkSession

from penstock.errors import UsageError
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FileEntry, hex_of, load_manifest
from penstock.spark.archives.rows import SOURCE_COLUMNS, column_numbers, hash_of_rows
from penstock.spark.jobs.archive_origin import find_origin
from penstock.spark.jobs.inputs import Input, InputPart, read_part
from penstock.spark.jobs.report import Finding, Report
from penstock.spark.jobs.work import Tell, run_parts


class ComparePart(msgspec.Struct, frozen=True):
    """What one task adds up: its part, by the stretches that files answer for."""

    source: InputPart
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]


Sums = dict[int, tuple[int, int]]
"""By the first sequence of a stretch: how many messages, and the sum of their hashes."""


def compare_with_archive(
    spark: SparkSession, source: Input, archive: str, report: Report, tell: Tell | None = None
) -> None:
    """Add to a report what a directory and its archive differ in; raises UsageError."""
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
    parts = [ComparePart(each, firsts, lasts) for each in source.parts()] if entries else []
    found = _total(run_parts(spark, add_up, parts, tell))
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


def add_up(part: ComparePart) -> Sums:
    """Give the sums of a part's messages; in a task."""
    sums: Sums = {}
    for batch in read_part(part.source, SOURCE_COLUMNS):
        sequences = column_numbers(batch.column("sequence"))
        if not len(batch):
            continue
        place = bisect.bisect_left(part.lasts, sequences[0])
        while place < len(part.firsts) and part.firsts[place] <= sequences[-1]:
            first = part.firsts[place]
            begin = bisect.bisect_left(sequences, first)
            count = bisect.bisect_right(sequences, part.lasts[place]) - begin
            known = sums.get(first, (0, 0))
            hashed = known[1] + hash_of_rows(batch.slice(begin, count))
            sums[first] = (known[0] + count, hashed % 2**64)
            place += 1
    return sums
