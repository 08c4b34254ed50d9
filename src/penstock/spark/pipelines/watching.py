"""How flows are doing, read from what Spark tells of their queries. Pure.

Lag is what the streams held when Spark last asked, without what was read by then: in sequences, so
that it counts messages that were removed, or that a filter leaves out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from penstock.documents.pipeline_reports import FlowReport, FlowState
from penstock.errors import FormatError
from penstock.spark.positions import decode

Tell = Callable[[str, FlowReport], None]
"""Called with a flow's name and how it is."""

LETTERS = "dead_letters"
"""The name under which a query counts dead letters, and of the one number in it."""


class QueryCounts(msgspec.Struct):
    """What one query has done since it was started."""

    batch: int = -1
    rows: int = 0
    rows_per_second: float = 0.0
    lag_messages: int = 0
    letters: int = 0
    seen: str = ""
    """When the last progress was told that is counted in: RFC 3339, which sorts."""

    def take(self, every: Iterable[Mapping[str, Any]]) -> None:
        """Count in what is new among the progress of a query, given as Spark's documents."""
        for each in every:
            if each["timestamp"] <= self.seen:
                continue
            self.seen = each["timestamp"]
            self.lag_messages = lag_of(each)
            self.rows += max(int(_over_all(each, "numInputRows")), 0)
            # While there is nothing to do, Spark tells of the batch that would be next.
            if "addBatch" in each["durationMs"]:
                self.batch = each["batchId"]
            self.rows_per_second = _over_all(each, "processedRowsPerSecond")
            self.letters += each.get("observedMetrics", {}).get(LETTERS, {}).get(LETTERS, 0)


def lag_of(progress: Mapping[str, Any]) -> int:
    """Give how many messages of its streams a query had still to read."""
    lag = 0
    for source in progress["sources"]:
        latest, end = _positions(source.get("latestOffset")), _positions(source.get("endOffset"))
        for name, position in latest.items():
            lag += max(position - end.get(name, 0), 0)
    return lag


def _positions(offset: Any) -> dict[str, int]:
    # Spark gives it as a document in one version, and as its text in another.
    try:
        given = json.loads(offset) if isinstance(offset, str) else offset
        return {name: each.next for name, each in decode(given or {}).items()}
    except (ValueError, FormatError):
        return {}


def _over_all(progress: Mapping[str, Any], field: str) -> float:
    # Through Spark Connect only each source by itself is told of.
    if field in progress:
        return _finite(progress[field])
    return sum(_finite(source.get(field)) for source in progress["sources"])


def _finite(value: Any) -> float:
    # Spark writes NaN and Infinity where no time has passed.
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e18 else 0.0


def report_of(main: QueryCounts, letters: int, state: FlowState, error: str) -> FlowReport:
    """Give a flow's report out of what its queries did."""
    return FlowReport(
        state=state,
        batch=main.batch,
        rows=main.rows,
        rows_per_second=main.rows_per_second,
        lag_messages=main.lag_messages,
        dead_letters=letters,
        error=error,
    )
