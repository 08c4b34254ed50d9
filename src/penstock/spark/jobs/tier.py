"""The job `tier`: old messages move from a stream into its archive, and are purged behind it.

    1  everything below the cut is archived
    2  the files of messages that the stream still has are read again and checked
    3  the stream is purged, up to the end of the last file that is whole

Invariant: a message is purged only if a manifest names the file that holds it, and this run has
read that file. An interrupted run is finished by the next.
"""

from __future__ import annotations

import msgspec
from pyspark.sql import SparkSession

from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FileEntry, find_manifest
from penstock.spark.connection import streams_of
from penstock.spark.jobs.archive import TableFormat, archive
from penstock.spark.jobs.check_archive import check_files
from penstock.spark.jobs.inputs import Input, StreamFormat
from penstock.spark.jobs.job import Finding, OnProgress, Report
from penstock.spark.position import DataLoss
from penstock.spark.streams import settings as stream_settings
from penstock.spark.streams.facts import StreamFacts, end_of_rows, position_at


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
