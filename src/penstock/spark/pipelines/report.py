"""Reports of flows: read from Spark's progress of their queries, and sent to the server.

A server without support for pipelines drops them. Reporting never fails a pipeline: a server that
cannot be reached is tried again later.

Lag is what the streams held when Spark last asked, without what was read by then. It counts
sequences, so it includes messages that were removed, or that a filter leaves out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from penstock.client.client import Client
from penstock.clock import Clock
from penstock.errors import FormatError, PenstockError
from penstock.limits import PIPELINE_ERROR_LETTERS_MAX
from penstock.protocol.pipeline_reports import FlowReport, FlowState, subject_of
from penstock.spark.connection import Connection
from penstock.spark.position import decode

REPEAT_S = 5.0
"""A report that has not changed is sent again after this long: the server forgets old ones."""

RETRY_S = 30.0
"""A server that could not be reached is not tried again for this long."""


class Reporter:
    """Sends the reports of one pipeline to one server; see the module. Used by one thread."""

    def __init__(self, connection: Connection, pipeline: str, clock: Clock) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._clock = clock
        self._client: Client | None = None
        self._retry_ns = 0
        self._told: dict[str, tuple[FlowReport, int]] = {}

    def report(self, reports: Mapping[str, FlowReport]) -> None:
        """Send the reports that have changed, or were sent too long ago."""
        now_ns = self._clock.monotonic_ns()
        due = {
            flow: report for flow, report in reports.items() if self._is_due(flow, report, now_ns)
        }
        if not due or now_ns < self._retry_ns:
            return
        try:
            self._send(due)
        except (PenstockError, OSError):
            self.close()
            self._retry_ns = now_ns + int(RETRY_S * 1e9)
        else:
            self._told |= {flow: (report, now_ns) for flow, report in due.items()}

    def _is_due(self, flow: str, report: FlowReport, now_ns: int) -> bool:
        told, told_ns = self._told.get(flow, (None, 0))
        return told != report or now_ns - told_ns >= REPEAT_S * 1e9

    def _send(self, reports: Mapping[str, FlowReport]) -> None:
        if self._client is None:
            self._client = self._connection.connect().client
        for flow, report in reports.items():
            short = msgspec.structs.replace(report, error=report.error[:PIPELINE_ERROR_LETTERS_MAX])
            self._client.publish(
                subject_of(self._pipeline, flow).encode(), msgspec.json.encode(short)
            )
        self._client.flush()

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


OnReport = Callable[[str, FlowReport], None]
"""Called with a flow's name and report."""

LETTERS = "dead_letters"
"""The name of a query's observation of dead letters, and of its one number."""


class QueryCounts(msgspec.Struct):
    """Totals of one query since it was started."""

    batch: int = -1
    rows: int = 0
    rows_per_second: float = 0.0
    lag_messages: int = 0
    letters: int = 0
    seen: str = ""
    """The time of the last progress that is counted: RFC 3339, which sorts."""

    def take(self, every: Iterable[Mapping[str, Any]]) -> None:
        """Add new progress of a query, as Spark's documents."""
        for each in every:
            if each["timestamp"] <= self.seen:
                continue
            self.seen = each["timestamp"]
            self.lag_messages = lag_of(each)
            self.rows += max(int(_over_all(each, "numInputRows")), 0)
            # While there is nothing to do, Spark reports the batch that would be
            # next.
            if "addBatch" in each["durationMs"]:
                self.batch = each["batchId"]
            self.rows_per_second = _over_all(each, "processedRowsPerSecond")
            self.letters += each.get("observedMetrics", {}).get(LETTERS, {}).get(LETTERS, 0)


def lag_of(progress: Mapping[str, Any]) -> int:
    """Return how many messages of its streams a query had still to read."""
    lag = 0
    for source in progress["sources"]:
        latest, end = _positions(source.get("latestOffset")), _positions(source.get("endOffset"))
        for name, position in latest.items():
            lag += max(position - end.get(name, 0), 0)
    return lag


def _positions(offset: Any) -> dict[str, int]:
    # It is a document in one version of Spark, and its text in another.
    try:
        given = json.loads(offset) if isinstance(offset, str) else offset
        return {name: each.next for name, each in decode(given or {}).items()}
    except (ValueError, FormatError):
        return {}


def _over_all(progress: Mapping[str, Any], field: str) -> float:
    # Spark Connect reports only each source by itself.
    if field in progress:
        return _finite(progress[field])
    return sum(_finite(source.get(field)) for source in progress["sources"])


def _finite(value: Any) -> float:
    # Spark writes NaN and Infinity if no time has passed.
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e18 else 0.0


def report_of(main: QueryCounts, letters: int, state: FlowState, error: str) -> FlowReport:
    """Return a flow's report, from the totals of its queries."""
    return FlowReport(
        state=state,
        batch=main.batch,
        rows=main.rows,
        rows_per_second=main.rows_per_second,
        lag_messages=main.lag_messages,
        dead_letters=letters,
        error=error,
    )
