"""Series of runs: in turns, of about the wanted length. Their crew keeps time by a model."""

from __future__ import annotations

import pytest

from penstock.bench.plan import Kind, Plan, Target
from penstock.bench.runs import LoadProcesses, Run, Series, Tell, in_turns, ratio, sized
from penstock.limits import BENCH_REQUESTS_MAX

HERE, THERE = Target("nats://here"), Target("nats://there")


class ModelCrew(LoadProcesses):
    """A crew without processes: every server has a rate, and a run some time to get going."""

    def __init__(self, rates: dict[Target, float], start_s: float = 0.0) -> None:
        super().__init__()
        self.visited: list[tuple[Target, int]] = []
        self._rates = rates
        self._start_s = start_s

    def run(self, plan: Plan, target: Target, tell: Tell | None = None) -> Run:
        self.visited.append((target, plan.messages))
        if tell is not None:
            tell(1, plan.counted)
            tell(plan.counted, plan.counted)
        seconds = self._start_s + plan.counted / self._rates[target]
        return Run(plan.counted, plan.counted * plan.size_bytes, seconds)


def test_servers_are_measured_in_turns() -> None:
    crew = ModelCrew({HERE: 10.0, THERE: 5.0})
    ours = Series("ours", HERE, Plan(Kind.PUB, 100, 16))
    theirs = Series("theirs", THERE, Plan(Kind.PUB, 50, 16))
    told: list[tuple[int, int]] = []

    in_turns(crew, [ours, theirs], 2, lambda done, total: told.append((done, total)))

    assert crew.visited == [(HERE, 100), (THERE, 50), (HERE, 100), (THERE, 50)]
    assert [done for done, _ in told] == [1, 100, 101, 150, 151, 250, 251, 300]
    assert {total for _, total in told} == {300}
    assert ratio(ours, theirs, lambda run: run.messages_per_second) == 2


def test_a_ratio_is_the_median_of_the_turns() -> None:
    ours, theirs = (Series("", HERE, Plan(Kind.PUB, 1, 16)) for _ in range(2))
    ours.runs = [Run(count, 0, 1.0) for count in (10, 30, 100)]
    theirs.runs = [Run(count, 0, 1.0) for count in (10, 10, 1000)]

    assert ratio(ours, theirs, lambda run: run.messages_per_second) == 1
    assert ours.median(lambda run: run.messages_per_second) == 30
    assert ours.best == 100


@pytest.mark.parametrize("rate", [1e3, 1e5, 1e8])
@pytest.mark.parametrize("kind", [Kind.PUB, Kind.FANOUT, Kind.REQREP])
def test_a_run_takes_about_as_long_as_wanted(kind: Kind, rate: float) -> None:
    crew = ModelCrew({HERE: rate}, start_s=0.001)
    plan = Plan(kind, 1, 16, subscribers=3)

    chosen = sized(crew, plan, HERE, 2.0)

    took_s = chosen.counted / rate
    if chosen.messages == BENCH_REQUESTS_MAX:
        assert kind is Kind.REQREP
        assert took_s <= 2
    else:
        assert took_s == pytest.approx(2, rel=0.05)
    assert chosen.kind is plan.kind


def test_there_is_a_message_for_every_publisher_however_slow_the_server() -> None:
    crew = ModelCrew({HERE: 0.001})

    assert sized(crew, Plan(Kind.PUB, 7, 16, publishers=7), HERE, 0.1).messages == 7
