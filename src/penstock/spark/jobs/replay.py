"""The job `replay`: messages of a stream or directory are published into another stream.

    at-least-once    a run, or a task, that is done again publishes again
    dedupe           with an id each, so that the stream drops what it had within its window
    exactly-once     in atomic batches with fences; a run goes on where the last one ended

A message has its origin in headers: `Nats-Orig-Stream`, `Nats-Orig-Sequence`, `Nats-Orig-Time`.
Headers that would tell the server to do something (expectations, ids, rollups, schedules, times to
live) are left out: they were meant for the stream that the message was in.

Each of `parallel` tasks reads the whole range and takes its subjects, by their hash, so that
messages of one subject keep their order. A single task keeps the order of all. The job `dedupe`
publishes by the same functions.

For exactly-once delivery the target stream holds the plan beside the fences of the tasks: which
sequences a run publishes, and how. An interrupted run is finished by the next one as it was
planned, before new messages: the same command, run repeatedly, keeps a copy. A stored plan that
does not fit the options is refused.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.clock import SystemClock
from penstock.errors import FormatError, UsageError
from penstock.format.hashing import xxh64
from penstock.format.sequence_set import SequenceSet
from penstock.limits import PACED_ROWS_MAX
from penstock.spark import schema
from penstock.spark.archives.parquet import binary_buffers, column_numbers
from penstock.spark.connection import streams_of
from penstock.spark.jobs.job import (
    SELECTING,
    Input,
    OnProgress,
    Report,
    between,
    find_origin,
    run_parts,
)
from penstock.spark.part import StreamPart
from penstock.spark.rows import hash_each
from penstock.spark.sinks.fences import Committed, FenceSubjects, read_committed, write_committed
from penstock.spark.sinks.settings import Delivery, RowShape, Sink, column_bytes, read_sink
from penstock.spark.sinks.sink import write_rows

# Publishing stored messages again

COLUMNS = (
    schema.SUBJECT,
    schema.SEQUENCE,
    schema.TIME_NS,
    schema.RAW_HEADERS,
    schema.DATA,
)

_ORDERS = (
    r"(?i)\r\nNats-(?:Expected-[\w-]*|Msg-Id|Rollup|Batch-[\w-]*|Schedule[\w-]*|TTL|Orig-[\w-]*)"
    r":[^\r\n]*"
)
_FIRST_LINE = r"^NATS/1\.0[^\r\n]*\r\n"
_WILDCARD = re.compile(r"\{\{wildcard\((\d+)\)\}\}|\$(\d+)")


class SubjectMap(msgspec.Struct, frozen=True):
    """A rule that renames subjects: a regular expression and its replacement."""

    pattern: str
    gives: str


class Republished(msgspec.Struct):
    """The result of a task."""

    published: int = 0
    present: int = 0
    """Messages that an earlier attempt or run had published."""


class RepublishTask(msgspec.Struct, frozen=True):
    """What one task publishes."""

    parts: tuple[StreamPart, ...]
    sink: Sink
    maps: tuple[SubjectMap, ...] = ()
    partition: int = 0
    partitions: int = 1
    speed: float = 0.0
    """How many times as fast as they were stored; 0 for as fast as possible."""

    dropped: bytes = b""
    """Sequences that are left out, encoded."""


class StoredShape(RowShape, frozen=True):
    """Rows as they were stored, headers and all."""

    def rows(self, batch: pa.RecordBatch, id_start: bytes | None = None, first: int = 0) -> Rows:
        """Return the rows of a batch as messages."""
        return Rows(
            column_bytes(batch.column("subject"), "subject"),
            binary_buffers(batch.column("headers_raw")),
            binary_buffers(batch.column("data")),
        )


STORED_ROWS = StoredShape("data", id_column="sequence")


def parse_map(text: str) -> SubjectMap:
    """Return the rule in a text such as `orders.*.>=copy.$1.>`; raise UsageError.

    A wildcard is `$1`, `$2` … on the right, or `{{wildcard(1)}}`; the tokens that `>` matches stay.
    """
    given, equals, gives = text.partition("=")
    if not equals or not given or not gives:
        raise UsageError(f"a map of subjects is PATTERN=SUBJECT, not {text!r}")
    tokens, places = [], 0
    for token in given.split("."):
        if token in ("*", ">"):
            places += 1
        tokens.append({"*": r"([^.]+)", ">": r"(.+)"}.get(token, re.escape(token)))
    if ">" in given.split(".")[:-1]:
        raise UsageError(f"{given!r} is no pattern: > stands at the end")
    tail = given.endswith(">") and gives.endswith(">")
    for found in _WILDCARD.finditer(gives):
        if not 1 <= int(found[1] or found[2]) <= places:
            raise UsageError(f"{gives!r} names a wildcard that {given!r} does not have")
    escaped = gives.removesuffix(">" if tail else "").replace("\\", "\\\\")
    target = _WILDCARD.sub(lambda found: rf"\{found[1] or found[2]}", escaped)
    return SubjectMap(r"^" + r"\.".join(tokens) + r"$", target + (rf"\{places}" if tail else ""))


# In tasks


def republish_part(task: RepublishTask) -> Republished:
    """Publish a task's messages; raise RefusedByServer, NotTheSameRows, UsageError or OSError."""
    batches = _changed_batches(task)
    if task.speed:
        batches = paced(batches, task.speed)
    done = write_rows(task.sink, batches, is_streaming=False)
    return Republished(done.rows, done.duplicates)


