"""How the results of a bench are told: what was run, and a line for each server."""

from __future__ import annotations

from functools import partial

from penstock.bench.crew import Run
from penstock.bench.plan import ANSWERED, CONSUMED, STREAMED, Kind, Plan
from penstock.bench.series import Series, ratio
from penstock.cli.output import Column, Output, count

SUMMARY_PERCENTS = (50, 90, 99)


def _rate(value: object) -> str:
    assert isinstance(value, float)
    return f"{value:,.0f}"


def _tenths(value: object) -> str:
    assert isinstance(value, float)
    return f"{value:,.1f}"


def _times(value: object) -> str:
    assert isinstance(value, float)
    return f"{value:.2f}x"


_FACTS = [
    Column("size_bytes", "payload bytes", count),
    Column("publishers", "publishers", count),
    Column("subscribers", "subscribers", count),
    Column("in_flight", "in flight", count),
    Column("streams", "streams", count),
    Column("storage", "storage"),
    Column("subjects", "subjects", count),
    Column("stored", "messages stored", count),
    Column("one_in", "a filter passes one in", count),
    Column("batch", "batch", count),
    Column("ack", "acks"),
    Column("runs", "runs, in turns", count),
]
_SPEED = [
    Column("server", "server"),
    Column("messages", "messages a run", count, right=True),
    Column("messages_per_second", "msgs/s", _rate, right=True),
    Column("messages_per_second_best", "best", _rate, right=True),
    Column("megabytes_per_second", "MB/s", _tenths, right=True),
]
_LATENCY = [
    Column(f"latency_p{percent}_us", f"p{percent} µs", _tenths, right=True)
    for percent in SUMMARY_PERCENTS
]
_RATIO = Column("ratio", "ratio", _times, right=True)
_LATENCY_RATIO = Column("latency_p50_ratio", "p50 ratio", _times, right=True)


def tell_measured(output: Output, plan: Plan, measured: list[Series]) -> None:
    """Tell what was run, and how each server did."""
    has_latency, is_compared = plan.kind in ANSWERED, len(measured) > 1
    is_consumed, is_pulled = plan.kind in CONSUMED, plan.kind is Kind.JSFETCH
    facts = {
        "bench": str(plan.kind),
        "subject": plan.subject,
        "size_bytes": plan.size_bytes,
        "publishers": 0 if is_consumed or plan.kind is Kind.SUB else plan.publishers,
        "subscribers": plan.subscribers if is_consumed or plan.has_listeners else 0,
        "in_flight": plan.in_flight if has_latency or is_pulled else None,
        "streams": plan.streams if plan.kind in STREAMED else None,
        "storage": str(plan.storage) if plan.kind in STREAMED else None,
        "subjects": plan.spread or None,
        "stored": plan.stored if is_consumed else None,
        "one_in": plan.one_in if plan.one_in > 1 else None,
        "batch": plan.batch if is_pulled else None,
        "ack": str(plan.ack) if is_consumed else None,
        "runs": len(measured[0].runs),
    }
    output.facts(facts, [column for column in _FACTS if facts[column.name]])
    rows = [_row(series, measured) for series in measured]
    columns = [*_SPEED, *(_LATENCY if has_latency else [])]
    if is_compared:
        columns += [_RATIO, *([_LATENCY_RATIO] if has_latency else [])]
    output.rows("servers", columns, rows)


def _row(series: Series, measured: list[Series]) -> dict[str, object]:
    # The first is the one that the others are compared with.
    ours = series if series is measured[0] and len(measured) > 1 else None
    has_latency = series.plan.kind in ANSWERED
    row: dict[str, object] = {
        "server": series.name,
        "messages": series.plan.messages,
        "messages_per_second": series.median(lambda run: run.messages_per_second),
        "messages_per_second_best": series.best,
        "megabytes_per_second": series.median(lambda run: run.megabytes_per_second),
        "seconds": [run.seconds for run in series.runs],
        "ratio": ours and ratio(ours, measured[1], lambda run: run.messages_per_second),
    }
    if has_latency:
        for percent in SUMMARY_PERCENTS:
            row[f"latency_p{percent}_us"] = series.median(partial(_latency, percent))
        row["latency_p50_ratio"] = ours and ratio(ours, measured[1], partial(_latency, 50))
    return row


def _latency(percent: int, run: Run) -> float:
    return run.latency_us(percent)
