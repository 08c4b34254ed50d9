"""The job `kv`: a bucket as it was at one point, as Parquet, made from the last such cut.

    OUTPUT/cut-00000000000000001001/part-….parquet     key, value, revision, timestamp, time_ns
    OUTPUT/cut-00000000000000001001/_penstock.json     which stream, and that the cut is whole

A cut has the value that each key had before the sequence in its name. Tasks yield the newest change
of each key in their part, and Spark picks the newest of these; deleted keys are left out. The next
run reads only the changes since the last cut, and merges them with it. A key whose delete marker
was purged as well is therefore noticed only by a run from the start.

Invariant: a cut without its document is not whole, and is made anew by the next run. A whole cut is
not made again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.errors import FormatError, UsageError
from penstock.spark import schema
from penstock.spark.jobs.job import (
    Input,
    OnProgress,
    Report,
    StreamFormat,
    between,
    find_origin,
    part_rows,
    run_parts,
    running,
)
from penstock.spark.kv.rows import is_put, keys_of
from penstock.spark.part import StreamPart

JOB = "kv"
DOCUMENT = "_penstock.json"
"""Spark ignores files whose names begin with _."""

CHUNK_ROWS = 262_144
CHUNK_BYTES = 64 * 1024 * 1024
"""A task picks the newest change of each key among so many at a time: its memory is bounded, and
little is left of a bucket whose keys change often."""

CHANGES = "key string, value binary, revision long, time_ns long, is_put boolean"
_COLUMNS = (schema.SUBJECT, schema.SEQUENCE, schema.TIME_NS, schema.RAW_HEADERS, schema.DATA)
_NAMES = ["key", "value", "revision", "time_ns", "is_put"]
_TIME = "endingtimestamp"
_CUT = re.compile(r"cut-([0-9]{20})")


class Cut(msgspec.Struct, frozen=True):
    """The document of a cut."""

    stream: str
    created: str
    end: int
    """The first sequence that is not in the cut."""

    subject: str = ""
    """Which keys the cut has, as a filter of the stream; "" for all."""


def materialise(
    spark: SparkSession,
    source: Input,
    output: str,
    *,
    from_start: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Write the cut of a bucket's stream that the options name; raise UsageError."""
    wanted = _wanted(spark, source, on_progress)
    cuts = Cuts(output)
    last = None if from_start else cuts.find_before(wanted.end)
    if last is not None and replace(last, end=wanted.end) != wanted:
        raise UsageError(
            f"{output}: the cut at {last.end} is of another stream {last.stream}, which was made "
            f"{last.created}, or of other keys: give another folder, or make it from the start"
        )
    first = 1 if last is None else last.end
    parts = between(_changes_of(source), first, wanted.end).parts() if first < wanted.end else []
    report = Report(JOB, source.shown, dry_run=dry_run, parts=len(parts))
    if last is not None and last.end == wanted.end:
        report.parts_skipped = 1
        return report
    path = cuts.path(wanted.end)
    report.outputs = [path]
    if dry_run:
        return report
    changes = part_rows(spark, newest_changes, parts, CHANGES)
    if last is not None:
        before = spark.read.parquet(cuts.path(last.end)).drop("timestamp")
        changes = changes.unionByName(before.withColumn("is_put", f.lit(True)))
    with running(spark, len(parts), on_progress):
        _latest(changes).write.mode("overwrite").parquet(path)
    cuts.finish(wanted)
    report.add(keys=spark.read.parquet(path).count(), sequences=wanted.end - first)
    return report


def _wanted(spark: SparkSession, source: Input, on_progress: OnProgress | None) -> Cut:
    """Return the cut that the options name; a time ends behind the last message before it."""
    given = {name.lower(): text for name, text in source.options.items()}
    for name in ("startingoffsets", "startingtimestamp"):
        if name in given:
            raise UsageError(f"a cut has all changes up to a point: leave out {name}")
    origin = find_origin(source.whole())
    end = max(origin.end, 1)
    if _TIME in given:
        lasts = run_parts(
            spark, last_sequence, _changes_of(source, at_time=True).parts(), on_progress
        )
        end = max(lasts, default=0) + 1
    return Cut(origin.stream, origin.created, end, given.get("subject", ""))


