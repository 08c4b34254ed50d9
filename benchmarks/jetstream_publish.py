"""Publishing to streams and getting from them, in turns with nats-server.

Penstock syncs before it acknowledges. nats-server runs twice: with its default, which syncs every
two minutes, and with `sync_interval: always`, which makes the same promise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
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
from benchmarks.measure import Goal, Row, Sizes, at_least, at_most, folder_in
from penstock.bench.plan import Kind, Plan, Storage
from penstock.bench.runs import LoadProcesses, Run
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream

ROUNDS_MAX = 3
SYNCED = f"{REFERENCE} synced"
PAYLOAD_BYTES = 128


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and how it must compare with which server."""

    what: str
    plan: Plan
    goals: dict[str, Goal]
    measure: Callable[[Run], float] = rate
    unit: str = "msg/s"
    times_longer: int = 1
    """Where every stream's first commit, which begins its file, would weigh too much."""


def _publish(flying: int, publishers: int = 1, storage: Storage = Storage.FILE) -> Plan:
    return Plan(
        Kind.JSPUB,
        publishers,
        PAYLOAD_BYTES,
        publishers,
        in_flight=flying,
        streams=publishers,
        storage=storage,
    )


CASES = [
    Case(
        "publish, 1,000 in flight", _publish(1_000), {REFERENCE: at_least(2), SYNCED: at_least(50)}
    ),
    Case(
        "publish, 10,000 in flight",
        _publish(10_000),
        {REFERENCE: at_least(2), SYNCED: at_least(50)},
    ),
    Case(
        "publish, one in flight: p50",
        _publish(1),
        {SYNCED: at_most(1.1)},
        median_latency_us,
        "µs",
    ),
    Case(
        "publish to memory, 1,000 in flight",
        _publish(1_000, storage=Storage.MEMORY),
        {REFERENCE: at_least(3)},
    ),
    Case(
        "64 publishers on 64 streams, 100 in flight each",
        _publish(100, publishers=64),
        {SYNCED: at_least(20)},
        times_longer=3,
    ),
]
GET = Case(
    "direct get by subject, 100 in flight",
    Plan(Kind.JSGET, 1, PAYLOAD_BYTES, in_flight=100),
    {REFERENCE: at_least(2)},
)


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    reference = [find_executable(REFERENCE)]
    subjects = sizes.gotten_subjects
    getting = replace(
        GET,
        what=f"{GET.what}, of {subjects:,}",
        plan=msgspec.structs.replace(GET.plan, spread=subjects),
    )
    with folder_in(folder, "jetstream") as place, contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(BenchServer(name, command))
            for name, command in (
                ("penstock", with_jetstream(OURS, place / "ours")),
                (REFERENCE, with_jetstream(reference, place / "theirs")),
                (SYNCED, with_jetstream(reference, place / "synced", sync="always")),
            )
        }
        crew = stack.enter_context(LoadProcesses())
        return [row for case in (*CASES, getting) for row in _rows(crew, case, servers, sizes)]


def _rows(
    crew: LoadProcesses, case: Case, servers: dict[str, BenchServer], sizes: Sizes
) -> list[Row]:
    ours, *others = run_in_turns(
        crew,
        [(servers[name], case.plan) for name in ("penstock", *case.goals)],
        seconds=sizes.server_seconds * case.times_longer,
        rounds=min(sizes.rounds, ROUNDS_MAX),
    )
    return [
        compared_row(
            "jetstream",
            case.what,
            ours,
            theirs,
            case.goals[theirs.name],
            measure=case.measure,
            unit=case.unit,
        )
        for theirs in others
    ]
