"""Every benchmark runs at a tiny size, and what it writes can be read.

Numbers are not judged here: they depend on the machine.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks import nats_bench, run
from benchmarks.measure import Row, at_least, at_most, percentile, ratio, take_turns

pytestmark = pytest.mark.exhaustive

ROW = {
    "bench": str,
    "what": str,
    "value": float,
    "unit": str,
    "detail": str,
    "samples": dict,
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", run.BENCHES)
def test_a_benchmark_writes_rows_of_the_documented_shape(name: str, tmp_path: Path) -> None:
    if name == "nats-bench" and not nats_bench.TOOL.exists():
        pytest.skip("the nats tool is not built: tools/install_nats_tool.sh")
    results = tmp_path / "results.json"

    run.main(["--size", "tiny", "--only", name, "--json", str(results), "--data", str(tmp_path)])

    document = json.loads(results.read_text())
    assert document["sizes"] == "tiny"
    assert {"processor", "cores", "kernel", "disk"} <= document["machine"].keys()
    assert document["rows"]
    for row in document["rows"]:
        assert {key: type(row[key]) for key in ROW} == ROW, row
        assert row["bench"] == name
        assert math.isfinite(row["value"])
        assert (row["goal"] is None) == (row["passed"] is None)


@pytest.mark.slow
def test_a_benchmark_leaves_nothing_but_its_results(tmp_path: Path) -> None:
    results = tmp_path / "results.json"

    run.main(
        ["--size", "tiny", "--only", "append", "--json", str(results), "--data", str(tmp_path)]
    )

    assert list(tmp_path.iterdir()) == [results]


def test_a_goal_says_whether_a_value_keeps_it() -> None:
    assert [at_least(2).holds(value) for value in (1.9, 2, 2.1)] == [False, True, True]
    assert [at_most(2).holds(value) for value in (1.9, 2, 2.1)] == [True, True, False]
    assert Row("append", "speed", 1.0, "x").passed is None


def test_what_is_compared_takes_turns() -> None:
    calls: list[str] = []

    def call(name: str) -> float:
        calls.append(name)
        return len(calls)

    results = take_turns(2, lambda: call("ours"), lambda: call("theirs"))

    assert calls == ["ours", "theirs", "ours", "theirs"]
    assert results == [[1, 3], [2, 4]]


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert ratio([10, 30, 100], [10, 10, 1000]) == 1


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([5, 1, 4, 2, 3], 50) == 3
    assert percentile([5, 1, 4, 2, 3], 99) == 5
