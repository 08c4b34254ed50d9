"""The job `stats`: what a stream holds, by subject and hour, as a table.

Tasks count their parts in compiled code, for a directory of our layout by the blocks' indexes
alone. They return partial counts, which Spark adds up, so that a million subjects need no memory of
the driver. Sizes and bytes are those that servers count: 30 + subject + payload, and with headers 4
+ headers.

Read-only. The result is a table of the largest groups and, if an output is given, Parquet with all
of them, which has the file `_SUCCESS` once it is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.errors import UsageError
from penstock.format.block_folder import BlockFolder
from penstock.format.sequence_set import SequenceSet
from penstock.limits import GROUPS_IN_DRIVER_MAX, HEADER_NAMES_MAX, TALLY_CELLS_MAX
from penstock.spark import schema
from penstock.spark.archives.parquet import binary_buffers, column_numbers
from penstock.spark.arrow import text_of
from penstock.spark.blocks.scan import BlockRange
from penstock.spark.folder import open_folder
from penstock.spark.jobs.job import Input, OnProgress, Report, part_rows, run_parts, running
from penstock.spark.part import MessageSelection, StreamPart
from penstock.spark.tally import Cells, Tally

JOB = "stats"
MESSAGE_OVERHEAD_BYTES = 30
HEADERS_OVERHEAD_BYTES = 4
"""What a message, and its headers, count for in addition to their bytes."""


_PARTIAL = pa.schema(
    [
        ("group", pa.string()),
        *((name, pa.int64()) for name in (
            "hour_ns", "size", "messages", "bytes", "first_seq", "last_seq", "first_ns", "last_ns",
        )),
    ]
)  # fmt: skip
_PARTIAL_SPARK = ", ".join(
    f"`{each.name}` {'string' if each.type == pa.string() else 'long'}" for each in _PARTIAL
)
_PERCENTILES = (0.5, 0.9, 0.99)


class Order(StrEnum):
    """By which number groups are sorted."""

    MESSAGES = "messages"
    BYTES = "bytes"


class StatsRequest(msgspec.Struct, frozen=True):
    """What is counted, and what of it is shown."""

    depth: int = -1
    """How many tokens of a subject make its group; all of them if below 0."""

    by_hour: bool = False
    header_names: bool = False
    order: Order = Order.MESSAGES
    rows: int = 20


class Group(msgspec.Struct, frozen=True):
    """One row of the table."""

    subject: str
    hour_ns: int | None
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_ns: int
    last_ns: int
    size_p50: int
    size_p90: int
    size_p99: int


class StatsReport(Report):
    """A report with the largest groups, and how many messages have which header."""

    groups: list[Group] = msgspec.field(default_factory=list)
    header_names: dict[str, int] = msgspec.field(default_factory=dict)


def stats(
    spark: SparkSession,
    source: Input,
    *,
    request: StatsRequest = StatsRequest(),  # noqa: B008 - it is frozen
    output: str = "",
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> StatsReport:
    """Count a stream; raise UsageError, also if `output` exists."""
    parts = source.parts()
    report = StatsReport(JOB, source.shown, dry_run=dry_run, parts=len(parts))
    if dry_run:
        return report
    totals = count_groups(spark, parts, request)
    with running(spark, len(parts), on_progress):
        few = [] if output else totals.limit(GROUPS_IN_DRIVER_MAX + 1).collect()
        if output or len(few) > GROUPS_IN_DRIVER_MAX:
            _fill_from_many(report, totals, request, output)
        else:
            _fill(report, [Group(**row.asDict()) for row in few], request)
    if request.header_names:
        report.header_names = _sum_names(run_parts(spark, name_headers, parts, on_progress))
    return report


# In the driver


def count_groups(spark: SparkSession, parts: list[StreamPart], request: StatsRequest) -> DataFrame:
    """Return a row for each group of all parts, with the fields of `Group`."""
    counts = part_rows(spark, partial(count_part, request), parts, _PARTIAL_SPARK)
    sizes = f.percentile("size", list(_PERCENTILES), f.col("messages"))
    counted = counts.groupBy(f.col("group").alias("subject"), "hour_ns").agg(
        f.sum("messages").alias("messages"),
        f.sum("bytes").alias("bytes"),
        f.min("first_seq").alias("first_seq"),
        f.max("last_seq").alias("last_seq"),
        f.min("first_ns").alias("first_ns"),
        f.max("last_ns").alias("last_ns"),
        sizes.alias("sizes"),
    )
    shown = [name for name in Group.__struct_fields__ if not name.startswith("size_")]
    percentiles = [
        f.col("sizes")[place].cast("long").alias(f"size_p{round(each * 100)}")
        for place, each in enumerate(_PERCENTILES)
    ]
    return counted.select(*shown, *percentiles)


def _fill(report: StatsReport, groups: list[Group], request: StatsRequest) -> None:
    report.add(
        groups=len(groups),
        messages=sum(each.messages for each in groups),
        bytes=sum(each.bytes for each in groups),
    )
    groups.sort(key=lambda each: (-getattr(each, request.order), each.subject, each.hour_ns or 0))
    report.groups = groups[: request.rows]


def _fill_from_many(
    report: StatsReport, totals: DataFrame, request: StatsRequest, output: str
) -> None:
    totals = totals.persist()
    try:
        whole = totals.agg(
            f.count("*").alias("groups"),
            f.coalesce(f.sum("messages"), f.lit(0)).alias("messages"),
            f.coalesce(f.sum("bytes"), f.lit(0)).alias("bytes"),
        )
        report.add(**whole.collect()[0].asDict())
        largest = totals.orderBy(f.desc(request.order), "subject", "hour_ns").limit(request.rows)
        report.groups = [Group(**row.asDict()) for row in largest.collect()]
        if output:
            _write(totals, output)
            report.outputs.append(output)
    finally:
        totals.unpersist()


def _write(totals: DataFrame, output: str) -> None:
    try:
        totals.write.mode("error").parquet(output)
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise UsageError(f"{output}: there is something already") from None


def _sum_names(counted: list[Counter[str]]) -> dict[str, int]:
    names: Counter[str] = Counter()
    for each in counted:
        names.update(each)
        _bound(names)
    return dict(names.most_common())


def _bound(names: Counter[str]) -> None:
    if len(names) > HEADER_NAMES_MAX:
        raise UsageError(f"more than {HEADER_NAMES_MAX} different header names: no table of them")


# In tasks


def count_part(request: StatsRequest, part: StreamPart) -> Iterator[pa.RecordBatch]:
    """Yield partial counts of a part; several rows may be of one group."""
    tally = _new_tally(request, part)
    for _ in _counting(tally, part):
        if tally.cell_count > TALLY_CELLS_MAX:
            yield _partial(tally.take(), request)
    yield _partial(tally.take(), request)


def _new_tally(request: StatsRequest, part: StreamPart) -> Tally:
    # A server filters by itself, and so does the reader of Go's files.
    is_blocks = isinstance(part.source, BlockRange)
    return Tally(
        depth=request.depth,
        by_hour=request.by_hour,
        subjects=part.selection.subject_filter() if is_blocks else None,
    )


def _counting(tally: Tally, part: StreamPart) -> Iterator[None]:
    if isinstance(part.source, BlockRange) and not part.source.directory.is_go:
        return _tally_indexes(tally, part.source, part.selection)
    return _tally_rows(tally, part)


def _tally_indexes(tally: Tally, source: BlockRange, selection: MessageSelection) -> Iterator[None]:
    folder = BlockFolder(open_folder(source.directory.path))
    removed = SequenceSet.decode(source.removed)
    for block in source.blocks:
        try:
            index = folder.load_index(block.number)
        except FileNotFoundError:
            # All messages of the block were removed since the plan was made.
            continue
        tally.add_index(
            index,
            removed,
            first_seq=selection.first_seq,
            last_seq=min(selection.last_seq, block.last_seq),
            first_ns=selection.first_ns,
            last_ns=selection.last_ns,
        )
        yield


def _tally_rows(tally: Tally, part: StreamPart) -> Iterator[None]:
    columns = (schema.SUBJECT_RAW, schema.SEQUENCE, schema.TIME_NS, schema.RAW_HEADERS, schema.SIZE)
    for batch in part.read(columns):
        subjects, sequences, times, headers, sizes = batch.columns
        has_headers = pc.greater(pc.binary_length(headers), 0)
        overhead = pc.add(
            pc.multiply(pc.cast(has_headers, pa.int64()), HEADERS_OVERHEAD_BYTES),
            MESSAGE_OVERHEAD_BYTES,
        )
        counted = pc.add(pc.add(pc.cast(sizes, pa.int64()), pc.binary_length(subjects)), overhead)
        numbers = (column_numbers(each) for each in (sequences, times, counted))
        tally.add_rows(*binary_buffers(subjects), *numbers)
        yield


def _partial(cells: Cells, request: StatsRequest) -> pa.RecordBatch:
    groups = pa.Array.from_buffers(
        pa.binary(),
        cells.count,
        [None, pa.py_buffer(cells.group_offsets), pa.py_buffer(cells.groups)],
    )
    numbers = [
        pa.Array.from_buffers(pa.int64(), cells.count, [None, pa.py_buffer(column)])
        for column in (
            cells.hours, cells.size_classes, cells.messages, cells.sizes, cells.first_seqs,
            cells.last_seqs, cells.first_times, cells.last_times,
        )
    ]  # fmt: skip
    if not request.by_hour:
        numbers[0] = pa.nulls(cells.count, pa.int64())
    return pa.RecordBatch.from_arrays([text_of(groups), *numbers], schema=_PARTIAL)


def name_headers(part: StreamPart) -> Counter[str]:
    """Return how many messages of a part have which header."""
    names: Counter[str] = Counter()
    for batch in part.read((schema.HEADER_MAP,)):
        for each in pc.value_counts(batch.column(0).keys):
            names[each["values"].as_py()] += each["counts"].as_py()
        _bound(names)
    return names
