"""Publishing stored messages again, into another stream: what `replay` and `dedupe` share.

A message has its origin in headers: `Nats-Orig-Stream`, `Nats-Orig-Sequence`, `Nats-Orig-Time`.
Headers that would tell the server to do something (expectations, ids, rollups, schedules, times to
live) are left out: they were meant for the stream that the message was in.

Each of `parallel` tasks reads the whole range and takes its subjects, by their hash, so that
messages of one subject keep their order. A single task keeps the order of all.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.row_publisher import Rows
from penstock.clock import SystemClock
from penstock.errors import UsageError
from penstock.format.sequence_set import SequenceSet
from penstock.limits import PACED_ROWS_MAX
from penstock.spark import schema
from penstock.spark.archives.parquet import binary_buffers, column_numbers
from penstock.spark.part import StreamPart
from penstock.spark.rows import hash_each
from penstock.spark.sinks.rows import RowShape, column_bytes
from penstock.spark.sinks.settings import Delivery, Sink
from penstock.spark.sinks.sink import write_rows

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
