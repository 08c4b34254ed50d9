"""Messages through the server, in turns with nats-server and with a crowd of idle clients.

Three servers run all the time: ours, nats-server, and ours once more with the crowd: connections
that do nothing, and their subscriptions. The load comes from processes of `penstock.bench`.

With the crowd and without are two runs of the same code, whose difference is smaller than what one
run differs from the next: they are compared by many short turns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Goal, Row, Sizes, at_least, at_most, si
from penstock.bench.crew import Crew, Run
from penstock.bench.plan import Kind, Plan, Target
from penstock.bench.series import Series, in_turns, ratio, sized
from penstock.bench.servers import OURS, BenchServer, find_executable
from penstock.client.client import Client

ROUNDS_MAX = 3
KEPT_BESIDE_CROWD = 0.85
"""What a rate must keep of itself beside the crowd."""

CROWD_TURNS = 3
"""So many turns beside the crowd for each round of other benches."""

CROWD_SECONDS_PART = 0.2
"""The length of such a turn, as a part of a run beside nats-server."""

REFERENCE = "nats-server"


def _rate(run: Run) -> float:
    return run.messages_per_second


def _median_latency_us(run: Run) -> float:
    return run.latency_us(50)


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and how it must compare with nats-server."""

    what: str
    plan: Plan
    goal: Goal
    measure: Callable[[Run], float] = _rate
    unit: str = "msg/s"

    @property
    def crowd_goal(self) -> Goal:
        """How it must compare with itself without the crowd."""
        return at_least(KEPT_BESIDE_CROWD) if self.unit == "msg/s" else at_most(1.15)


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
        _median_latency_us,
        "µs",
    ),
]


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure."""
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(BenchServer(name, command))
            for name, command in (
                ("penstock", OURS),
                (REFERENCE, [find_executable(REFERENCE)]),
                ("crowded", OURS),
            )
        ]
        crowd = stack.enter_context(_crowd(servers[2].url, sizes))
        crew = stack.enter_context(Crew())
        rows: list[Row] = []
        for case in CASES:
            rows += _rows(case, _measured(crew, case, servers, sizes), sizes)
            # Whoever does not answer the server's pings would be cut off after some minutes.
            for client in crowd:
                client.flush()
        return rows


@contextlib.contextmanager
def _crowd(url: str, sizes: Sizes) -> Iterator[list[Client]]:
    """Give idle connections with their subscriptions, every tenth of them a wildcard."""
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


def _measured(crew: Crew, case: Case, servers: list[BenchServer], sizes: Sizes) -> list[Series]:
    targets = [Target(server.url) for server in servers]
    seconds = sizes.server_seconds
    compared = [
        Series(server.name, target, sized(crew, case.plan, target, seconds))
        for server, target in zip(servers[:2], targets[:2], strict=True)
    ]
    in_turns(crew, compared, min(sizes.rounds, ROUNDS_MAX))
    plan = sized(crew, case.plan, targets[0], seconds * CROWD_SECONDS_PART)
    beside = [Series("alone", targets[0], plan), Series(servers[2].name, targets[2], plan)]
    in_turns(crew, beside, sizes.rounds * CROWD_TURNS)
    return [*compared, *beside]


def _rows(case: Case, measured: list[Series], sizes: Sizes) -> list[Row]:
    ours, theirs, alone, crowded = measured
    medians = [_shown(series.median(case.measure), case.unit) for series in measured]
    samples = {series.name: [case.measure(run) for run in series.runs] for series in measured}
    return [
        Row(
            "server",
            f"{case.what}: of {REFERENCE}",
            ratio(ours, theirs, case.measure),
            "x",
            case.goal,
            f"{medians[0]}; {REFERENCE} {medians[1]}",
            {name: samples[name] for name in (ours.name, theirs.name)},
        ),
        Row(
            "server",
            f"{case.what}, beside {sizes.idle_connections:,} idle connections with"
            f" {sizes.idle_subscriptions:,} subscriptions: of without",
            ratio(crowded, alone, case.measure),
            "x",
            case.crowd_goal,
            f"{medians[3]}; without {medians[2]}",
            {name: samples[name] for name in (crowded.name, alone.name)},
        ),
    ]


def _shown(value: float, unit: str) -> str:
    return f"{value:.1f} µs" if unit == "µs" else si(value, unit)