def _changed_batches(task: RepublishTask) -> Iterator[pa.RecordBatch]:
    dropped = pa.array(SequenceSet.decode(task.dropped) if task.dropped else [], pa.int64())
    for part in task.parts:
        for batch in part.read(COLUMNS):
            kept = batch
            if len(dropped):
                is_dropped = pc.is_in(batch.column("sequence"), value_set=dropped)
                kept = batch.filter(pc.invert(is_dropped))
            if task.partitions > 1:
                kept = kept.filter(_falls_to(kept.column("subject"), task))
            if len(kept):
                yield _changed(kept, part.stream, task)


def _falls_to(subjects: pa.Array, task: RepublishTask) -> pa.Array:
    count = len(subjects)
    nothing = (memoryview(bytes(4 * (count + 1))).cast("i"), memoryview(b""))
    zeros = memoryview(bytes(8 * count))
    hashes = hash_each(
        zeros.cast("Q"), zeros.cast("q"), column_bytes(subjects, "subject"), nothing, nothing
    )
    numbers = pa.Array.from_buffers(pa.uint64(), count, [None, pa.py_buffer(hashes)])
    many = pa.scalar(task.partitions, pa.uint64())
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, many), many))
    return pc.equal(rest, pa.scalar(task.partition, pa.uint64()))


def _changed(batch: pa.RecordBatch, stream: str, task: RepublishTask) -> pa.RecordBatch:
    with_ids = task.sink.target.delivery is Delivery.DEDUPE
    id_start = f"{task.sink.target.sink_id}:{stream}:" if with_ids else ""
    return pa.RecordBatch.from_arrays(
        [
            mapped(batch.column("subject"), task.maps),
            batch.column("sequence"),
            batch.column("time_ns"),
            origin_headers(batch, stream, id_start=id_start),
            batch.column("data"),
        ],
        names=[each.name for each in COLUMNS],
    )


def mapped(subjects: pa.Array, maps: tuple[SubjectMap, ...]) -> pa.Array:
    """Return subjects renamed by the first rule that matches; others stay."""
    given, is_open = subjects, pa.repeat(pa.scalar(True), len(subjects))
    for each in maps:
        fits = pc.and_(is_open, pc.match_substring_regex(given, each.pattern))
        changed = pc.replace_substring_regex(given, each.pattern, each.gives)
        subjects = pc.if_else(fits, changed, subjects)
        is_open = pc.and_(is_open, pc.invert(fits))
    return subjects


