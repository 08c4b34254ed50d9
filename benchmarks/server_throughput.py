"""Messages through the server, in turns with nats-server, and beside a crowd of idle clients.

Three servers run all the time: Penstock, nats-server, and a second Penstock with the crowd: idle
connections and their subscriptions. The load comes from processes of `penstock.bench`.

One literal subject is the best case of a cache, so the main cases run over 10,000 subjects too,
with subscribers on a wildcard. Beside each rate stands the processor time of the server a message:
it shows the cost where the load or the second core limits the rate.

With the crowd and without are two runs of the same code, whose difference is smaller than what one
run differs from the next. So they are compared by many short turns.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.compared import (
    REFERENCE,
    compared_row,
    median_latency_us,
    rate,
    run_in_turns,
)
from benchmarks.measure import Goal, Row, Sizes, at_least, at_most, show_time, si
from penstock.bench.plan import Kind, Plan, Target
from penstock.bench.runs import LoadProcesses, Run, Series, in_turns, ratio, sized
from penstock.bench.servers import OURS, BenchServer, find_executable
from penstock.client.client import Client

ROUNDS_MAX = 3
KEPT_BESIDE_CROWD = 0.85
"""What a rate must keep of itself beside the crowd."""

CROWD_TURNS = 3
"""So many turns beside the crowd for each round of other benches."""

CROWD_SECONDS_PART = 0.2
"""The length of such a turn, as a part of a run beside nats-server."""

MANY_SUBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and how it must compare with nats-server."""

    what: str
    plan: Plan
    goal: Goal
    measure: Callable[[Run], float] = rate
    unit: str = "msg/s"

    @property
    def crowd_goal(self) -> Goal:
        """How it must compare with itself without the crowd."""
        return at_least(KEPT_BESIDE_CROWD) if self.unit == "msg/s" else at_most(1.15)

    def over_many_subjects(self) -> Case:
        """Return the same case over many subjects, with the same goal."""
        plan = msgspec.structs.replace(self.plan, spread=MANY_SUBJECTS)
        return replace(self, what=f"{self.what}, {MANY_SUBJECTS:,} subjects", plan=plan)


def _plan(
    kind: Kind, size: int, publishers: int = 1, subscribers: int = 1, flying: int = 1
) -> Plan:
    return Plan(kind, publishers, size, publishers, subscribers, flying)


CASES = [
    Case("publish 16 B", _plan(Kind.PUB, 16), at_least(3)),
    Case("publish 128 B", _plan(Kind.PUB, 128), at_least(3)),
    Case("1:1 at 16 B", _plan(Kind.PUBSUB, 16), at_least(3)),
    Case("1:1 at 128 B", _plan(Kind.PUBSUB, 128), at_least(3)),
    Case("1:1 at 1 KB", _plan(Kind.PUBSUB, 1024), at_least(1)),
    Case("fan-out 1:5 at 128 B", _plan(Kind.FANOUT, 128, 1, 5), at_least(2.5)),
    Case("4:4 at 128 B", _plan(Kind.PUBSUB, 128, 4, 4), at_least(2.5)),
    Case("queue group of 4 at 128 B", _plan(Kind.QUEUE, 128, 1, 4), at_least(2.5)),
    Case("requests, 100 in flight", _plan(Kind.REQREP, 128, flying=100), at_least(1.5)),
    Case(
        "requests, one in flight: p50",
        _plan(Kind.REQREP, 128),
        at_most(1),
        median_latency_us,
        "µs",
    ),
]

