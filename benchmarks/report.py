"""The pages that a whole run writes: docs/benchmarks.md, its charts, and the figures of README.md.

    python -m benchmarks.report       # writes them anew from results/latest.json

All three come from one results file. Text between the marks is replaced; the rest of a page is
written by hand. Rows stand worst first: missed goals, then the row with the least margin.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.charts import Bar, bar_chart
from benchmarks.measure import ROOT, show_time

RESULTS = ROOT / "benchmarks" / "results"
LATEST = RESULTS / "latest.json"
MARK_START = "<!-- bench:start -->"
MARK_END = "<!-- bench:end -->"
REFERENCE = "of nats-server"

Json = dict[str, Any]

SECTIONS = {
    "The store": ("append", "scan", "load", "open", "memory", "latency", "workloads"),
    "The server": ("server", "server-memory", "start"),
    "Transports and identities": ("transports",),
    "Streams": ("jetstream", "jetstream-restart"),
    "Streams with options": ("breadth",),
    "The API": ("api",),
    "Creating streams and consumers": ("creation",),
    "One message in flight": ("one-in-flight",),
    "Buckets and objects": ("kv", "objects"),
    "The nats tool": ("nats-bench",),
    "Consumers": ("consumers", "consumers-waiting", "consumers-idle"),
    "Spark": ("spark-read", "spark-sink", "spark-jobs", "spark-archive"),
}
"""The page's sections, with the benchmarks of each."""

FIGURES = {
    "1:1 at 128 B: of nats-server": "messages from one client to another",
    "1:1 at 128 B, 10,000 subjects: of nats-server": "the same, over 10,000 subjects",
    "fan-out 1:5 at 128 B: of nats-server": "fan-out to five subscribers",
    "requests, one in flight: p50: of nats-server": "time of a request, p50",
    "memory of an idle connection": "memory of an idle connection",
    "publish, 1,000 in flight: of nats-server": "publish to a stream, every ack after a sync",
    "publish, 1,000 in flight: of nats-server synced": "the same, of a server that syncs too",
    "pull, batch 500, explicit acks: of nats-server": "pull consumer, explicit acks",
    "one message at 1,000 waiting pulls of a consumer: p99, of nats-server": (
        "time from publish to a waiting pull, p99"
    ),
    "restart with 10 M messages in 100 streams: time, of nats-server": (
        "time to restart with 10 M messages"
    ),
    "penstock-blocks, 128 B messages, all columns: of spark.read.parquet": (
        "Spark reading block files, of Parquet files"
    ),
    "exactly-once, 128 B messages, synced": "Spark writing to a stream, exactly once",
}
"""README's twelve figures: rows by their names, and how the README calls them."""

WORST_ROWS = 10
"""So many rows stand at the head of the page, or all that miss their goals if these are more."""

_GROWING = re.compile(r"^open: .* over |: of without$|, of one subject$")
_LESS_IS_BETTER = re.compile(r"\b(p50|p99|time|memory|bytes)\b")


def show_value(row: Json) -> str:
    """Return a row's value with its unit, as people read it."""
    value, unit = row["value"], row["unit"]
    if unit == "x":
        return f"{value:.2f}x"
    if value >= 10_000:
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}"


def show_processor(row: Json) -> str:
    """Return by what factor our processor time is less, and both times; "" if not measured."""
    processor = row.get("processor")
    if processor is None:
        return ""
    times = f"{show_time(processor['ours_ns'])}, {show_time(processor['theirs_ns'])}"
    return f"{processor['times_less']:.2f}x ({times})"


def show_goal(row: Json) -> str:
    """Return a row's goal and whether it was reached, or "" without a goal."""
    if row["goal"] is None:
        return ""
    either = "either " if row.get("either") else ""
    return f"{either}{row['goal']} {'pass' if row['passed'] else 'MISSED'}"


def title(document: Json) -> str:
    """Return when and on what the results were measured, in one line."""
    machine = document["machine"]
    return (
        f"{document['started'][:10]}, {document['sizes']} size: {machine['cores']} cores of"
        f" {machine['processor']}, Linux {machine['kernel']}, {machine['disk']},"
        f" Python {machine['python']}, SQLite {machine['sqlite']},"
        f" nats-server {machine['nats_server']}"
    )


def less_is_better(row: Json) -> bool:
    """Return True if a smaller value is the better one: by the goal, else by the row's name."""
    if row["goal"] is not None:
        return bool(row["goal"].startswith("≤"))
    return _LESS_IS_BETTER.search(row["what"]) is not None


def margin(row: Json) -> float:
    """Return by what factor a row is inside its goal; below 1 it misses the goal.

    A ratio without a goal is compared with 1. Other rows without a goal are infinitely inside.
    """
    if row["goal"] is not None:
        bound = float(row["goal"].split()[1])
    elif row["unit"] == "x":
        bound = 1.0
    else:
        return float("inf")
    if row["value"] <= 0:
        return float("inf") if less_is_better(row) else 0.0
    inside = float(bound / row["value"] if less_is_better(row) else row["value"] / bound)
    return max(inside, row["processor"]["times_less"] / bound) if row.get("either") else inside


