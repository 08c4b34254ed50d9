"""Pipelines out of files: Python that creates one, or YAML that describes one.

    pipeline: orders
    sources:
      orders: {stream: ORDERS, schema: "region string, price double"}
    flows:
      totals:
        from: orders
        steps:
          - filter: price > 0
          - aggregate: {total: sum(price), orders: count(*)}
            by: [region]
        to: {kv: TOTALS, key: "{region}"}
        mode: update

Expressions are Spark's SQL. Everything else is checked before Spark starts; errors of an expression
have its line and key.

A Python file is run as it is, with its folder on the path of imports: it must be trusted. Its
errors have their own line. Used by the command line.
"""

from __future__ import annotations

import contextlib
import difflib
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.errors import UsageError
from penstock.spark.failures import first_line
from penstock.spark.pipelines.pipeline import (
    Mode,
    Output,
    Pipeline,
    StreamInput,
    check_interval,
    check_name,
    from_stream,
    to_kv,
    to_stream,
    to_table,
)
from penstock.spark.pipelines.yaml_reader import DocumentError, DocumentLines, read_yaml


class SourceDocument(msgspec.Struct, frozen=True):
    """See `from_stream`."""

    stream: str
    schema: str | dict[str, str] | None = None
    dead_letters: str = ""
    subject: str = ""
    starting: str = "earliest"
    max_messages: int = 0
    options: dict[str, str] = {}


class SinkDocument(msgspec.Struct, frozen=True):
    """One of `stream`, `table` and `kv`, with its keys."""

    stream: str = ""
    subject: str = ""
    delivery: str = ""
    headers: str = ""
    table: str = ""
    partition_by: list[str] | None = None
    format: str = ""
    kv: str = ""
    key: str = ""
    payload: str = ""
    options: dict[str, str] | None = None


class StepDocument(msgspec.Struct, frozen=True):
    """One of `filter`, `map`, `add` and `aggregate`, with its keys."""

    filter: str = ""
    map: dict[str, str] | None = None
    add: dict[str, str] | None = None
    aggregate: dict[str, str] | None = None
    by: list[str] | None = None
    window: str = ""
    watermark: str = ""


class FlowDocument(msgspec.Struct, frozen=True):
    """A flow of a file."""

    from_: str | SourceDocument = msgspec.field(name="from")
    """A source, or the name of one of `sources`."""

    to: SinkDocument
    steps: list[StepDocument] = []
    mode: Mode = Mode.APPEND


class Document(msgspec.Struct, frozen=True):
    """A pipeline file."""

    pipeline: str
    flows: dict[str, FlowDocument]
    sources: dict[str, SourceDocument] = {}
    server: str = ""
    checkpoint: str = ""
    every: str = "1 second"
    options: dict[str, str] = {}


_TO = {
    "stream": ("subject", "payload", "headers", "delivery", "options"),
    "table": ("partition_by", "format"),
    "kv": ("key", "payload", "options"),
}
_STEPS: dict[str, tuple[str, ...]] = {
    "filter": (),
    "map": (),
    "add": (),
    "aggregate": ("by", "window", "watermark"),
}


def read_document(text: str, file: str) -> Pipeline:
    """Return the pipeline of a YAML text; raise UsageError that names file, line and key."""
    document, lines = read_yaml(text, file, Document)
    with lines.telling("pipeline"):
        check_name(document.pipeline, "pipeline")
    with lines.telling("every"):
        check_interval(document.every)
    pipeline = Pipeline(
        document.pipeline,
        server=document.server,
        checkpoint=document.checkpoint,
        every=document.every,
        options=document.options,
    )
    sources = {}
    for name, each in document.sources.items():
        with lines.telling(f"sources.{name}"):
            sources[name] = _source(each)
    for name, flow in document.flows.items():
        here = f"flows.{name}"
        with lines.telling(f"{here}.from"):
            source = _chosen(flow.from_, sources)
        with lines.telling(f"{here}.to"):
            sink = _sink(flow.to)
        for place, step in enumerate(flow.steps):
            with lines.telling(f"{here}.steps[{place}]"):
                _check_step(step)
        with lines.telling(here):
            pipeline.add(name, source, sink, flow.mode, Steps(flow.steps, f"{here}.steps", lines))
    if not pipeline.flows:
        raise DocumentError(lines.at("flows"), "there is no flow")
    return pipeline


