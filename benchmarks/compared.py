"""Rows that compare our server with nats-server: a rate, and the processor time of the servers.

Runs take turns: ours, theirs, ours, theirs. The value of a row is the median of the turns' ratios.
Beside it stands the processor time that each server took for a message, all its threads together.
Load and servers share the machine's processors, so a rate may say more about the machine than about
the server; the processor time does not, and it is what a machine with more processors sees.

A goal that may be reached "either" way counts for the processor time only where our server waited,
which means that it used less than `WAITING_CORES` of one processor. It waits for the disk's sync,
which nats-server in its default settings does not wait for, or for the load.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.measure import Goal, ProcessorTime, Row, folder_in, si
from penstock.bench.plan import Plan, Target
from penstock.bench.runs import LoadProcesses, Run, Series, in_turns, sized
from penstock.bench.servers import (
    OURS,
    BenchServer,
    find_executable,
    processor_ns,
    processor_ns_since,
    with_jetstream,
)

REFERENCE = "nats-server"
WAITING_CORES = 0.9


class Measured(Protocol):
    """One server and what its runs measured, as `penstock.bench.runs.Series` has it."""

    name: str
    runs: list[Run]


@dataclass(slots=True)
class Runs:
    """Runs that a bench made itself, without a plan."""

    name: str
    runs: list[Run] = field(default_factory=list)


def rate(run: Run) -> float:
    """Return a run's messages per second."""
    return run.messages_per_second


def median_latency_us(run: Run) -> float:
    """Return the microseconds within which half of a run's requests were answered."""
    return run.latency_us(50)


def target_of(server: BenchServer) -> Target:
    """Return a server as a target whose processor time is measured."""
    return Target(server.url, pid=server.pid)


@contextlib.contextmanager
def servers_with_streams(folder: Path, name: str) -> Iterator[tuple[BenchServer, BenchServer]]:
    """Return our server and nats-server, both with JetStream in a new folder."""
    reference = [find_executable(REFERENCE)]
    with (
        folder_in(folder, name) as place,
        BenchServer("penstock", with_jetstream(OURS, place / "ours")) as ours,
        BenchServer(REFERENCE, with_jetstream(reference, place / "theirs")) as theirs,
    ):
        yield ours, theirs


def run_in_turns(
    load: LoadProcesses,
    plans: Sequence[tuple[BenchServer, Plan]],
    *,
    seconds: float,
    rounds: int,
) -> list[Series]:
    """Run plans in turns, each with as many messages as take about `seconds`."""
    measured = []
    for server, plan in plans:
        target = target_of(server)
        measured.append(Series(server.name, target, sized(load, plan, target, seconds)))
    in_turns(load, measured, rounds)
    return measured


def metered(server: BenchServer, action: Callable[[], int], *, message_bytes: int = 0) -> Run:
    """Call what returns a number of messages; return it as a run."""
    before_ns, started = processor_ns(server.pid), time.perf_counter()
    messages = action()
    seconds = time.perf_counter() - started
    used_ns = processor_ns_since(server.pid, before_ns)
    return Run(messages, messages * message_bytes, seconds, processor_ns=used_ns)


def processor_time(ours: Measured, theirs: Measured) -> ProcessorTime:
    """Return the processor time for a message on two servers whose runs took turns."""
    times = [(our.message_ns, their.message_ns) for our, their in _pairs(ours, theirs)]
    return ProcessorTime(
        statistics.median(our for our, _ in times),
        statistics.median(their for _, their in times),
        statistics.median(their / our for our, their in times),
    )


def compared_row(
    bench: str,
    what: str,
    ours: Measured,
    theirs: Measured,
    goal: Goal | None,
    *,
    measure: Callable[[Run], float] = rate,
    unit: str = "msg/s",
    either: bool = False,
) -> Row:
    """Return the row of two servers whose runs took turns; the unit is that of `measure`.

    With `either` the goal may be reached by the processor time, if our server waited.
    """
    cores = statistics.median(run.cores for run in ours.runs)
    shown = [_shown(statistics.median(map(measure, side.runs)), unit) for side in (ours, theirs)]
    waiting = f"; {cores:.2g} cores in use" if either else ""
    return Row(
        bench,
        f"{what}: of {theirs.name}",
        statistics.median(measure(our) / measure(their) for our, their in _pairs(ours, theirs)),
        "x",
        goal,
        f"{shown[0]}; {theirs.name} {shown[1]}{waiting}",
        {side.name: [measure(run) for run in side.runs] for side in (ours, theirs)},
        processor_time(ours, theirs),
        either=either and cores < WAITING_CORES,
    )


def _pairs(ours: Measured, theirs: Measured) -> Iterator[tuple[Run, Run]]:
    return zip(ours.runs, theirs.runs, strict=True)


def _shown(value: float, unit: str) -> str:
    return f"{value:.1f} µs" if unit == "µs" else si(value, unit)