def worst_first(rows: list[Json]) -> list[Json]:
    """Return rows by their margin: missed goals, then the row with the least margin."""
    return sorted(rows, key=lambda row: (row["passed"] is not False, margin(row)))


def table(rows: list[Json]) -> str:
    """Return rows as a Markdown table, worst first."""
    lines = ["| what | value | processor | goal | of which |", "|---|---:|---|---|---|"]
    lines += [
        f"| {row['what']} | {show_value(row)} | {show_processor(row)} | {show_goal(row)}"
        f" | {row['detail']} |"
        for row in worst_first(rows)
    ]
    return "\n".join(lines)


def worst(rows: list[Json]) -> str:
    """Return the rows that miss their goals, and those that come nearest to it."""
    ordered = worst_first([row for row in rows if row["goal"] is not None])
    missed = sum(row["passed"] is False for row in ordered)
    said = f"{missed} of {len(ordered)} goals are missed." if missed else "Every goal is reached."
    shown = table(ordered[: max(missed, WORST_ROWS)])
    return f"{said} The rows with the least margin:\n\n{shown}"


def page(document: Json) -> str:
    """Return the generated part of docs/benchmarks.md: conditions, charts and tables."""
    parts = [
        f"Measured {title(document)}.",
        "![Every comparison with nats-server](charts/nats-server.svg)",
        "![What grows when the work grows](charts/growth.svg)",
        "## The worst rows",
        worst(document["rows"]),
    ]
    for heading, benches in SECTIONS.items():
        rows = [row for row in document["rows"] if row["bench"] in benches]
        if rows:
            parts += [f"## {heading}", table(rows)]
    return "\n\n".join(parts)


def figures(document: Json) -> str:
    """Return README's figures as a Markdown table; a figure that was not measured is left out."""
    rows = {row["what"]: row for row in document["rows"]}
    lines = ["| what | value | of which |", "|---|---:|---|"]
    for what, label in FIGURES.items():
        if row := rows.get(what):
            beside = " nats-server" if row["unit"] == "x" and REFERENCE in what else ""
            lines.append(f"| {label} | {show_value(row)}{beside} | {row['detail']} |")
    machine = document["machine"]
    when = f"{document['started'][:10]}, {machine['cores']} cores of {machine['processor']}"
    return "\n".join([f"{when}, nats-server {machine['nats_server']}:", "", *lines])


def comparison_chart(document: Json) -> str:
    """Return the chart of every ratio to nats-server in its default settings, worst first."""
    bars = [
        Bar(row["what"].removesuffix(REFERENCE).rstrip(",: "), _times_better(row))
        for row in document["rows"]
        if row["what"].endswith(REFERENCE)
    ]
    return bar_chart(
        "Beside nats-server",
        "Times better: rates as they are, times and memory turned round. Logarithmic, worst first.",
        sorted(bars, key=lambda bar: bar.factor),
        more_is_better=True,
    )


def growth_chart(document: Json) -> str:
    """Return the chart of costs with more work over costs with less, largest first."""
    bars = [
        Bar(_growth_label(row["what"]), 1 / _times_better(row))
        for row in document["rows"]
        if _GROWING.search(row["what"])
    ]
    return bar_chart(
        "What a message or an open costs when there is more of everything",
        "Cost with more over cost with less; 1x is a cost that does not grow. Logarithmic.",
        sorted(bars, key=lambda bar: -bar.factor),
        more_is_better=False,
    )


def _times_better(row: Json) -> float:
    return float(1 / row["value"] if less_is_better(row) else row["value"])


def _growth_label(what: str) -> str:
    what = re.sub(r", beside ([\d,]+) idle connections.*", r", beside \1 idle connections", what)
    return what.removesuffix(", of one subject").removesuffix(": of without")


def put_between_marks(path: Path, text: str) -> None:
    """Replace the text between the marks of a page; raise ValueError if it has no marks."""
    before, start, rest = path.read_text().partition(MARK_START)
    _, end, after = rest.partition(MARK_END)
    if not start or not end:
        raise ValueError(f"{path} has no {MARK_START} … {MARK_END}")
    path.write_text(f"{before}{start}\n{text}\n{end}{after}")


def write_pages(document: Json, root: Path = ROOT) -> None:
    """Write the page, its charts and README's figures below a project's root."""
    put_between_marks(root / "README.md", figures(document))
    put_between_marks(root / "docs" / "benchmarks.md", page(document))
    charts = root / "docs" / "charts"
    charts.mkdir(exist_ok=True)
    (charts / "nats-server.svg").write_text(comparison_chart(document))
    (charts / "growth.svg").write_text(growth_chart(document))


if __name__ == "__main__":
    write_pages(json.loads(LATEST.read_text()))
