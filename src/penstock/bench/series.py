"""Several runs of one plan, on one server or on several in turns.

What is compared is run in turns (A, B, A, B, …), so that a machine that slows down meanwhile slows
down both. Every server gets its own number of messages where none was asked for: as many as take
about the wanted time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from penstock.bench.crew import Crew, Run, Tell
from penstock.bench.plan import ANSWERED, CONSUMED, Plan, Target
from penstock.limits import BENCH_REQUESTS_MAX

FIRST_REQUESTS = 2_000
"""What the first try of requests takes, to find out how many are wanted."""

TRUSTED_PART = 0.2
"""A try that took this part of the wanted time tells the rate well enough."""

GROWTH_MAX = 20
"""A try is at most so many times as long as the one before: its rate may have been a hiccup."""


@dataclass(slots=True)
class Series:
    """One server and what its runs measured."""

    name: str
    target: Target
    plan: Plan
    runs: list[Run] = field(default_factory=list)

    def median(self, of: Callable[[Run], float]) -> float:
        """Give the median of a measure over the runs."""
        return statistics.median(of(run) for run in self.runs)

    @property
    def best(self) -> float:
        """The highest rate, in messages per second."""
        return max(run.messages_per_second for run in self.runs)


def sized(crew: Crew, plan: Plan, target: Target, seconds: float) -> Plan:
    """Give the plan with as many messages as take about so long on this server."""
    least, most = _least(plan), _most(plan)
    count = FIRST_REQUESTS if plan.kind in ANSWERED else plan.ahead
    while True:
        count = min(max(count, least), most)
        tried = crew.run(with_messages(plan, count), target)
        growth = seconds / tried.seconds
        if tried.seconds >= TRUSTED_PART * seconds or count >= most:
            return with_messages(plan, min(max(int(count * growth), least), most))
        count = int(count * min(growth * TRUSTED_PART * 2, GROWTH_MAX)) + 1


def _least(plan: Plan) -> int:
    # So many that all that may be in flight are, for half of the time.
    if plan.kind in CONSUMED:
        return min(2 * plan.subscribers * plan.in_flight * plan.batch, plan.consumed_max)
    return plan.publishers * (2 * plan.in_flight if plan.kind in ANSWERED else 1)


def _most(plan: Plan) -> int:
    if plan.kind in CONSUMED:
        return plan.consumed_max
    return BENCH_REQUESTS_MAX if plan.kind in ANSWERED else 10**12


def with_messages(plan: Plan, messages: int) -> Plan:
    """Give the plan with another number of messages."""
    return msgspec.structs.replace(plan, messages=messages)


def in_turns(crew: Crew, all_series: Sequence[Series], runs: int, tell: Tell | None = None) -> None:
    """Run every series so many times, one after the other."""
    total = runs * sum(series.plan.counted for series in all_series)
    before = 0
    for _ in range(runs):
        for series in all_series:
            report = None if tell is None else partial(_tell_sum, tell, before, total)
            series.runs.append(crew.run(series.plan, series.target, report))
            before += series.plan.counted


def _tell_sum(tell: Tell, before: int, total: int, done: int, _of_run: int) -> None:
    tell(before + done, total)


def ratio(ours: Series, theirs: Series, of: Callable[[Run], float]) -> float:
    """Give the median of the turns' ratios of a measure."""
    return statistics.median(
        of(our) / of(their) for our, their in zip(ours.runs, theirs.runs, strict=True)
    )
