"""Pipelines as code: flows from streams, through frames, to streams, tables and buckets.

    pipeline = Pipeline("orders")

    @pipeline.flow(from_stream("ORDERS", schema="region string, price double"),
                   to_kv("TOTALS", key="{region}"), mode="update")
    def totals(orders):
        return orders.groupBy("region").sum("price")

A flow is a query of Structured Streaming, with a second one for its dead letters if it has any. Its
position is in its checkpoint. Nothing happens until the pipeline runs: `penstock run FILE`, or
`run` with a session.

A flow's source and sink are declared by `from_stream`, `to_stream`, `to_table` and `to_kv`.
Subjects and keys are templates: texts with names of columns in braces. Everything that can be
checked without a session or a server is checked at the declaration. Columns whose names begin with
`_` describe the message of a row; they are not written unless they are named.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.protocol.pipeline_reports import FlowReport, is_name
from penstock.spark.pipelines.schemas import MESSAGE_COLUMNS, read_schema
from penstock.spark.streams.settings import read_settings
from penstock.subjects import is_literal

if TYPE_CHECKING:
    from penstock.spark.pipelines.report import OnReport


# Sources and sinks

_PART = re.compile(r"\{([^{}]*)\}|([^{}]+)|(.)", re.DOTALL)


EXACTLY_ONCE = "exactly-once"


class Template(msgspec.Struct, frozen=True):
    """A parsed template: pairs of literal text and a column's name, of which one is ""."""

    text: str
    parts: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [column for _, column in self.parts if column]

    def example(self) -> str:
        """Return an example of the text."""
        return "".join(word or "x" for word, _ in self.parts)

    def value(self) -> Column:
        """Return the template as a column, which is null if one of its columns is."""
        every = [
            F.col(f"`{column}`").cast("string") if column else F.lit(word)
            for word, column in self.parts
        ]
        return F.concat(*every)

    def check(self, known: Iterable[str], what: str) -> None:
        """Raise UsageError if the template names a column that is not known."""
        names = list(known)
        for column in self.columns:
            if column not in names:
                raise UsageError(
                    f"{what} {self.text!r}: the frame has no column {column!r}, "
                    f"but {', '.join(names)}"
                )


def read_template(text: str, what: str) -> Template:
    """Return a parsed template; raise UsageError."""
    parts = []
    for name, word, stray in _PART.findall(text):
        if stray or not (name or word) or "`" in name:
            raise UsageError(f"{what} {text!r}: braces hold the name of a column, as in {{region}}")
        parts.append((word, name))
    if not parts:
        raise UsageError(f"{what}: a text with names of columns in braces, not {text!r}")
    return Template(text, tuple(parts))


RESERVED = {*MESSAGE_COLUMNS, "_data", "_parsed", "_problem", "_row"}


