"""`penstock bench`: how fast a NATS server is, or two of them side by side.

Arguments and tables only; `penstock.bench` measures.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.bench.crew import Crew, Run
from penstock.bench.plan import ANSWERED, STREAMED, Kind, Plan, Storage, Target
from penstock.bench.series import Series, in_turns, ratio, sized
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream
from penstock.cli.arguments import AsJson
from penstock.cli.connecting import Link, with_server
from penstock.cli.output import Column, Output, count, make_output, progress
from penstock.client.address import parse_url

SUB_MESSAGES_DEFAULT = 1_000_000
SUMMARY_PERCENTS = (50, 90, 99)


class SyncWish(StrEnum):
    """When a compared server syncs what it acknowledged."""

    DEFAULT = "default"
    ALWAYS = "always"


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure a NATS server, or compare ours with another.",
)

Messages = Annotated[
    int | None,
    typer.Option(
        "--msgs", metavar="N", min=1, help="Messages published in all (as many as take --seconds)."
    ),
]
Seconds = Annotated[
    float, typer.Option(min=0.01, help="How long a run takes, where --msgs is not given.")
]
Size = Annotated[int, typer.Option("--size", metavar="BYTES", help="Bytes of a payload.")]
Subject = Annotated[str, typer.Option(help="The subject.")]
Runs = Annotated[int, typer.Option(min=1, max=1000, help="Runs; the median counts.")]
Compare = Annotated[
    str | None,
    typer.Option(
        metavar="EXECUTABLE",
        help="Start this server (nats-server) and ours, and measure both in turns.",
    ),
]
Publishers = Annotated[int, typer.Option(help="Who publish, a process each.")]
Subscribers = Annotated[int, typer.Option(help="Who subscribe, a process each.")]
Clients = Annotated[int, typer.Option("--clients", help="Connections, a process each.")]
InFlight = Annotated[
    int, typer.Option("--in-flight", help="Requests of a client that wait at a time.")
]


StorageKind = Annotated[Storage, typer.Option("--storage", help="Where the streams are kept.")]
Sync = Annotated[
    SyncWish, typer.Option("--sync", help="When the compared server syncs; ours always does.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Where compared servers keep their streams for as long (here).",
        exists=True,
        file_okay=False,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a plan is to be run and told."""

    link: Link
    messages: int | None
    seconds: float
    runs: int
    compare: str | None
    as_json: bool
    sync: SyncWish = SyncWish.DEFAULT
    data: Path | None = None


