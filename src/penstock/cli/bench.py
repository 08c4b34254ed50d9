"""`penstock bench`: how fast a NATS server is, or two of them side by side.

The benches of plain messages; those of streams are in `penstock.cli.bench_streams`. Arguments only:
`penstock.bench` measures.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.bench.plan import Kind, Plan
from penstock.cli.arguments import AsJson
from penstock.cli.bench_running import Wanted, measure
from penstock.cli.connecting import Link, with_server

SUB_MESSAGES_DEFAULT = 1_000_000

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
    measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


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
    measure(plan, Wanted(link, total, 0.0, 1, None, as_json))


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
    measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


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
    measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


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
    measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))


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
    measure(plan, Wanted(link, messages, seconds, runs, compare, as_json))
