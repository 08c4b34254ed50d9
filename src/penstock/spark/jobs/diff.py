"""The job `diff`: which messages two streams, directories or archives do not have in common.

First only sums of hashes are compared: each side's tasks hash their messages into pages of 16,384
sequences, and return a sum and a count for each. Only pages that differ are read again, and Spark
compares their messages one by one. So equal sides cost one reading of each and little memory, and
the plan of one side need not be that of the other.

Messages are the same by sequence, or by content: then their positions do not matter. Subject,
headers and payload are compared and, by sequence, the time.

Read-only; a run leaves nothing behind, so there is nothing to resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from penstock.format.sequence_set import SequenceSet
from penstock.limits import JOB_FINDINGS_MAX
from penstock.spark.archives.parquet import SOURCE_COLUMNS, row_columns
from penstock.spark.arrow import text_of
from penstock.spark.jobs.job import (
    Finding,
    Input,
    OnProgress,
    Report,
    part_rows,
    run_parts,
    running,
)
from penstock.spark.part import StreamPart
from penstock.spark.rows import hash_each

JOB = "diff"
PAGE_SEQUENCES = 16_384
"""So many that pages are quickly compared, and so few that little is read again for one message: 2
MB of messages of 128 bytes."""

CONTENT_PAGE_BITS = 12
"""By content, a page is the first bits of the hash: 4,096 pages, however long a stream is."""

ROWS = "key long, hash long, sequence long, time_ns long, subject string, size long"
_ROWS_ARROW = pa.schema(
    [
        ("key", pa.int64()),
        ("hash", pa.int64()),
        ("sequence", pa.int64()),
        ("time_ns", pa.int64()),
        ("subject", pa.string()),
        ("size", pa.int64()),
    ]
)


class CompareBy(StrEnum):
    """What makes two messages the same."""

    SEQUENCE = "sequence"
    CONTENT = "content"


class DiffTask(msgspec.Struct, frozen=True):
    """What one task compares; with `pages`, it yields the messages of these pages."""

    part: StreamPart
    by: CompareBy
    with_time: bool
    pages: bytes = b""


class Page(msgspec.Struct, frozen=True):
    """The number of a page's messages and the sum of their hashes."""

    count: int
    hash: int


Pages = dict[int, Page]


