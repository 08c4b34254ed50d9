"""Pipelines as code: flows from streams, through frames, to streams, tables and buckets.

    pipeline = Pipeline("orders")

    @pipeline.flow(from_stream("ORDERS", schema="region string, price double"),
                   to_kv("TOTALS", key="{region}"), mode="update")
    def totals(orders):
        return orders.groupBy("region").sum("price")

A flow is a query of Structured Streaming, and where there are dead letters two; where it is, its
checkpoint says. Nothing happens until the pipeline runs: `penstock run FILE`, or `run` with a
session.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.documents.pipeline_reports import FlowReport, is_name
from penstock.errors import UsageError
from penstock.spark.pipelines.ends import Mode, Output, StreamInput, TableOutput

if TYPE_CHECKING:
    from penstock.spark.pipelines.watching import Tell

Transform = Callable[..., DataFrame]
Function = TypeVar("Function", bound=Transform)

_INTERVAL = re.compile(r"[1-9]\d{0,8} (millisecond|second|minute|hour|day)s?", re.ASCII)


class Flow(msgspec.Struct, frozen=True):
    """One way of rows through a pipeline."""

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
        """Begin a pipeline without flows; raises UsageError.

        `server` is where its streams are, with commas where there are several; `checkpoint` the
        folder where it notes how far it has come, which all of a cluster must reach; `every` how
        often it looks for messages. `options` are those of connections: `credsFile`, `tls.ca`, …
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
        """Add the function below as a flow; raises UsageError.

        It is given a frame for each source, and gives the frame that the sink shall take. `mode` is
        Spark's output mode: `append` (new rows), `update` (rows that changed) or `complete` (all).
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
        """Add a flow; raises UsageError."""
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
        tell: Tell | None = None,
        until: threading.Event | None = None,
    ) -> dict[str, FlowReport]:
        """Run all flows in a session that knows our formats, until one fails or `until` is set.

        With `once` they end when they have dealt with what was there at the start. `tell` is called
        with a flow's name and report whenever it has changed. Gives the last report of each flow;
        raises PipelineFailed and UsageError.
        """
        from penstock.spark.pipelines.running import Running

        with Running(spark, self, server=server, checkpoint=checkpoint, once=once) as running:
            return running.watch(tell, until)


def check_name(name: str, what: str) -> str:
    """Refuse what cannot be a pipeline's or a flow's name."""
    if not is_name(name):
        raise UsageError(
            f"{name!r} cannot be a {what}'s name: 1 to 64 letters, digits, underscores and hyphens"
        )
    return name


def check_interval(text: str) -> str:
    """Refuse what is no span of time as Spark reads them."""
    if not _INTERVAL.fullmatch(text):
        raise UsageError(f"{text!r} is no span of time, like 10 seconds or 5 minutes")
    return text