def _chosen(given: str | SourceDocument, sources: Mapping[str, StreamInput]) -> StreamInput:
    if isinstance(given, SourceDocument):
        return _source(given)
    if given not in sources:
        near = difflib.get_close_matches(given, sources, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no source {given!r}{hint}")
    return sources[given]


def _source(given: SourceDocument) -> StreamInput:
    return from_stream(
        given.stream,
        schema=given.schema,
        dead_letters=given.dead_letters,
        subject=given.subject,
        starting=given.starting,
        max_messages=given.max_messages,
        options=given.options,
    )


def _sink(given: SinkDocument) -> Output:
    chosen = _one_of(given, _TO)
    if chosen == "table":
        kind = given.format or "parquet"
        return to_table(given.table, partition_by=given.partition_by or (), format=kind)
    if chosen == "kv":
        return to_kv(given.kv, key=given.key, payload=given.payload, options=given.options)
    delivery = {"delivery": given.delivery} if given.delivery else {}
    return to_stream(
        given.stream,
        subject=given.subject,
        payload=given.payload,
        headers=given.headers,
        options={**delivery, **(given.options or {})},
    )


def _one_of(given: msgspec.Struct, kinds: Mapping[str, tuple[str, ...]]) -> str:
    """Return which of several kinds is given; raise UsageError if it is not exactly one."""
    there = [
        field.name
        for field in msgspec.structs.fields(given)
        if getattr(given, field.name) not in ("", None)
    ]
    chosen = [name for name in there if name in kinds]
    if len(chosen) != 1:
        raise UsageError(f"give one of {', '.join(kinds)}")
    for name in there:
        if name not in (chosen[0], *kinds[chosen[0]]):
            raise UsageError(f"{name} does not belong to {chosen[0]}")
    return chosen[0]


def _check_step(step: StepDocument) -> None:
    _one_of(step, _STEPS)
    if step.window:
        check_interval(step.window)
    if step.watermark:
        check_interval(step.watermark)


class Steps:
    """The steps of a flow, as a function of frames."""

    def __init__(self, steps: Sequence[StepDocument], path: str, lines: DocumentLines) -> None:
        self._steps = steps
        self._path = path
        self._places = lines

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Return the frame for the sink; raise DocumentError if Spark refuses a step."""
        for place, step in enumerate(self._steps):
            frame = self._taken(frame, step, f"{self._path}[{place}]")
        return frame

    def _taken(self, frame: DataFrame, step: StepDocument, path: str) -> DataFrame:
        if step.filter:
            with self._telling(f"{path}.filter"):
                return frame.where(step.filter)
        if step.map is not None:
            kept = [F.col(f"`{name}`") for name in frame.columns if name.startswith("_")]
            made = [self._made(frame, name, text, f"{path}.map") for name, text in step.map.items()]
            return frame.select(*made, *kept)
        if step.add is not None:
            for name, text in step.add.items():
                frame = frame.withColumn(name, self._made(frame, name, text, f"{path}.add"))
            return frame
        return self._aggregated(frame, step, path)

    def _made(self, frame: DataFrame, name: str, text: str, path: str) -> Column:
        with self._telling(f"{path}.{name}"):
            made = F.expr(text).alias(name)
            frame.select(made)
            return made

    def _aggregated(self, frame: DataFrame, step: StepDocument, path: str) -> DataFrame:
        if step.watermark:
            frame = frame.withWatermark("_timestamp", step.watermark)
        groups = []
        for place, text in enumerate(step.by or []):
            with self._telling(f"{path}.by[{place}]"):
                groups.append(F.expr(text))
                frame.select(groups[-1])
        if step.window:
            groups.append(F.window("_timestamp", step.window))
        made = []
        for name, text in (step.aggregate or {}).items():
            with self._telling(f"{path}.aggregate.{name}"):
                made.append(F.expr(text).alias(name))
                frame.groupBy(*groups).agg(made[-1])
        counted = frame.groupBy(*groups).agg(*made)
        if not step.window:
            return counted
        return counted.select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            *[F.col(f"`{name}`") for name in counted.columns if name != "window"],
        )

    @contextlib.contextmanager
    def _telling(self, path: str) -> Iterator[None]:
        """Raise Spark's errors of an expression as DocumentError, with its line."""
        try:
            yield
        except PySparkException as error:
            raise DocumentError(self._places.at(path), first_line(error)) from None


MODULE = "penstock_pipeline"
"""The name under which a file is run: not `__main__`, so that a file may also run itself."""


def load_pipeline(path: Path) -> Pipeline:
    """Return the pipeline of a file; raise UsageError that names file and line, or OSError."""
    if path.suffix in (".yaml", ".yml"):
        try:
            return read_document(path.read_text(), str(path))
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: no text: {error.reason}") from None
    if path.suffix != ".py":
        raise UsageError(f"{path}: a pipeline is a .py or a .yaml file")
    pipelines = [each for each in _run(path).values() if isinstance(each, Pipeline)]
    if len(set(map(id, pipelines))) != 1:
        found = "no pipeline" if not pipelines else "several pipelines"
        raise UsageError(f"{path}: one belongs in a file, as in pipeline = Pipeline(…); {found}")
    return pipelines[0]


def _run(path: Path) -> dict[str, object]:
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=MODULE)
    except OSError:
        raise
    except Exception as error:  # it is the user's own code: anything can come
        raise UsageError(_told(path, error)) from error


def _told(path: Path, error: Exception) -> str:
    """Return an error of a file as text, with its line."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path):
            line = frame.lineno
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
    return f"{path}:{line or 1}: {kind}{what}"
