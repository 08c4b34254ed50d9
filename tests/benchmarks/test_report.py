"""The pages of the benchmarks: made from one results file, worst row first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report, run
from benchmarks.measure import ROOT, Goal, ProcessorTime, Row, at_least, at_most

MACHINE = {
    "cores": 2,
    "processor": "a processor",
    "kernel": "6.0",
    "disk": "a disk",
    "python": "3.11",
    "sqlite": "3.40",
    "nats_server": "2.15",
}
MEASURED_SINCE: set[str] = set()
"""Figures that the stored results may lack, since the benchmark is younger than they are."""


def document(*rows: Row) -> dict[str, Any]:
    return {
        "started": "2026-01-02T03:04:05+00:00",
        "sizes": "full",
        "machine": MACHINE,
        "rows": [row.as_json() for row in rows],
    }


APPEND = Row("append", "append", 0.512, "x", at_least(0.5), "as told")
OPEN = Row("open", "open", 2.0, "s", at_most(1))
RATE = Row("server", "1:1 at 128 B: of nats-server", 4.0, "x", at_least(3), "4 of 1")
SLOWER = Row("server", "pulls: p99, of nats-server", 2.0, "x")
GROWN = Row("open", "open: time, 10 M messages over 1 M", 3.0, "x", at_most(1.2))
CROWDED = Row("server", "1:1, beside 9 idle connections: of without", 0.8, "x", at_least(0.85))
SCAN = Row("scan", "scan, of xxhash over the files", 0.5, "x")
WHOLE = document(APPEND, OPEN, RATE, SLOWER, GROWN, CROWDED, SCAN)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/benchmarks.md"):
        text = f"before\n{report.MARK_START}\nof yesterday\n{report.MARK_END}\nafter\n"
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["README.md", "docs/benchmarks.md"])
def test_a_page_keeps_what_stands_outside_the_marks(project: Path, name: str) -> None:
    report.write_pages(WHOLE, project)

    text = (project / name).read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "yesterday" not in text
    assert "2026-01-02" in text


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("words\n")

    with pytest.raises(ValueError, match="has no"):
        report.put_between_marks(readme, "table")

    assert readme.read_text() == "words\n"


def test_a_row_tells_value_goal_and_outcome() -> None:
    page = report.page(WHOLE)

    assert "| append | 0.51x |  | ≥ 0.5 pass | as told |" in page
    assert "| open | 2 s |  | ≤ 1 MISSED |  |" in page


@pytest.mark.parametrize(
    ("value", "less", "either", "shown"),
    [
        (2.5, 1.0, False, "| 2.50x | 1.00x (900 ns, 12 µs) | ≥ 2 pass |"),
        (1.5, 3.0, False, "| 1.50x | 3.00x (900 ns, 12 µs) | ≥ 2 MISSED |"),
        (1.5, 3.0, True, "| 1.50x | 3.00x (900 ns, 12 µs) | either ≥ 2 pass |"),
        (2.5, 1.0, True, "| 2.50x | 1.00x (900 ns, 12 µs) | either ≥ 2 pass |"),
        (1.5, 1.9, True, "| 1.50x | 1.90x (900 ns, 12 µs) | either ≥ 2 MISSED |"),
    ],
)
def test_processor_time_counts_for_a_goal_that_either_may_reach(
    value: float, less: float, either: bool, shown: str
) -> None:
    processor = ProcessorTime(900.0, 12_000.0, less)
    row = Row("server", "w", value, "x", at_least(2), processor=processor, either=either)

    assert shown in report.page(document(row))
    assert report.margin(row.as_json()) == max(value, less if either else 0) / 2


@pytest.mark.parametrize(
    ("value", "unit", "goal", "margin"),
    [
        (6.0, "x", at_least(3), 2.0),
        (2.0, "s", at_most(1), 0.5),
        (-0.1, "%", at_most(1), float("inf")),
        (0.25, "x", None, 0.25),
        (7.0, "rows/s", None, float("inf")),
    ],
)
def test_a_margin_is_the_factor_within_the_goal(
    value: float, unit: str, goal: Goal | None, margin: float
) -> None:
    assert report.margin(Row("append", "speed", value, unit, goal).as_json()) == margin


def test_a_time_without_a_goal_is_worse_the_larger_it_is() -> None:
    assert report.margin(SLOWER.as_json()) == 0.5


def rows_of(page: str) -> list[str]:
    """Return the names of all rows of a page, in their order."""
    lines = [line for line in page.splitlines() if line.startswith("| ") and "what" not in line]
    return [line.split(" | ")[0].removeprefix("| ") for line in lines]


def test_the_worst_row_of_a_section_stands_first() -> None:
    page = report.page(document(RATE, CROWDED, SLOWER, GROWN))

    sections = page[page.index("## The store") :]
    assert rows_of(sections) == [row.what for row in (GROWN, CROWDED, SLOWER, RATE)]


def test_the_page_begins_with_the_worst_rows_that_have_goals() -> None:
    page = report.page(document(RATE, CROWDED, SLOWER, GROWN))

    head = page[: page.index("## The store")]
    assert rows_of(head) == [row.what for row in (GROWN, CROWDED, RATE)]
    assert "2 of 3 goals are missed." in head


def test_the_head_of_the_page_shows_every_missed_goal_and_few_others() -> None:
    missed = [Row("open", f"open {number}", 2.0, "s", at_most(1)) for number in range(12)]
    reached = [Row("open", f"close {number}", 0.5, "s", at_most(1)) for number in range(12)]

    assert rows_of(report.worst(document(*missed, *reached)["rows"])) == [r.what for r in missed]
    assert len(rows_of(report.worst(document(*reached)["rows"]))) == report.WORST_ROWS


def test_every_benchmark_has_its_section() -> None:
    shown = [bench for benches in report.SECTIONS.values() for bench in benches]

    assert sorted(shown) == sorted(run.BENCHES)


def test_the_comparison_chart_turns_times_round_and_begins_with_the_worst() -> None:
    chart = report.comparison_chart(WHOLE)

    assert chart.index(">0.50x<") < chart.index(">4.00x<")
    assert "open" not in chart


def test_the_growth_chart_shows_costs_and_begins_with_the_largest() -> None:
    chart = report.growth_chart(WHOLE)

    assert chart.index(">3.00x<") < chart.index(">1.25x<")
    assert "nats-server" not in chart
    assert "xxhash" not in chart


def test_there_are_twelve_figures_and_each_is_measured() -> None:
    measured = {row["what"] for row in json.loads(report.LATEST.read_text())["rows"]}

    assert len(report.FIGURES) == 12
    assert set(report.FIGURES) - measured <= MEASURED_SINCE


def test_a_figure_names_what_it_is_compared_with() -> None:
    figures = report.figures(WHOLE)

    assert "| messages from one client to another | 4.00x nats-server | 4 of 1 |" in figures


def test_the_pages_of_the_project_are_those_of_its_latest_results(tmp_path: Path) -> None:
    names = ["README.md", "docs/benchmarks.md"]
    charts = ["docs/charts/nats-server.svg", "docs/charts/growth.svg"]
    (tmp_path / "docs").mkdir()
    for name in names:
        (tmp_path / name).write_text((ROOT / name).read_text())

    report.write_pages(json.loads(report.LATEST.read_text()), tmp_path)

    for name in names + charts:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), name
