"""Pipelines without code: a YAML file of filters, maps and aggregates.

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

Expressions are Spark's SQL. Everything but these is checked before Spark starts; what Spark says of
an expression is told with its line and key.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.errors import UsageError
from penstock.spark.pipelines.ends import (
    Mode,
    Output,
    StreamInput,
    from_stream,
    to_kv,
    to_stream,
    to_table,
)
from penstock.spark.pipelines.failures import first_line
from penstock.spark.pipelines.pipeline import Pipeline, check_interval, check_name
from penstock.spark.pipelines.yaml_reading import Misplaced, Places, read_yaml


class From(msgspec.Struct, frozen=True):
    """See `from_stream`."""

    stream: str
    schema: str | dict[str, str] | None = None
    dead_letters: str = ""
    subject: str = ""
    starting: str = "earliest"
    max_messages: int = 0
    options: dict[str, str] = {}


class To(msgspec.Struct, frozen=True):
    """One of `stream`, `table` and `kv`, with what belongs to it."""

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


class Step(msgspec.Struct, frozen=True):
    """One of `filter`, `map`, `add` and `aggregate`, with what belongs to it."""

    filter: str = ""
    map: dict[str, str] | None = None
    add: dict[str, str] | None = None
    aggregate: dict[str, str] | None = None
    by: list[str] | None = None
    window: str = ""
    watermark: str = ""


class FlowDocument(msgspec.Struct, frozen=True):
    """A flow as it is written."""

    from_: str | From = msgspec.field(name="from")
    """A source, or the name of one of `sources`."""

    to: To
    steps: list[Step] = []
    mode: Mode = Mode.APPEND


class Document(msgspec.Struct, frozen=True):
    """A pipeline as it is written."""

    pipeline: str
    flows: dict[str, FlowDocument]
    sources: dict[str, From] = {}
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
    """Read a pipeline; raises UsageError that names file, line and key."""
    document, places = read_yaml(text, file, Document)
    with places.telling("pipeline"):
        check_name(document.pipeline, "pipeline")
    with places.telling("every"):
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
        with places.telling(f"sources.{name}"):
            sources[name] = _source(each)
    for name, flow in document.flows.items():
        here = f"flows.{name}"
        with places.telling(f"{here}.from"):
            source = _chosen(flow.from_, sources)
        with places.telling(f"{here}.to"):
            sink = _sink(flow.to)
        for place, step in enumerate(flow.steps):
            with places.telling(f"{here}.steps[{place}]"):
                _check_step(step)
        with places.telling(here):
            pipeline.add(name, source, sink, flow.mode, Steps(flow.steps, f"{here}.steps", places))
    if not pipeline.flows:
        raise Misplaced(places.at("flows"), "there is no flow")
    return pipeline


def _chosen(given: str | From, sources: Mapping[str, StreamInput]) -> StreamInput:
    if isinstance(given, From):
        return _source(given)
    if given not in sources:
        near = difflib.get_close_matches(given, sources, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no source {given!r}{hint}")
    return sources[given]


def _source(given: From) -> StreamInput:
    return from_stream(
        given.stream,
        schema=given.schema,
        dead_letters=given.dead_letters,
        subject=given.subject,
        starting=given.starting,
        max_messages=given.max_messages,
        options=given.options,
    )


def _sink(given: To) -> Output:
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
    """Give which of several kinds is meant; raises UsageError where it is not plain."""
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


def _check_step(step: Step) -> None:
    _one_of(step, _STEPS)
    if step.window:
        check_interval(step.window)
    if step.watermark:
        check_interval(step.watermark)


class Steps:
    """Takes a frame through the steps of a flow."""

    def __init__(self, steps: Sequence[Step], path: str, places: Places) -> None:
        self._steps = steps
        self._path = path
        self._places = places

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Give the frame that the sink takes; raises Misplaced for what Spark refuses."""
        for place, step in enumerate(self._steps):
            frame = self._taken(frame, step, f"{self._path}[{place}]")
        return frame

    def _taken(self, frame: DataFrame, step: Step, path: str) -> DataFrame:
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

    def _aggregated(self, frame: DataFrame, step: Step, path: str) -> DataFrame:
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
        """Have what Spark says against an expression told with its place."""
        try:
            yield
        except PySparkException as error:
            raise Misplaced(self._places.at(path), first_line(error)) from None
