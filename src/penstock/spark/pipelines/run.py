"""Running a pipeline: its queries are checked, started, watched and stopped.

    with Running(spark, pipeline, once=True) as running:
        reports = running.watch(on_report)

A flow is a query that writes its sink, and one more for the dead letters of each source. All run
side by side in one session. If one fails, the others are stopped; each has its position in its
checkpoint. Everything that can be checked is checked before the first query starts: the server is
asked for the streams, and a sink that may create its stream does so.

Used by the driver's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from urllib.parse import quote

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from penstock.clock import SystemClock
from penstock.errors import PenstockError, UsageError
from penstock.limits import PIPELINE_STARTS_MAX
from penstock.protocol.pipeline_reports import FlowReport, FlowState
from penstock.spark.connection import streams_of
from penstock.spark.failures import first_line, is_slow_start
from penstock.spark.kv import source as kv_source
from penstock.spark.pipelines.pipeline import (
    EXACTLY_ONCE,
    Flow,
    KvOutput,
    Mode,
    Output,
    Pipeline,
    StreamInput,
    StreamOutput,
    Template,
)
from penstock.spark.pipelines.report import LETTERS, OnReport, QueryCounts, Reporter, report_of
from penstock.spark.pipelines.schemas import dead_letters, fitting, parsed
from penstock.spark.pipelines.write import Writing, by_batch, writing_of
from penstock.spark.sinks import settings as sink_settings
from penstock.spark.streams.settings import find_streams, read_settings

_MESSAGES = StructType([StructField(name, StringType()) for name in ("subject", "value")])
_PAIRS = StructType([StructField(name, StringType()) for name in ("key", "value")])
_SOME_BATCH = {"sinkId": "some", "version": "0"}


def connection_options(pipeline: Pipeline, server: str) -> dict[str, str]:
    """Return the options of connections; `server` counts over the pipeline's own."""
    url = server or pipeline.server
    return {**pipeline.options, **({"servers": url} if url else {})}


def letters_options(subject: Template, connection: Mapping[str, str]) -> dict[str, str]:
    """Return the options for dead letters; the server is asked which stream takes them."""
    settings = read_settings({"stream": "any", **connection})
    with streams_of(settings.connection) as streams:
        asked = {"subject": subject.example()}
        names = list(streams.pages("STREAM.NAMES", "streams", asked))
    if len(names) != 1:
        raise UsageError(f"dead letters: no stream takes {subject.text!r}")
    return {**connection, "stream": names[0], "delivery": EXACTLY_ONCE}


def checkpoint_of(pipeline: Pipeline, given: str) -> str:
    """Return the folder of a pipeline's checkpoints; `given` counts over the pipeline's own."""
    base = given or pipeline.checkpoint or "checkpoints"
    return f"{base.rstrip('/')}/{pipeline.name}"


def check_endpoints(pipeline: Pipeline, connection: Mapping[str, str]) -> None:
    """Raise UsageError if a stream or bucket is missing, or does not allow what a flow needs.

    Raise what connecting raises.
    """
    if not pipeline.flows:
        raise UsageError(f"pipeline {pipeline.name} has no flow")
    for flow in pipeline.flows:
        try:
            for each in flow.inputs:
                find_streams(read_settings({**connection, **each.options}))
                if each.dead_letters is not None:
                    _check_stream(letters_options(each.dead_letters, connection))
            _check_output(flow.output, connection)
        except UsageError as error:
            raise UsageError(f"flow {flow.name}: {error}") from None


def _check_output(output: Output, connection: Mapping[str, str]) -> None:
    if isinstance(output, StreamOutput):
        _check_stream({**connection, **output.options})
    elif isinstance(output, KvOutput):
        options = {**connection, "bucket": output.bucket, **output.options}
        kv_source.read_sink(options, _PAIRS)


def _check_stream(options: dict[str, str]) -> None:
    is_exact = options.get("delivery") == EXACTLY_ONCE
    sink_settings.read_sink({**options, **(_SOME_BATCH if is_exact else {})}, _MESSAGES)


