"""Run a bench on the requested servers and print the results: one line for each server.

With `--compare` both servers are started here and measured in turns; otherwise the bench runs on
the server that the options name.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from penstock.bench.plan import ANSWERED, CONSUMED, STREAMED, Kind, Plan, Target
from penstock.bench.runs import LoadProcesses, Run, Series, in_turns, ratio, sized
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream
from penstock.cli.arguments import ConnectionOptions
from penstock.cli.output import Column, Output, count, make_output, progress
from penstock.client.credentials import parse_url

SUMMARY_PERCENTS = (50, 90, 99)


def _rate(value: object) -> str:
    assert isinstance(value, float)
    return f"{value:,.0f}"


def _tenths(value: object) -> str:
    assert isinstance(value, float)
    return f"{value:,.1f}"


def _times(value: object) -> str:
    assert isinstance(value, float)
    return f"{value:.2f}x"


_FACTS = [
    Column("size_bytes", "payload bytes", count),
    Column("publishers", "publishers", count),
    Column("subscribers", "subscribers", count),
    Column("in_flight", "in flight", count),
    Column("streams", "streams", count),
    Column("storage", "storage"),
    Column("subjects", "subjects", count),
    Column("stored", "messages stored", count),
    Column("one_in", "a filter passes one in", count),
    Column("batch", "batch", count),
    Column("ack", "acks"),
    Column("runs", "runs, in turns", count),
]
_SPEED = [
    Column("server", "server"),
    Column("messages", "messages a run", count, right=True),
    Column("messages_per_second", "msgs/s", _rate, right=True),
    Column("messages_per_second_best", "best", _rate, right=True),
    Column("megabytes_per_second", "MB/s", _tenths, right=True),
]
_LATENCY = [
    Column(f"latency_p{percent}_us", f"p{percent} µs", _tenths, right=True)
    for percent in SUMMARY_PERCENTS
]
_RATIO = Column("ratio", "ratio", _times, right=True)
_LATENCY_RATIO = Column("latency_p50_ratio", "p50 ratio", _times, right=True)


def tell_measured(output: Output, plan: Plan, measured: list[Series]) -> None:
    """Print what was run, and how each server did."""
    has_latency, is_compared = plan.kind in ANSWERED, len(measured) > 1
    is_consumed, is_pulled = plan.kind in CONSUMED, plan.kind is Kind.JSFETCH
    facts = {
        "bench": str(plan.kind),
        "subject": plan.subject,
        "size_bytes": plan.size_bytes,
        "publishers": 0 if is_consumed or plan.kind is Kind.SUB else plan.publishers,
        "subscribers": plan.subscribers if is_consumed or plan.has_listeners else 0,
        "in_flight": plan.in_flight if has_latency or is_pulled else None,
        "streams": plan.streams if plan.kind in STREAMED else None,
        "storage": str(plan.storage) if plan.kind in STREAMED else None,
        "subjects": plan.spread or None,
        "stored": plan.stored if is_consumed else None,
        "one_in": plan.one_in if plan.one_in > 1 else None,
        "batch": plan.batch if is_pulled else None,
        "ack": str(plan.ack) if is_consumed else None,
        "runs": len(measured[0].runs),
    }
    output.facts(facts, [column for column in _FACTS if facts[column.name]])
    rows = [_row(series, measured) for series in measured]
    columns = [*_SPEED, *(_LATENCY if has_latency else [])]
    if is_compared:
        columns += [_RATIO, *([_LATENCY_RATIO] if has_latency else [])]
    output.rows("servers", columns, rows)


def _row(series: Series, measured: list[Series]) -> dict[str, object]:
    # The first server is compared with the second.
    ours = series if series is measured[0] and len(measured) > 1 else None
    has_latency = series.plan.kind in ANSWERED
    row: dict[str, object] = {
        "server": series.name,
        "messages": series.plan.messages,
        "messages_per_second": series.median(lambda run: run.messages_per_second),
        "messages_per_second_best": series.best,
        "megabytes_per_second": series.median(lambda run: run.megabytes_per_second),
        "seconds": [run.seconds for run in series.runs],
        "ratio": ours and ratio(ours, measured[1], lambda run: run.messages_per_second),
    }
    if has_latency:
        for percent in SUMMARY_PERCENTS:
            row[f"latency_p{percent}_us"] = series.median(partial(_latency, percent))
        row["latency_p50_ratio"] = ours and ratio(ours, measured[1], partial(_latency, 50))
    return row


def _latency(percent: int, run: Run) -> float:
    return run.latency_us(percent)


class SyncMode(StrEnum):
    """When a compared server syncs what it acknowledges."""

    DEFAULT = "default"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a plan is run and its results are printed."""

    connection: ConnectionOptions
    messages: int | None
    seconds: float
    runs: int
    compare: str | None
    as_json: bool
    sync: SyncMode = SyncMode.DEFAULT
    data: Path | None = None


def measure(plan: Plan, wanted: RunOptions) -> None:
    """Run a bench and print its results; raise UsageError and BenchFailed."""
    plan.check()
    output = make_output(as_json=wanted.as_json)
    shown = contextlib.nullcontext() if wanted.as_json else progress(plan.kind)
    with _servers(plan, wanted) as servers, LoadProcesses() as crew, shown as tell:
        measured = [
            Series(
                name,
                target,
                plan if wanted.messages else sized(crew, plan, target, wanted.seconds),
            )
            for name, target in servers
        ]
        in_turns(crew, measured, wanted.runs, tell)
    tell_measured(output, plan, measured)
    output.finish()


@contextlib.contextmanager
def _servers(plan: Plan, wanted: RunOptions) -> Iterator[list[tuple[str, Target]]]:
    # Names and addresses of the servers to measure; those that are compared run meanwhile.
    if wanted.compare is None:
        connection = wanted.connection
        address = parse_url(connection.server)
        # A first connection, so that a failure is reported once, with advice.
        connection.connect().close()
        yield [
            (str(address), Target(connection.server, connection.credentials(), connection.tls()))
        ]
        return
    commands = [("penstock", [*OURS]), (wanted.compare, [find_executable(wanted.compare)])]
    with contextlib.ExitStack() as stack:
        if plan.kind in STREAMED:
            folder = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=wanted.data or ".")
            commands = _with_streams(commands, Path(stack.enter_context(folder)), wanted.sync)
        servers = [stack.enter_context(BenchServer(*each)) for each in commands]
        yield [(server.name, Target(server.url)) for server in servers]


def _with_streams(
    commands: list[tuple[str, list[str]]], folder: Path, sync: SyncMode
) -> list[tuple[str, list[str]]]:
    # Penstock syncs before it acknowledges by default.
    (our_name, ours), (their_name, theirs) = commands
    their_sync = "always" if sync is SyncMode.ALWAYS else ""
    return [
        (our_name, with_jetstream(ours, folder / "ours")),
        (their_name, with_jetstream(theirs, folder / "theirs", sync=their_sync)),
    ]