SPREAD_CASES = [
    case
    for case in CASES
    if case.what
    in ("publish 128 B", "1:1 at 128 B", "fan-out 1:5 at 128 B", "queue group of 4 at 128 B")
]
"""Those that are measured over many subjects as well."""


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure every case beside nats-server, beside the crowd, and some over many subjects."""
    with contextlib.ExitStack() as stack:
        ours, theirs, crowded = [
            stack.enter_context(BenchServer(name, command))
            for name, command in (
                ("penstock", OURS),
                (REFERENCE, [find_executable(REFERENCE)]),
                ("crowded", OURS),
            )
        ]
        crowd = stack.enter_context(_crowd(crowded.url, sizes))
        load = stack.enter_context(LoadProcesses())
        rows: list[Row] = []
        for case in CASES:
            compared = [(server, case.plan) for server in (ours, theirs)]
            rows.append(_compared_row(case, *_in_turns(load, compared, sizes)))
            rows.append(_crowd_row(case, *_beside_crowd(load, case, ours, crowded, sizes), sizes))
            # A client that does not answer the server's pings is cut off after some minutes.
            for client in crowd:
                client.flush()
        for case in SPREAD_CASES:
            many = case.over_many_subjects()
            plans = [(ours, many.plan), (theirs, many.plan), (ours, case.plan)]
            our_many, their_many, our_one = _in_turns(load, plans, sizes)
            rows.append(_compared_row(many, our_many, their_many))
            rows.append(_subjects_row(many, our_many, our_one, their_many))
        return rows


@contextlib.contextmanager
def _crowd(url: str, sizes: Sizes) -> Iterator[list[Client]]:
    """Return idle connections with their subscriptions, every tenth of them a wildcard."""
    each = sizes.idle_subscriptions // sizes.idle_connections
    with contextlib.ExitStack() as stack:
        clients = []
        for place in range(sizes.idle_connections):
            client = stack.enter_context(Client.connect(url))
            for number in range(each):
                wildcard = b"" if number % 10 else b".*"
                client.subscribe(b"idle.%d.%d%b" % (place, number, wildcard))
            client.flush()
            clients.append(client)
        yield clients


def _in_turns(
    load: LoadProcesses, plans: list[tuple[BenchServer, Plan]], sizes: Sizes
) -> list[Series]:
    rounds = min(sizes.rounds, ROUNDS_MAX)
    return run_in_turns(load, plans, seconds=sizes.server_seconds, rounds=rounds)


def _beside_crowd(
    load: LoadProcesses, case: Case, ours: BenchServer, crowded: BenchServer, sizes: Sizes
) -> tuple[Series, Series]:
    alone = Target(ours.url)
    plan = sized(load, case.plan, alone, sizes.server_seconds * CROWD_SECONDS_PART)
    beside = (Series("alone", alone, plan), Series("crowded", Target(crowded.url), plan))
    in_turns(load, beside, sizes.rounds * CROWD_TURNS)
    return beside


def _compared_row(case: Case, ours: Series, theirs: Series) -> Row:
    return compared_row(
        "server", case.what, ours, theirs, case.goal, measure=case.measure, unit=case.unit
    )


def _crowd_row(case: Case, alone: Series, crowded: Series, sizes: Sizes) -> Row:
    return Row(
        "server",
        f"{case.what}, beside {sizes.idle_connections:,} idle connections with"
        f" {sizes.idle_subscriptions:,} subscriptions: of without",
        ratio(crowded, alone, case.measure),
        "x",
        case.crowd_goal,
        f"{_median(case, crowded)}; without {_median(case, alone)}",
        {series.name: [case.measure(run) for run in series.runs] for series in (crowded, alone)},
    )


def _subjects_row(case: Case, many: Series, one: Series, theirs: Series) -> Row:
    times = {"many": many.runs, "one": one.runs, REFERENCE: theirs.runs}
    message_ns = {name: [run.message_ns for run in runs] for name, runs in times.items()}
    many_ns, one_ns, their_ns = (statistics.median(each) for each in message_ns.values())
    return Row(
        "server",
        f"{case.what}: processor time a message, of one subject",
        ratio(many, one, lambda run: run.message_ns),
        "x",
        None,
        f"{show_time(many_ns)}, with one subject {show_time(one_ns)};"
        f" {REFERENCE} {show_time(their_ns)}",
        {name: message_ns[name] for name in ("many", "one")},
    )


def _median(case: Case, series: Series) -> str:
    value = series.median(case.measure)
    return f"{value:.1f} µs" if case.unit == "µs" else si(value, case.unit)