INITIALIZING = "Initializing sources"
"""The status of a query before it first looks for messages."""


LOOK_S = 0.5
"""How often queries are checked."""


class PipelineFailed(PenstockError):
    """A flow has failed; the others were stopped."""

    def __init__(self, flow: str, reason: str) -> None:
        super().__init__(f"flow {flow}: {reason}")
        self.flow = flow
        self.reason = reason


class _Query(msgspec.Struct):
    """A running query and its totals."""

    flow: str
    is_letters: bool
    writing: Writing
    query: StreamingQuery
    counts: QueryCounts
    starts: int = 1
    is_counted: bool = False
    """Whether the query had ended before its progress was last counted: nothing more will come."""

    def count(self) -> None:
        """Add the query's new progress to its totals."""
        # In this order: a query that ends in between has made progress that is not counted yet.
        self.is_counted = not self.query.isActive
        self.counts.take(msgspec.json.decode(each.json) for each in self.query.recentProgress)

    def failure(self) -> str:
        """Return why the query failed; "" if it runs, or has nothing left to do.

        A query that could not start in time is started again.
        """
        if self.query.isActive:
            return ""
        error = self.query.exception()
        reason = "" if error is None else first_line(error)
        if self.writing.batches is not None and self.writing.batches.failure:
            reason = self.writing.batches.failure
        if not is_slow_start(reason) or self.starts >= PIPELINE_STARTS_MAX:
            return reason
        self.starts += 1
        self.is_counted = False
        if self.writing.batches is not None:
            self.writing.batches.failure = ""
        self.query = self.writing.starter.start()
        return ""