@app.command()
@with_server
def pub(
    link: Link,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    clients: Clients = 1,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Publish to nobody."""
    plan = Plan(Kind.PUB, messages or clients, size, publishers=clients, subject=subject)
    _measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def sub(
    link: Link,
    messages: Messages = SUB_MESSAGES_DEFAULT,
    size: Size = 128,
    clients: Clients = 1,
    subject: Subject = "bench",
    as_json: AsJson = False,
) -> None:
    """Receive what others publish, from the first message on."""
    total = SUB_MESSAGES_DEFAULT if messages is None else messages
    plan = Plan(Kind.SUB, total, size, subscribers=clients, subject=subject)
    _measure(plan, Wanted(link, total, 0.0, 1, None, as_json))


@app.command()
@with_server
def pubsub(
    link: Link,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    publishers: Publishers = 1,
    subscribers: Subscribers = 1,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Publish on one subject; every subscriber receives everything."""
    plan = Plan(Kind.PUBSUB, messages or publishers, size, publishers, subscribers, 1, subject)
    _measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def fanout(
    link: Link,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    publishers: Publishers = 1,
    subscribers: Subscribers = 5,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Publish on one subject to several subscribers, each of which receives everything."""
    plan = Plan(Kind.FANOUT, messages or publishers, size, publishers, subscribers, 1, subject)
    _measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def queue(
    link: Link,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    publishers: Publishers = 1,
    subscribers: Subscribers = 4,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Publish on one subject to a queue group, whose members share the messages."""
    plan = Plan(Kind.QUEUE, messages or publishers, size, publishers, subscribers, 1, subject)
    _measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def reqrep(
    link: Link,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    clients: Clients = 1,
    subscribers: Annotated[int, typer.Option(help="Who answer, as a queue group.")] = 1,
    in_flight: InFlight = 1,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Send requests and wait for their answers; tells latencies."""
    plan = Plan(Kind.REQREP, messages or clients, size, clients, subscribers, in_flight, subject)
    _measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def jspub(
    link: Link,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    publishers: Publishers = 1,
    streams: Annotated[int, typer.Option(help="Streams that the publishers share out.")] = 1,
    in_flight: InFlight = 1_000,
    storage: StorageKind = Storage.FILE,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    sync: Sync = SyncWish.DEFAULT,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Publish to streams, each message acknowledged; tells latencies."""
    plan = Plan(
        Kind.JSPUB,
        messages or publishers,
        size,
        publishers,
        in_flight=in_flight,
        subject=subject,
        streams=streams,
        storage=storage,
    )
    _measure(plan, Wanted(link, messages, seconds, runs, compare, as_json, sync, data))


@app.command()
@with_server
def jsget(
    link: Link,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    clients: Clients = 1,
    subjects: Annotated[int, typer.Option(min=1, help="Subjects of the stream.")] = 100_000,
    in_flight: InFlight = 100,
    storage: StorageKind = Storage.FILE,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Get the last messages of subjects of a stream, which is filled first; tells latencies."""
    plan = Plan(
        Kind.JSGET,
        messages or clients,
        size,
        clients,
        in_flight=in_flight,
        subject=subject,
        storage=storage,
        spread=subjects,
    )
    wanted = Wanted(link, messages, seconds, runs, compare, as_json, SyncWish.DEFAULT, data)
    _measure(plan, wanted)


# Running


def _measure(plan: Plan, wanted: Wanted) -> None:
    plan.check()
    output = make_output(as_json=wanted.as_json)
    shown = contextlib.nullcontext() if wanted.as_json else progress(plan.kind)
    with _servers(plan, wanted) as servers, Crew() as crew, shown as tell:
        measured = [
            Series(
                name,
                target,
                plan if wanted.messages else sized(crew, plan, target, wanted.seconds),
            )
            for name, target in servers
        ]
        in_turns(crew, measured, wanted.runs, tell)
    _tell(output, plan, measured)
    output.finish()


@contextlib.contextmanager
def _servers(plan: Plan, wanted: Wanted) -> Iterator[list[tuple[str, Target]]]:
    # Names and places of the servers to be measured, which are there for as long.
    if wanted.compare is None:
        link = wanted.link
        address = parse_url(link.server)
        # So that what is wrong is told once, with advice.
        link.connect().close()
        yield [(str(address), Target(link.server, link.credentials(), link.tls()))]
        return
    commands = [("penstock", [*OURS]), (wanted.compare, [find_executable(wanted.compare)])]
    with contextlib.ExitStack() as stack:
        if plan.kind in STREAMED:
            folder = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=wanted.data or ".")
            commands = _with_streams(commands, Path(stack.enter_context(folder)), wanted.sync)
        servers = [stack.enter_context(BenchServer(*each)) for each in commands]
        yield [(server.name, Target(server.url)) for server in servers]


def _with_streams(
    commands: list[tuple[str, list[str]]], folder: Path, sync: SyncWish
) -> list[tuple[str, list[str]]]:
    # Ours syncs before it acknowledges, unless it is told otherwise.
    (our_name, ours), (their_name, theirs) = commands
    their_sync = "always" if sync is SyncWish.ALWAYS else ""
    return [
        (our_name, with_jetstream(ours, folder / "ours")),
        (their_name, with_jetstream(theirs, folder / "theirs", sync=their_sync)),
    ]


# Telling


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


def _tell(output: Output, plan: Plan, measured: list[Series]) -> None:
    has_latency, is_compared = plan.kind in ANSWERED, len(measured) > 1
    facts = {
        "bench": str(plan.kind),
        "subject": plan.subject,
        "size_bytes": plan.size_bytes,
        "publishers": plan.publishers if plan.kind is not Kind.SUB else 0,
        "subscribers": plan.subscribers if plan.has_listeners else 0,
        "in_flight": plan.in_flight if has_latency else None,
        "streams": plan.streams if plan.kind in STREAMED else None,
        "storage": str(plan.storage) if plan.kind in STREAMED else None,
        "subjects": plan.spread or None,
        "runs": len(measured[0].runs),
    }
    output.facts(facts, [column for column in _FACTS if facts[column.name]])
    rows = [_row(series, measured) for series in measured]
    columns = [*_SPEED, *(_LATENCY if has_latency else [])]
    if is_compared:
        columns += [_RATIO, *([_LATENCY_RATIO] if has_latency else [])]
    output.rows("servers", columns, rows)


def _row(series: Series, measured: list[Series]) -> dict[str, object]:
    # The first is the one that the others are compared with.
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