def diff(
    spark: SparkSession,
    left: Input,
    right: Input,
    *,
    by: CompareBy = CompareBy.SEQUENCE,
    with_time: bool = True,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Compare two inputs; every difference is a finding, seen from the left. Raise UsageError."""
    sides = [
        [DiffTask(each, by, with_time and by is CompareBy.SEQUENCE) for each in side.parts()]
        for side in (left, right)
    ]
    parts = [part for side in sides for part in side]
    report = Report(JOB, f"{left.shown} and {right.shown}", dry_run=dry_run, parts=len(parts))
    if dry_run:
        return report
    found = run_parts(spark, hash_part, parts, on_progress)
    hashed = [found[: len(sides[0])], found[len(sides[0]) :]]
    totals = [_sum(each) for each in hashed]
    differing = _differing(*totals)
    report.add(
        messages_left=sum(page.count for page in totals[0].values()),
        messages_right=sum(page.count for page in totals[1].values()),
        pages=len(totals[0].keys() | totals[1].keys()),
        pages_different=len(differing),
        missing=0,
        extra=0,
        different=0,
    )
    if differing:
        again = [
            _reading_again(parts, pages, differing)
            for parts, pages in zip(sides, hashed, strict=True)
        ]
        _compare(spark, report, again, on_progress)
    return report


# In the driver


def _sum(parts: Sequence[Pages]) -> Pages:
    total: Pages = {}
    for pages in parts:
        for number, page in pages.items():
            known = total.get(number, Page(0, 0))
            total[number] = Page(known.count + page.count, (known.hash + page.hash) % 2**64)
    return total


def _differing(left: Pages, right: Pages) -> SequenceSet:
    differing = SequenceSet()
    for number in sorted(left.keys() | right.keys()):
        if left.get(number) != right.get(number):
            differing.add(number)
    return differing


def _reading_again(
    tasks: Sequence[DiffTask], hashed: Sequence[Pages], differing: SequenceSet
) -> list[DiffTask]:
    again = []
    for task, pages in zip(tasks, hashed, strict=True):
        mine = SequenceSet()
        for number in sorted(pages):
            if number in differing:
                mine.add(number)
        if mine.first is None or mine.last is None:
            continue
        part = task.part
        if task.by is CompareBy.SEQUENCE:
            part = part.between(mine.first * PAGE_SEQUENCES, (mine.last + 1) * PAGE_SEQUENCES - 1)
        again.append(msgspec.structs.replace(task, part=part, pages=mine.encode()))
    return again


def _compare(
    spark: SparkSession, report: Report, again: list[list[DiffTask]], on_progress: OnProgress | None
) -> None:
    left, right = (_side(spark, parts, side) for parts, side in zip(again, "lr", strict=True))
    both = left.join(right, "key", "full_outer")
    kind = (
        f.when(f.col("r_count").isNull() | (f.col("l_count") > f.col("r_count")), "missing")
        .when(f.col("l_count").isNull() | (f.col("l_count") < f.col("r_count")), "extra")
        .otherwise("different")
    )
    is_same = f.col("l_count").eqNullSafe(f.col("r_count")) & f.col("l_hash").eqNullSafe(
        f.col("r_hash")
    )
    unlike = both.where(~is_same).withColumn("kind", kind).persist()
    shown = unlike.orderBy(f.coalesce("l_sequence", "r_sequence"), "key").limit(JOB_FINDINGS_MAX)
    try:
        with running(spark, sum(map(len, again)), on_progress):
            report.add(
                **{
                    row["kind"]: row["many"]
                    for row in unlike.groupBy("kind").agg(f.count("*").alias("many")).collect()
                }
            )
            rows = shown.collect()
    finally:
        unlike.unpersist()
    report.findings += [_finding(row) for row in rows]
    told = sum(report.counts[name] for name in ("missing", "extra", "different"))
    report.add(findings_left_out=told - len(rows))


def _side(spark: SparkSession, parts: list[DiffTask], side: str) -> DataFrame:
    rows = part_rows(spark, compare_part, parts, ROWS)
    return rows.groupBy("key").agg(
        f.count("*").alias(f"{side}_count"),
        # All messages with one key and one content have the same hash.
        f.min("hash").alias(f"{side}_hash"),
        *(f.min(name).alias(f"{side}_{name}") for name in ("sequence", "time_ns", "size")),
        f.min("subject").alias(f"{side}_subject"),
    )


def _finding(row: Row) -> Finding:
    side = "r" if row["l_count"] is None else "l"
    where = f"sequence {row[f'{side}_sequence']}"
    if row["kind"] != "different":
        many = abs((row["l_count"] or 0) - (row["r_count"] or 0))
        times = f", {many} times" if many > 1 else ""
        what = f"subject {row[f'{side}_subject']}, {row[f'{side}_size']} bytes{times}"
        return Finding(row["kind"], where, what)
    unlike = [
        f"{name} {row[f'l_{name}']} and {row[f'r_{name}']}"
        for name in ("subject", "size", "time_ns")
        if row[f"l_{name}"] != row[f"r_{name}"]
    ]
    return Finding("different", where, ", ".join(unlike) or "headers or payload")


# In tasks


def hash_part(task: DiffTask) -> Pages:
    """Return the pages of a part."""
    pages: Pages = {}
    for batch in task.part.read(SOURCE_COLUMNS):
        keys, hashes = _keys_and_hashes(batch, task)
        table = pa.table({"page": _pages(keys, task.by), "hash": hashes})
        for one in _paged(table):
            known = pages.get(one["page"], Page(0, 0))
            pages[one["page"]] = Page(
                known.count + one["count"], (known.hash + one["hash"]) % 2**64
            )
    return pages


def _paged(table: pa.Table) -> Iterator[dict[str, int]]:
    grouped = table.group_by("page", use_threads=False).aggregate(
        # The sum of unsigned numbers wraps around, as intended.
        [("hash", "sum"), ("hash", "count")]
    )
    for row in grouped.to_pylist():
        yield {"page": row["page"], "hash": row["hash_sum"], "count": row["hash_count"]}


def compare_part(task: DiffTask) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the pages that differ."""
    pages = pa.array(SequenceSet.decode(task.pages), pa.uint64())
    for batch in task.part.read(SOURCE_COLUMNS):
        keys, hashes = _keys_and_hashes(batch, task)
        size = pc.add(
            pc.binary_length(batch.column("headers_raw")), pc.binary_length(batch.column("data"))
        )
        rows = pa.RecordBatch.from_arrays(
            [
                _signed(keys),
                _signed(hashes),
                batch.column("sequence"),
                batch.column("time_ns"),
                text_of(batch.column("subject_raw")),
                size.cast(pa.int64()),
            ],
            schema=_ROWS_ARROW,
        )
        yield rows.filter(pc.is_in(_pages(keys, task.by), value_set=pages))


def _keys_and_hashes(batch: pa.RecordBatch, task: DiffTask) -> tuple[pa.Array, pa.Array]:
    sequences, times, *texts = row_columns(batch)
    if not task.with_time:
        times = memoryview(bytes(8 * batch.num_rows)).cast("q")
    if task.by is CompareBy.CONTENT:
        sequences = memoryview(bytes(8 * batch.num_rows)).cast("Q")
    hashes = _unsigned(hash_each(sequences, times, *texts))
    return (hashes if task.by is CompareBy.CONTENT else _unsigned(sequences)), hashes


def _pages(keys: pa.Array, by: CompareBy) -> pa.Array:
    if by is CompareBy.CONTENT:
        return pc.shift_right(keys, pa.scalar(64 - CONTENT_PAGE_BITS, pa.uint64()))
    return pc.divide(keys, pa.scalar(PAGE_SEQUENCES, pa.uint64()))


def _unsigned(numbers: bytes | memoryview) -> pa.Array:
    return pa.Array.from_buffers(
        pa.uint64(), len(memoryview(numbers).cast("B")) // 8, [None, pa.py_buffer(numbers)]
    )


def _signed(numbers: pa.Array) -> pa.Array:
    # Spark has no unsigned numbers; the bits stay as they are.
    return numbers.view(pa.int64())