def origin_headers(
    batch: pa.RecordBatch, stream: str, *, first_lines: str = "", id_start: str = ""
) -> pa.Array:
    """Return the headers with which messages of a stream are published again.

    The batch has the columns `sequence`, `time_ns` and `headers_raw`. With `id_start` each message
    has an id, which ends with its sequence.
    """
    kept = pc.replace_substring_regex(batch.column("headers_raw"), _ORDERS, "")
    lines = pc.replace_substring_regex(kept, _FIRST_LINE, "")
    ends = pc.if_else(pc.equal(pc.binary_length(lines), 0), _bytes("\r\n"), lines)
    sequences = batch.column("sequence").cast(pa.string()).cast(pa.binary())
    moments = batch.column("time_ns").cast(pa.timestamp("ns", tz="UTC"))
    times = pc.strftime(moments, "%Y-%m-%dT%H:%M:%S").cast(pa.binary())
    ids = [_bytes(f"Nats-Msg-Id: {id_start}"), sequences, _bytes("\r\n")] if id_start else []
    return pc.binary_join_element_wise(
        _bytes(f"NATS/1.0\r\n{first_lines}"),
        *ids,
        _bytes(f"Nats-Orig-Stream: {stream}\r\nNats-Orig-Sequence: "),
        sequences,
        _bytes("\r\nNats-Orig-Time: "),
        times,
        _bytes("Z\r\n"),
        ends,
        _bytes(""),
    )


def _bytes(text: str) -> pa.Scalar:
    return pa.scalar(text.encode(), pa.binary())


def paced(batches: Iterator[pa.RecordBatch], speed: float) -> Iterator[pa.RecordBatch]:
    """Yield messages at the pace of their times, so many times as fast."""
    clock, pause = SystemClock(), threading.Event()
    started_ns = clock.monotonic_ns()
    first_ns: int | None = None
    for batch in batches:
        times = column_numbers(batch.column("time_ns"))
        if first_ns is None:
            first_ns = times[0]
        start = 0
        while start < len(times):
            wait_ns = (times[start] - first_ns) / speed - (clock.monotonic_ns() - started_ns)
            if wait_ns > 0:
                pause.wait(wait_ns / 1e9)
            due_ns = first_ns + (clock.monotonic_ns() - started_ns) * speed
            end = start + 1
            while end < min(len(times), start + PACED_ROWS_MAX) and times[end] <= due_ns:
                end += 1
            yield batch.slice(start, end - start)
            start = end


# The job

JOB = "replay"
PLAN = "plan"
_ROWS = StructType([StructField("subject", StringType()), StructField("data", BinaryType())])


class Plan(msgspec.Struct, frozen=True):
    """What a run publishes: which sequences, in how many tasks, and a digest of how."""

    first: int
    end: int
    parallel: int
    how: str


PendingPlans = list[tuple[int | None, Plan]]
"""Plans that are to be run, each with the sequence of the stored plan that it replaces; None if the
plan itself is stored, or none is stored."""


class ReplayOptions(msgspec.Struct, frozen=True):
    """How messages are published."""

    target: dict[str, str]
    """Options of the format `penstock` for writing: servers, stream, sinkId and so on."""

    delivery: Delivery = Delivery.EXACTLY_ONCE
    maps: tuple[SubjectMap, ...] = ()
    parallel: int = 1
    speed: float = 0.0
    rule: str = ""
    """A text for anything else that decides which messages are published."""

    def sink(self, version: int) -> Sink:
        """Return the sink of a run; raise UsageError if the stream does not allow it."""
        options = {**self.target, "delivery": str(self.delivery)}
        if self.delivery is not Delivery.AT_LEAST_ONCE:
            options.setdefault("sinkId", JOB)
        if self.delivery is Delivery.EXACTLY_ONCE:
            options["version"] = str(version)
        return replace(read_sink(options, _ROWS), shape=STORED_ROWS)


