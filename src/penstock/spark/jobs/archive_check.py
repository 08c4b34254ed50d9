"""Checking an archive: every file is read whole and held against what its manifest says.

A task checks one file: its length, its hash, and the hash of its messages, which was taken of the
messages when they were read from the stream. Read-only.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark.sql import SparkSession

from penstock.errors import CorruptStore
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FileEntry, load_manifest
from penstock.spark.archives.rows import check_file
from penstock.spark.jobs.report import Finding, Report
from penstock.spark.jobs.work import Tell, run_parts


class CheckTask(msgspec.Struct, frozen=True):
    """One file to check."""

    place: str
    entry: FileEntry


def check_archive(
    spark: SparkSession, place: str, *, dry_run: bool = False, tell: Tell | None = None
) -> Report:
    """Check every file of an archive, and that they leave no sequence out."""
    manifest = load_manifest(ArchiveFolder(place))
    report = Report("check-archive", place, dry_run=dry_run, parts=len(manifest.files))
    if not dry_run:
        report.findings = check_files(spark, place, manifest.files, tell)
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
    spark: SparkSession, place: str, files: Sequence[FileEntry], tell: Tell | None = None
) -> list[Finding]:
    """Give a finding for each file that is not what the manifest says."""
    tasks = [CheckTask(place, each) for each in files]
    found = run_parts(spark, check_part, tasks, tell)
    return [each for each in found if each is not None]


def check_part(task: CheckTask) -> Finding | None:
    """Check one file; in a task."""
    try:
        check_file(ArchiveFolder(task.place), task.entry)
    except CorruptStore as error:
        return Finding("damaged", task.entry.name, error.reason)
    return None