class Mode(StrEnum):
    """Which rows of its result a flow writes at each batch: Spark's output modes."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class TableFormat(StrEnum):
    """How a table is kept."""

    PARQUET = "parquet"
    DELTA = "delta"


class StreamInput(msgspec.Struct, frozen=True):
    """Streams that are read; see `from_stream`."""

    streams: str
    options: dict[str, str]
    schema: StructType | None
    dead_letters: Template | None


class StreamOutput(msgspec.Struct, frozen=True):
    """A stream that is published to; see `to_stream`."""

    stream: str
    subject: Template
    payload: str
    headers: str
    options: dict[str, str]

    def __str__(self) -> str:
        return f"stream {self.stream}, subject {self.subject.text}"


class TableOutput(msgspec.Struct, frozen=True):
    """A folder of Parquet files, or a Delta table; see `to_table`."""

    path: str
    partition_by: tuple[str, ...]
    format: TableFormat

    @property
    def modes(self) -> list[Mode]:
        """The modes in which a flow can write it."""
        is_delta = self.format is TableFormat.DELTA
        return [Mode.APPEND, Mode.COMPLETE] if is_delta else [Mode.APPEND]

    def __str__(self) -> str:
        return f"table {self.path}" if self.format is TableFormat.PARQUET else f"delta {self.path}"


class KvOutput(msgspec.Struct, frozen=True):
    """A bucket that is put to; see `to_kv`."""

    bucket: str
    key: Template
    payload: str
    options: dict[str, str]

    def __str__(self) -> str:
        return f"bucket {self.bucket}, key {self.key.text}"


Output = StreamOutput | TableOutput | KvOutput


def from_stream(
    streams: str,
    *,
    schema: str | Mapping[str, str] | StructType | None = None,
    dead_letters: str = "",
    subject: str = "",
    starting: str = "earliest",
    max_messages: int = 0,
    options: Mapping[str, str] | None = None,
) -> StreamInput:
    """Return a source of streams, one or several with commas; raise UsageError.

    With a `schema` payloads are JSON, and the frame has its fields, followed by the columns
    `_stream`, `_subject`, `_sequence`, `_timestamp` and `_headers` of the message. A message that
    does not fit is published to `dead_letters`, a subject of a stream such as `dead.{_subject}`,
    with the reason in its headers; without one it fails the flow. Without a schema the frame is
    that of the format `penstock`.

    `subject` selects messages, with commas and wildcards; `starting` is where a flow without a
    checkpoint begins: earliest, latest or a sequence; `max_messages` bounds a batch. `options` are
    further ones of the format.
    """
    if dead_letters and schema is None:
        raise UsageError("dead letters are messages that do not fit a schema: give one")
    given = {
        "streams" if "," in streams else "stream": streams,
        "startingOffsets": starting,
        **({"subject": subject} if subject else {}),
        **({"maxOffsetsPerTrigger": str(max_messages)} if max_messages else {}),
        **(options or {}),
    }
    read_settings(given)
    fields = None if schema is None else read_schema(schema)
    for each in fields or ():
        if each.name in RESERVED:
            raise UsageError(f"schema: a field cannot be called {each.name}, the message's is")
    letters = read_template(dead_letters, "dead letters") if dead_letters else None
    if letters is not None:
        letters.check([*MESSAGE_COLUMNS], "dead letters")
        if not is_literal(letters.example().encode()):
            raise UsageError(f"dead letters: {dead_letters!r} is no subject to publish to")
    return StreamInput(streams, given, fields, letters)


def to_stream(
    stream: str,
    *,
    subject: str,
    payload: str = "",
    headers: str = "",
    delivery: str = "exactly-once",
    options: Mapping[str, str] | None = None,
) -> StreamOutput:
    """Return a sink that publishes a message for each row; raise UsageError.

    `subject` is a text with names of columns in braces. The payload is a JSON object of the row's
    columns, or the column `payload`; `headers` names a column of the type map<string,
    array<string>>. `delivery` and further `options` are those of the format `penstock`.
    """
    given = {"stream": stream, "delivery": delivery, **(options or {})}
    return StreamOutput(stream, read_template(subject, "subject"), payload, headers, given)


def to_table(
    path: str, *, partition_by: str | Sequence[str] = (), format: str = "parquet"
) -> TableOutput:
    """Return a sink that adds each row to a table, exactly once; raise UsageError.

    `format` is `parquet`, a folder of files that `partition_by` may divide by columns, or `delta`,
    a Delta table, which in mode complete is replaced at each batch.
    """
    if not path:
        raise UsageError("a table needs the path of its folder")
    if format not in [*TableFormat]:
        raise UsageError(f"a table's format is one of {', '.join(TableFormat)}, not {format!r}")
    names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if format == TableFormat.DELTA:
        if names:
            raise UsageError("partition by: a Delta table of ours is not divided")
        if importlib.util.find_spec("deltalake") is None:
            raise UsageError("Delta tables need deltalake: pip install 'penstock[delta]'")
    return TableOutput(path, names, TableFormat(format))


def to_kv(
    bucket: str, *, key: str, payload: str = "", options: Mapping[str, str] | None = None
) -> KvOutput:
    """Return a sink that puts each row to a bucket, under a key such as `{region}`.

    The value is a JSON object of the row's columns, or the column `payload`. Raise UsageError.
    """
    if not bucket:
        raise UsageError("a bucket needs a name")
    return KvOutput(bucket, read_template(key, "key"), payload, dict(options or {}))


# Flows

Transform = Callable[..., DataFrame]
Function = TypeVar("Function", bound=Transform)

_INTERVAL = re.compile(r"[1-9]\d{0,8} (millisecond|second|minute|hour|day)s?", re.ASCII)


class Flow(msgspec.Struct, frozen=True):
    """One flow: sources, a transformation, and a sink."""

    name: str
    inputs: tuple[StreamInput, ...]
    output: Output
    mode: Mode
    transform: Transform


class Pipeline:
    """Flows under one name; see the module."""

    def __init__(
        self,
        name: str,
        *,
        server: str = "",
        checkpoint: str = "",
        every: str = "1 second",
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Create a pipeline without flows; raise UsageError.

        `server` is the server of its streams, or several with commas; `checkpoint` the folder of
        its positions, which all machines of a cluster must reach; `every` how often it looks for
        messages. `options` are those of connections: `credsFile`, `tls.ca`, …
        """
        check_name(name, "pipeline")
        self.name = name
        self.server = server
        self.checkpoint = checkpoint
        self.every = check_interval(every)
        self.options = dict(options or {})
        self.flows: list[Flow] = []

    def flow(
        self,
        source: StreamInput | Sequence[StreamInput],
        sink: Output,
        *,
        mode: str = "append",
        name: str = "",
    ) -> Callable[[Function], Function]:
        """Return a decorator that adds a function as a flow; raise UsageError.

        The function is called with a frame for each source, and returns the frame for the sink.
        `mode` is Spark's output mode: `append` (new rows), `update` (rows that changed) or
        `complete` (all).
        """

        def add(transform: Function) -> Function:
            self.add(name or transform.__name__, source, sink, mode, transform)
            return transform

        return add

    def add(
        self,
        name: str,
        source: StreamInput | Sequence[StreamInput],
        sink: Output,
        mode: str,
        transform: Transform,
    ) -> None:
        """Add a flow; raise UsageError."""
        check_name(name, "flow")
        if any(each.name == name for each in self.flows):
            raise UsageError(f"pipeline {self.name} has two flows {name}")
        if mode not in [*Mode]:
            raise UsageError(f"flow {name}: mode is one of {', '.join(Mode)}, not {mode!r}")
        if isinstance(sink, TableOutput) and mode not in sink.modes:
            raise UsageError(
                f"flow {name}: a {sink.format} table takes rows in mode {' or '.join(sink.modes)}; "
                "what changes goes to a bucket: to_kv"
            )
        inputs = (source,) if isinstance(source, StreamInput) else tuple(source)
        if not inputs:
            raise UsageError(f"flow {name} has no source")
        self.flows.append(Flow(name, inputs, sink, Mode(mode), transform))

    def run(
        self,
        spark: SparkSession,
        *,
        server: str = "",
        checkpoint: str = "",
        once: bool = False,
        on_report: OnReport | None = None,
        until: threading.Event | None = None,
    ) -> dict[str, FlowReport]:
        """Run all flows in a session that knows our formats, until one fails or `until` is set.

        With `once` each flow ends after the messages that were there at the start. `on_report` is
        called with a flow's name and report whenever the report has changed. Return the last report
        of each flow; raise PipelineFailed or UsageError.
        """
        from penstock.spark.pipelines.run import Running

        with Running(spark, self, server=server, checkpoint=checkpoint, once=once) as running:
            return running.watch(on_report, until)


def check_name(name: str, what: str) -> str:
    """Return a name; raise UsageError if it cannot be that of a pipeline or a flow."""
    if not is_name(name):
        raise UsageError(
            f"{name!r} cannot be a {what}'s name: 1 to 64 letters, digits, underscores and hyphens"
        )
    return name


def check_interval(text: str) -> str:
    """Return an interval; raise UsageError if Spark could not read it."""
    if not _INTERVAL.fullmatch(text):
        raise UsageError(f"{text!r} is no span of time, like 10 seconds or 5 minutes")
    return text