def replay(
    spark: SparkSession,
    source: Input,
    replaying: ReplayOptions,
    *,
    job: str = JOB,
    dropped: SequenceSet | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Publish an input into a stream; raise UsageError before anything is published."""
    if replaying.parallel < 1 or replaying.speed < 0:
        raise UsageError("a replay has at least one task, and no speed below 0")
    first, end = bounds_of(source)
    sink = replaying.sink(end)
    report = Report(job, source.shown, dry_run=dry_run, outputs=[sink.target.stream])
    work = _Work(spark, source, replaying, (dropped or SequenceSet()).encode())
    if replaying.delivery is not Delivery.EXACTLY_ONCE:
        stretches: PendingPlans = [(None, Plan(first, end, replaying.parallel, ""))]
    else:
        stretches = work.stretches(sink, first, end)
    for last, plan in stretches:
        report.parts += plan.parallel
        report.add(sequences=plan.end - plan.first, published=0, present=0)
        if not dry_run:
            work.run(report, plan, last, on_progress)
    if not stretches:
        report.parts_skipped = replaying.parallel
    return report


def bounds_of(source: Input) -> tuple[int, int]:
    """Return the first sequence that an input has now, and the one behind the last."""
    origin = find_origin(source.whole())
    return origin.first, max(origin.end, origin.first)


class _Work(msgspec.Struct, frozen=True):
    """One replay, in the driver."""

    spark: SparkSession
    source: Input
    replaying: ReplayOptions
    dropped: bytes

    def how(self) -> str:
        """Return a digest that tells a replay from one that publishes something else."""
        given = {
            name.lower(): text
            for name, text in self.source.options.items()
            if name.lower() in (*SELECTING, "stream", "path")
        }
        maps = [[each.pattern, each.gives] for each in self.replaying.maps]
        told = json.dumps([given, maps, self.replaying.rule], sort_keys=True)
        return f"{xxh64(told.encode()):016x}"

    def stretches(self, sink: Sink, first: int, end: int) -> PendingPlans:
        """Return the plans to run for exactly-once delivery; raise UsageError."""
        place = FenceSubjects(sink.target.stream, sink.fence_prefix, sink.target.sink_id)
        wanted = Plan(first, end, self.replaying.parallel, self.how())
        with streams_of(sink.connection) as streams:
            found, seq = _read_plan(streams, place)
            committed = read_committed(streams, place)
            if found is None and committed is not None:
                raise UsageError(
                    f"{place.subject(PLAN)}: something was written with this sinkId, and no plan "
                    "tells what: give another sinkId"
                )
            if found is None:
                return [(0, wanted)] if end > first else []
            if (found.how, found.parallel) != (wanted.how, wanted.parallel):
                raise UsageError(
                    f"{place.subject(PLAN)}: a replay with this sinkId was begun with another "
                    "source, filter, map or number of tasks: give another sinkId"
                )
        done = committed is not None and committed.batch >= found.end
        rest: PendingPlans = [] if done else [(None, found)]
        if end > found.end:
            rest.append((seq, replace(wanted, first=max(found.end, first))))
        return rest

    def run(
        self, report: Report, plan: Plan, last: int | None, on_progress: OnProgress | None
    ) -> None:
        """Publish the sequences of a plan, after the plan itself is stored if it must be."""
        sink = self.replaying.sink(plan.end)
        place = FenceSubjects(sink.target.stream, sink.fence_prefix, sink.target.sink_id)
        if last is not None:
            with streams_of(sink.connection) as streams:
                _write_plan(streams, place, plan, last)
        parts = tuple(between(self.source, plan.first, plan.end).parts())
        tasks = [
            RepublishTask(
                parts,
                sink,
                self.replaying.maps,
                number,
                plan.parallel,
                self.replaying.speed,
                self.dropped,
            )
            for number in range(plan.parallel)
        ]
        for each in run_parts(self.spark, republish_part, tasks, on_progress):
            report.add(published=each.published, present=each.present)
        if sink.is_exact:
            with streams_of(sink.connection) as streams:
                write_committed(streams, place, Committed(plan.end), plan.parallel)


def _read_plan(streams: JetStream, place: FenceSubjects) -> tuple[Plan | None, int]:
    found = streams.find(place.stream, last_by_subj=place.subject(PLAN))
    if found is None:
        return None, 0
    try:
        return msgspec.json.decode(found.payload, type=Plan), found.seq
    except msgspec.MsgspecError as error:
        raise FormatError(f"{place.subject(PLAN)}: no plan of a replay: {error}") from None


def _write_plan(streams: JetStream, place: FenceSubjects, plan: Plan, last: int) -> None:
    # Of two runs at the same time one is refused.
    headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % last
    subject = place.subject(PLAN).encode()
    streams.publish(subject, msgspec.json.encode(plan), headers=headers)
