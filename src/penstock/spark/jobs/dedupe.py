"""The job `dedupe`: messages that are in a stream more than once, reported or left out.

A key makes two messages the same: the message id, subject and payload, the subject, or a chosen
header. With a window a message is a duplicate only if the one with its key before it came within
that time; without, wherever it is. The first of several is kept.

Tasks hash keys to 128 bits; Spark sorts the hashes. Every duplicate is a finding of the report.
With a stream to write to, all other messages are published there, as `replay` does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock.errors import UsageError
from penstock.format.sequence_set import SequenceSet
from penstock.limits import DEDUPE_DROPPED_MAX, JOB_FINDINGS_MAX
from penstock.spark import schema
from penstock.spark.jobs.job import Finding, Input, OnProgress, Report, between, part_rows, running
from penstock.spark.jobs.replay import ReplayOptions, bounds_of, replay
from penstock.spark.part import StreamPart
from penstock.spark.rows import hash_each
from penstock.spark.sinks.settings import column_bytes

JOB = "dedupe"
MESSAGE_ID = "msg-id"
PAYLOAD = "payload"
SUBJECT = "subject"
HEADER = "header:"

ROWS = "key_a long, key_b long, sequence long, time_ns long"
_NAMES = ["key_a", "key_b", "sequence", "time_ns"]
_HEADER_NAME = re.compile(r"[!-9;-~]{1,256}")


class Rule(msgspec.Struct, frozen=True):
    """What makes two messages the same."""

    key: str = MESSAGE_ID
    window_ns: int = 0
    """The longest time between a duplicate and the message before it; 0 for any time."""

    def __post_init__(self) -> None:
        """Raise UsageError for a wrong key or window."""
        header = self.key.removeprefix(HEADER) if self.key.startswith(HEADER) else None
        if header is None and self.key not in (MESSAGE_ID, PAYLOAD, SUBJECT):
            raise UsageError(
                f"messages are the same by {MESSAGE_ID}, {PAYLOAD}, {SUBJECT} or {HEADER}NAME, "
                f"not by {self.key!r}"
            )
        if header is not None and not _HEADER_NAME.fullmatch(header):
            raise UsageError(f"{header!r} cannot be a header's name")
        if self.window_ns < 0:
            raise UsageError("a window is not negative")

    @property
    def header(self) -> str:
        """The header that is the key; "" if the key is no header."""
        return "Nats-Msg-Id" if self.key == MESSAGE_ID else self.key.removeprefix(HEADER)


def dedupe(
    spark: SparkSession,
    source: Input,
    rule: Rule,
    *,
    into: ReplayOptions | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Find duplicates; with `into`, publish all other messages there. Raise UsageError."""
    if into is not None:
        # Messages that come meanwhile are for the next run.
        source = between(source, *bounds_of(source))
    parts = source.parts()
    report = Report(JOB, source.shown, dry_run=dry_run, parts=len(parts))
    if dry_run and into is None:
        return report
    found = find_duplicates(spark, parts, rule).persist()
    try:
        with running(spark, len(parts), on_progress):
            report.add(duplicates=found.count())
            if into is None:
                report.findings = _findings(found, rule)
                return report
            dropped = _dropped(found, report.counts["duplicates"])
    finally:
        found.unpersist()
    told = msgspec.json.encode(rule).decode()
    done = replay(
        spark,
        source,
        replace(into, rule=told),
        job=JOB,
        dropped=dropped,
        dry_run=dry_run,
        on_progress=on_progress,
    )
    done.counts = {**report.counts, **done.counts}
    return done


def find_duplicates(spark: SparkSession, parts: list[StreamPart], rule: Rule) -> DataFrame:
    """Return the duplicates' sequences, each with that of the message before it (`before`)."""
    rows = part_rows(spark, partial(hash_keys, rule), parts, ROWS)
    alike = Window.partitionBy("key_a", "key_b").orderBy("sequence")
    found = rows.withColumns(
        {
            "before": f.lag("sequence").over(alike),
            "since_ns": f.col("time_ns") - f.lag("time_ns").over(alike),
        }
    ).where(f.col("before").isNotNull())
    if rule.window_ns:
        found = found.where(f.col("since_ns") <= rule.window_ns)
    return found.select("sequence", "before")


def _findings(found: DataFrame, rule: Rule) -> list[Finding]:
    shown = found.orderBy("sequence").limit(JOB_FINDINGS_MAX).collect()
    return [
        Finding("duplicate", f"sequence {row['sequence']}", f"{rule.key} as of {row['before']}")
        for row in shown
    ]


def _dropped(found: DataFrame, count: int) -> SequenceSet:
    if count > DEDUPE_DROPPED_MAX:
        raise UsageError(
            f"{count} duplicates are more than {DEDUPE_DROPPED_MAX}: take a part of the stream at "
            "a time, with startingOffsets and endingOffsets"
        )
    dropped = SequenceSet()
    for row in found.orderBy("sequence").toLocalIterator():
        dropped.add(row["sequence"])
    return dropped


# In tasks


def hash_keys(rule: Rule, part: StreamPart) -> Iterator[pa.RecordBatch]:
    """Yield the hashed keys of a part's messages; a message without a key is no duplicate."""
    columns = [schema.SEQUENCE, schema.TIME_NS, schema.SUBJECT_RAW]
    if rule.key == PAYLOAD:
        columns.append(schema.DATA)
    elif rule.key != SUBJECT:
        columns.append(schema.RAW_HEADERS)
    for batch in part.read(columns):
        keyed = _keyed(batch, rule)
        if len(keyed):
            yield keyed


def _keyed(batch: pa.RecordBatch, rule: Rule) -> pa.RecordBatch:
    nothing = pa.repeat(pa.scalar(b"", pa.binary()), len(batch))
    if rule.key == PAYLOAD:
        texts = [batch.column("subject_raw"), nothing, batch.column("data")]
    elif rule.key == SUBJECT:
        texts = [batch.column("subject_raw"), nothing, nothing]
    else:
        pattern = rf"(?i)\r\n{re.escape(rule.header)}:[ \t]*(?P<key>[^\r\n]*)\r\n"
        values = pc.struct_field(pc.extract_regex(batch.column("headers_raw"), pattern), "key")
        is_there = pc.is_valid(values)
        batch, values = batch.filter(is_there), values.filter(is_there)
        nothing = nothing.slice(0, len(batch))
        texts = [nothing, values, nothing]
    buffers = [column_bytes(each, "key") for each in texts]
    keys = [_hashed(len(batch), salt, buffers) for salt in (0, 1)]
    columns = [*keys, batch.column("sequence"), batch.column("time_ns")]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


def _hashed(count: int, salt: int, texts: list[tuple[memoryview, memoryview]]) -> pa.Array:
    salts = memoryview(salt.to_bytes(8, "little") * count)
    subjects, headers, payloads = texts
    hashes = hash_each(salts.cast("Q"), salts.cast("q"), subjects, headers, payloads)
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(hashes)])
