"""Telling the server how flows are: one small message each, now and again.

A server that does not know of pipelines drops them. Reporting never fails a pipeline: a server that
cannot be reached is tried again later.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.client.client import Client
from penstock.clock import Clock
from penstock.documents.pipeline_reports import FlowReport, subject_of
from penstock.errors import PenstockError
from penstock.limits import PIPELINE_REPORT_BYTES_MAX
from penstock.spark.connecting import Connection

REPEAT_S = 5.0
"""A report that has not changed is told again after this long, so that it is not forgotten."""

RETRY_S = 30.0
"""A server that could not be told is left alone for this long."""

ERROR_LETTERS_MAX = PIPELINE_REPORT_BYTES_MAX // 16
"""Letters of an error that are told: each takes up to six bytes in JSON, twice that as a pair."""


class Reporter:
    """Tells one server of one pipeline; see the module. Used by one thread."""

    def __init__(self, connection: Connection, pipeline: str, clock: Clock) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._clock = clock
        self._client: Client | None = None
        self._retry_ns = 0
        self._told: dict[str, tuple[FlowReport, int]] = {}

    def tell(self, reports: Mapping[str, FlowReport]) -> None:
        """Tell what has changed, and what was told too long ago."""
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
            short = msgspec.structs.replace(report, error=report.error[:ERROR_LETTERS_MAX])
            self._client.publish(
                subject_of(self._pipeline, flow).encode(), msgspec.json.encode(short)
            )
        self._client.flush()

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None
