"""Pipelines on the pages: as JSON, as a table of the first page, and as metrics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import msgspec

from penstock.documents.pipeline_reports import FlowState
from penstock.monitor.facts import Source
from penstock.monitor.jetstream_facts import JetStreamFacts
from penstock.monitor.pipelines import FlowFacts
from penstock.monitor.rendering import timestamp


def pipelinez(source: Source) -> dict[str, Any]:
    """Give the page; it is empty where JetStream is off."""
    jetstream = source.jetstream()
    return {
        "server_id": source.server().id,
        "now": timestamp(source.now_ns()),
        "flows": [
            {
                "account": each.account,
                "pipeline": each.pipeline,
                "flow": each.flow,
                **msgspec.to_builtins(each.report),
                "age_seconds": each.age_ns / 1e9,
            }
            for each in (jetstream.flows if jetstream is not None else ())
        ],
        "reports_ignored": jetstream.reports_ignored if jetstream is not None else 0,
    }


def pipeline_table(source: Source) -> str:
    """Give a table of HTML for the first page, "" where there is no flow."""
    jetstream = source.jetstream()
    if jetstream is None or not jetstream.flows:
        return ""
    headings = ("pipeline", "flow", "account", "state", "rows", "rows/s", "lag", "dead letters")
    lines = ["    <h2>Pipelines</h2>", "    <table>", _row("th", headings)]
    for each in jetstream.flows:
        report = each.report
        cells = (
            each.pipeline,
            each.flow,
            each.account,
            f"{report.state}: {report.error}" if report.error else str(report.state),
            f"{report.rows:,}",
            f"{report.rows_per_second:,.0f}",
            f"{report.lag_messages:,}",
            f"{report.dead_letters:,}",
        )
        lines.append(_row("td", cells))
    return "\n".join([*lines, "    </table>"]) + "\n"


def _row(tag: str, cells: Sequence[str]) -> str:
    inner = "".join(f"<{tag}>{escape(each)}</{tag}>" for each in cells)
    return f"      <tr>{inner}</tr>"


class FlowMetric(NamedTuple):
    """A metric with a series for each flow."""

    name: str
    kind: str
    help: str
    value: Callable[[FlowFacts], float]


FLOW_METRICS = (
    FlowMetric(
        "penstock_pipeline_rows_total",
        "counter",
        "Messages that a flow has read since its pipeline was started.",
        lambda f: f.report.rows,
    ),
    FlowMetric(
        "penstock_pipeline_rows_per_second",
        "gauge",
        "Messages a second of a flow's last batch.",
        lambda f: f.report.rows_per_second,
    ),
    FlowMetric(
        "penstock_pipeline_lag_messages",
        "gauge",
        "Messages of its streams that a flow has not read yet.",
        lambda f: f.report.lag_messages,
    ),
    FlowMetric(
        "penstock_pipeline_dead_letters_total",
        "counter",
        "Messages that did not fit a flow's schema since its pipeline was started.",
        lambda f: f.report.dead_letters,
    ),
    FlowMetric(
        "penstock_pipeline_last_batch",
        "gauge",
        "The last batch that a flow has done, -1 before the first.",
        lambda f: f.report.batch,
    ),
    FlowMetric(
        "penstock_pipeline_failed",
        "gauge",
        "Whether a flow has failed.",
        lambda f: int(f.report.state is FlowState.FAILED),
    ),
    FlowMetric(
        "penstock_pipeline_report_age_seconds",
        "gauge",
        "Time since a flow told of itself.",
        lambda f: f.age_ns / 1e9,
    ),
)


def pipeline_lines(facts: JetStreamFacts, label: Callable[[str], str]) -> Iterator[str]:
    """Give the lines of all metrics; `label` makes a text fit for a label."""
    for metric in FLOW_METRICS:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for each in facts.flows:
            labels = (
                f'account="{label(each.account)}",pipeline="{each.pipeline}",flow="{each.flow}"'
            )
            yield f"{metric.name}{{{labels}}} {metric.value(each)}"
    name = "penstock_pipeline_reports_ignored_total"
    yield f"# HELP {name} Reports of pipelines that could not be read, or had no room."
    yield f"# TYPE {name} counter"
    yield f"{name} {facts.reports_ignored}"