class Running:
    """A running pipeline; see the module."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        *,
        server: str = "",
        checkpoint: str = "",
        once: bool = False,
    ) -> None:
        """Check everything, and start the queries; raise UsageError or PipelineFailed."""
        self._spark = spark
        self._pipeline = pipeline
        self._options = connection_options(pipeline, server)
        self._checkpoint = checkpoint_of(pipeline, checkpoint)
        self._once = once
        self._queries: list[_Query] = []
        self._letters: dict[str, StreamInput] = {}
        self._failed: dict[str, str] = {}
        """Flows that have failed, and why."""
        self._is_stopped = False
        check_endpoints(pipeline, self._options)
        connection = read_settings({"stream": "x", **self._options}).connection
        self._reporter = Reporter(connection, pipeline.name, SystemClock())
        try:
            for flow in pipeline.flows:
                self._start(flow)
        except BaseException:
            self.stop()
            raise

    def _start(self, flow: Flow) -> None:
        try:
            result = _transformed(flow, [self._frame(each) for each in flow.inputs])
            checkpoint = f"{self._checkpoint}/{flow.name}"
            writing = writing_of(result, flow.output, flow.mode, self._options, checkpoint)
            self._begin(flow, writing)
            for each in flow.inputs:
                self._start_letters(flow, each)
        except (UsageError, PySparkException) as error:
            raise PipelineFailed(flow.name, first_line(error)) from error

    def _frame(self, source: StreamInput) -> DataFrame:
        messages = self._messages(source)
        if source.schema is None:
            return messages
        read = parsed(messages, source.schema)
        return fitting(read, source.schema, fail=source.dead_letters is None)

    def _messages(self, source: StreamInput) -> DataFrame:
        options = {**self._options, **source.options}
        return self._spark.readStream.format("penstock").options(**options).load()

    def _start_letters(self, flow: Flow, source: StreamInput) -> None:
        # Flows of one source have the same dead letters: the first flow publishes them.
        subject, known = source.dead_letters, self._letters.values()
        if source.schema is None or subject is None or source in known:
            return
        # The checkpoint is named for the source, so that flows may be reordered.
        name = quote(f"{source.streams}.{subject.text}", safe="")
        while name in self._letters:
            name += "+"
        self._letters[name] = source
        letters = dead_letters(parsed(self._messages(source), source.schema), subject)
        counted = letters.observe(LETTERS, F.count(F.lit(1)).alias(LETTERS))
        options = letters_options(subject, self._options)
        checkpoint = f"{self._checkpoint}/dead-letters.{name}"
        writing = by_batch(counted, "penstock", options, Mode.APPEND, checkpoint)
        self._begin(flow, writing, is_letters=True)

    def _begin(self, flow: Flow, writing: Writing, *, is_letters: bool = False) -> None:
        if self._once:
            writing.starter.trigger(availableNow=True)
        else:
            writing.starter.trigger(processingTime=self._pipeline.every)
        query = writing.starter.start()
        begun = _Query(flow.name, is_letters, writing, query, QueryCounts())
        self._queries.append(begun)
        # Each source is a Python process, which must start within ten seconds: so they
        # start one after the other.
        while begun.query.isActive and begun.query.status["message"] == INITIALIZING:
            _await(begun)
            if begun.failure():
                return

    # Watching

    def watch(
        self, on_report: OnReport | None = None, until: threading.Event | None = None
    ) -> dict[str, FlowReport]:
        """Wait for the end of all queries or for `until`, and report their progress meanwhile.

        Return the last report of each flow; raise PipelineFailed.
        """
        last: dict[str, FlowReport] = {}
        while True:
            active = next((each for each in self._queries if each.query.isActive), None)
            if active is not None:
                _await(active)
            self._count()
            # Behind the counting: a query that is counted as ended has failed by now, or never.
            self._note_failures()
            reports = self._reports()
            for flow, report in reports.items():
                if on_report is not None and report != last.get(flow):
                    on_report(flow, report)
            last = reports
            self._reporter.report(reports)
            for flow, reason in self._failed.items():
                raise PipelineFailed(flow, reason)
            is_over = until is not None and until.is_set()
            if is_over or all(each.is_counted for each in self._queries):
                return reports

    def _note_failures(self) -> None:
        for each in self._queries:
            reason = each.failure()
            if not reason and not self._once and not each.query.isActive:
                reason = "its query has ended by itself"
            if reason:
                self._failed.setdefault(each.flow, reason)

    def _count(self) -> None:
        for each in self._queries:
            each.count()

    def _reports(self) -> dict[str, FlowReport]:
        started = {each.flow for each in self._queries}
        return {name: self._report(name) for name in sorted(started)}

    def _report(self, flow: str) -> FlowReport:
        own = [each for each in self._queries if each.flow == flow]
        state = FlowState.RUNNING
        if flow in self._failed:
            state = FlowState.FAILED
        elif all(each.is_counted for each in own):
            state = FlowState.STOPPED if self._is_stopped else FlowState.DONE
        main = next(each.counts for each in own if not each.is_letters)
        letters = sum(each.counts.letters for each in own)
        return report_of(main, letters, state, self._failed.get(flow, ""))

    # Ending

    def stop(self) -> None:
        """Stop every query; a batch that is under way is run again at the next start."""
        self._is_stopped = any(each.query.isActive for each in self._queries)
        for each in self._queries:
            try:
                each.query.stop()
            except PySparkException:
                # Nothing depends on how it ended.
                continue
        self._count()
        self._reporter.report(self._reports())
        self._reporter.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _await(active: _Query) -> None:
    try:
        active.query.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # it takes fractions too
    except PySparkException:
        # A failure is found when the queries are checked.
        return


def _transformed(flow: Flow, frames: list[DataFrame]) -> DataFrame:
    try:
        result: object = flow.transform(*frames)
    except (PenstockError, PySparkException):
        raise
    except Exception as error:  # it is the user's own code: anything can come
        raise UsageError(f"{type(error).__name__}: {error}") from error
    if not isinstance(result, DataFrame) or not result.isStreaming:
        raise UsageError("its function must give a frame made of those that it is given")
    return result