def _changes_of(source: Input, *, at_time: bool = False) -> Input:
    options = dict(source.options)
    if not at_time:
        options = {name: text for name, text in options.items() if name.lower() != _TIME}
    if source.format == StreamFormat:
        # If a bucket keeps few values of a key, new changes remove old ones: that is no
        # loss.
        options.setdefault("failOnDataLoss", "false")
    return Input(source.format, options)


def _latest(changes: DataFrame) -> DataFrame:
    newest = f.max_by(f.struct("value", "revision", "time_ns", "is_put"), "revision")
    kept = changes.groupBy("key").agg(newest.alias("newest")).where("newest.is_put")
    return kept.select(
        "key",
        "newest.value",
        "newest.revision",
        "newest.time_ns",
        f.expr("timestamp_micros(newest.time_ns div 1000)").alias("timestamp"),
    )


class Cuts:
    """The cuts in a folder."""

    def __init__(self, output: str) -> None:
        self._output = output.rstrip("/")
        try:
            self._files, self._path = self._opened()
        except (ValueError, OSError) as error:
            raise UsageError(f"{output}: {error}") from None

    def _opened(self) -> tuple[fs.FileSystem, str]:
        if "://" not in self._output:
            return fs.LocalFileSystem(), self._output
        files, path = fs.FileSystem.from_uri(self._output)
        return files, path

    def path(self, end: int) -> str:
        """Return the folder of a cut, as Spark names it."""
        return f"{self._output}/cut-{end:020d}"

    def find_before(self, end: int) -> Cut | None:
        """Return the last whole cut that is not behind `end`; None if there is none."""
        selector = fs.FileSelector(self._path, allow_not_found=True)
        names = sorted(each.base_name for each in self._files.get_file_info(selector))
        for name in reversed(names):
            found = _CUT.fullmatch(name)
            if found and int(found[1]) <= end and (cut := self._read(int(found[1]))):
                return cut
        return None

    def _document(self, end: int) -> str:
        return f"{self._path}/cut-{end:020d}/{DOCUMENT}"

    def _read(self, end: int) -> Cut | None:
        try:
            with self._files.open_input_file(self._document(end)) as file:
                return msgspec.json.decode(file.read(), type=Cut)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise FormatError(f"{self._document(end)}: no cut: {error}") from None

    def finish(self, cut: Cut) -> None:
        """Write the document that marks a cut as whole."""
        with self._files.open_output_stream(self._document(cut.end)) as file:
            file.write(msgspec.json.encode(cut))


# In tasks


def last_sequence(part: StreamPart) -> int:
    """Return the last sequence of a part; 0 if it has no message."""
    lasts = [pc.max(batch.column(0)).as_py() for batch in part.read((schema.SEQUENCE,))]
    return max((each for each in lasts if each is not None), default=0)


def newest_changes(part: StreamPart) -> Iterator[pa.RecordBatch]:
    """Yield changes of a part, among them the newest of each key."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in part.read(_COLUMNS):
        waiting.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows > CHUNK_ROWS or size > CHUNK_BYTES:
            yield from _newest(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from _newest(waiting)


def _newest(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(batches)
    newest = table.group_by("subject", use_threads=False).aggregate([("sequence", "max")])
    is_newest = pc.is_in(table.column("sequence"), value_set=newest.column("sequence_max"))
    for batch in table.filter(is_newest).to_batches():
        subjects, sequences, times, headers, values = batch.columns
        yield pa.RecordBatch.from_arrays(
            [keys_of(subjects), values, sequences, times, is_put(headers)], names=_NAMES
        )
