"""Pipelines as code: flows from streams, through frames, to streams, tables and buckets.

    pipeline = Pipeline("orders")

    @pipeline.flow(from_stream("ORDERS", schema="region string, price double"),
                   to_kv("TOTALS", key="{region}"), mode="update")
    def totals(orders):
        return orders.groupBy("region").sum("price")

A flow is a query of Structured Streaming, with a second one for its dead letters if it has any. Its
position is in its checkpoint. Nothing happens until the pipeline runs: `penstock run FILE`, or
`run` with a session.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import UsageError
from penstock.protocol.pipeline_reports import FlowReport, is_name
from penstock.spark.pipelines.endpoints import Mode, Output, StreamInput, TableOutput

if TYPE_CHECKING:
    from penstock.spark.pipelines.report import OnReport

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
