"""`penstock bench`: how fast a NATS server is, or two of them side by side.

Only reads arguments: `cli.bench.measure` runs a bench and prints the results, `penstock.bench`
measures. The benches whose names begin with `js` are those of streams.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.bench.plan import STORED_DEFAULT, Ack, Kind, Plan, Storage
from penstock.cli.arguments import AsJson, ConnectionOptions, with_server
from penstock.cli.bench.measure import RunOptions, SyncMode, measure

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
Subjects = Annotated[
    int,
    typer.Option(
        "--subjects", min=0, metavar="N", help="Publish to so many subjects in turns; 0 for one."
    ),
]
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
    SyncMode, typer.Option("--sync", help="When the compared server syncs; ours always does.")
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
Read = Annotated[
    int | None,
    typer.Option(
        "--msgs", metavar="N", min=1, help="Messages read in all (as many as take --seconds)."
    ),
]
Stored = Annotated[
    int, typer.Option(metavar="N", help="Messages of the stream, read from its start as often.")
]
Spread = Annotated[
    int, typer.Option("--subjects", min=0, metavar="N", help="Subjects of the stream; 0 for one.")
]
OneIn = Annotated[
    int, typer.Option(metavar="N", help="Read through a filter that one in so many passes.")
]
AckKind = Annotated[Ack, typer.Option("--ack", help="What is acknowledged.")]


@app.command()
@with_server
def pub(
    connection: ConnectionOptions,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    clients: Clients = 1,
    subject: Subject = "bench",
    subjects: Subjects = 0,
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Publish without any subscriber."""
    plan = Plan(
        Kind.PUB, messages or clients, size, publishers=clients, subject=subject, spread=subjects
    )
    measure(plan, RunOptions(connection, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def sub(
    connection: ConnectionOptions,
    messages: Messages = SUB_MESSAGES_DEFAULT,
    size: Size = 128,
    clients: Clients = 1,
    subject: Subject = "bench",
    subjects: Subjects = 0,
    as_json: AsJson = False,
) -> None:
    """Receive what other clients publish, from the first message on."""
    total = SUB_MESSAGES_DEFAULT if messages is None else messages
    plan = Plan(Kind.SUB, total, size, subscribers=clients, subject=subject, spread=subjects)
    measure(plan, RunOptions(connection, total, 0.0, 1, None, as_json))


@app.command()
@with_server
def pubsub(
    connection: ConnectionOptions,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    publishers: Publishers = 1,
    subscribers: Subscribers = 1,
    subject: Subject = "bench",
    subjects: Subjects = 0,
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Publish; every subscriber receives everything.

    \b
    penstock bench pubsub --subjects 10000 --compare nats-server
    """
    plan = Plan(
        Kind.PUBSUB,
        messages or publishers,
        size,
        publishers,
        subscribers,
        1,
        subject,
        spread=subjects,
    )
    measure(plan, RunOptions(connection, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def fanout(
    connection: ConnectionOptions,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    publishers: Publishers = 1,
    subscribers: Subscribers = 5,
    subject: Subject = "bench",
    subjects: Subjects = 0,
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Publish to several subscribers, each of which receives everything."""
    plan = Plan(
        Kind.FANOUT,
        messages or publishers,
        size,
        publishers,
        subscribers,
        1,
        subject,
        spread=subjects,
    )
    measure(plan, RunOptions(connection, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def queue(
    connection: ConnectionOptions,
    messages: Messages = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    publishers: Publishers = 1,
    subscribers: Subscribers = 4,
    subject: Subject = "bench",
    subjects: Subjects = 0,
    runs: Runs = 3,
    compare: Compare = None,
    as_json: AsJson = False,
) -> None:
    """Publish to a queue group, whose members share the messages."""
    plan = Plan(
        Kind.QUEUE,
        messages or publishers,
        size,
        publishers,
        subscribers,
        1,
        subject,
        spread=subjects,
    )
    measure(plan, RunOptions(connection, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def reqrep(
    connection: ConnectionOptions,
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
    """Send requests and wait for their answers; latencies are printed."""
    plan = Plan(Kind.REQREP, messages or clients, size, clients, subscribers, in_flight, subject)
    measure(plan, RunOptions(connection, messages, seconds, runs, compare, as_json))


@app.command()
@with_server
def jspub(
    connection: ConnectionOptions,
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
    sync: Sync = SyncMode.DEFAULT,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Publish to streams, each message acknowledged; latencies are printed."""
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
    measure(plan, RunOptions(connection, messages, seconds, runs, compare, as_json, sync, data))


@app.command()
@with_server
def jsget(
    connection: ConnectionOptions,
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
    """Get the last messages of a stream's subjects; latencies are printed."""
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
    wanted = RunOptions(
        connection, messages, seconds, runs, compare, as_json, SyncMode.DEFAULT, data
    )
    measure(plan, wanted)


@app.command()
@with_server
def jsfetch(
    connection: ConnectionOptions,
    messages: Read = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    clients: Clients = 1,
    batch: Annotated[int, typer.Option(metavar="N", help="Messages that a pull asks for.")] = 500,
    in_flight: Annotated[
        int, typer.Option("--in-flight", metavar="N", help="Pulls of a client at a time.")
    ] = 1,
    ack: AckKind = Ack.NONE,
    stored: Stored = STORED_DEFAULT,
    subjects: Spread = 0,
    one_in: OneIn = 1,
    storage: StorageKind = Storage.FILE,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Pull messages of a stream, which is filled first; clients share a consumer.

    \b
    penstock bench jsfetch --ack explicit --compare nats-server
    penstock bench jsfetch --stored 5000000 --subjects 100000 --one-in 100
    """
    plan = Plan(
        Kind.JSFETCH,
        messages or 1,
        size,
        subscribers=clients,
        in_flight=in_flight,
        subject=subject,
        storage=storage,
        spread=subjects,
        stored=stored,
        one_in=one_in,
        batch=batch,
        ack=ack,
    )
    wanted = RunOptions(
        connection, messages, seconds, runs, compare, as_json, SyncMode.DEFAULT, data
    )
    measure(plan, wanted)


@app.command()
@with_server
def jspush(
    connection: ConnectionOptions,
    messages: Read = None,
    seconds: Seconds = 2.0,
    size: Size = 128,
    clients: Clients = 1,
    ack: AckKind = Ack.NONE,
    stored: Stored = STORED_DEFAULT,
    subjects: Spread = 0,
    one_in: OneIn = 1,
    storage: StorageKind = Storage.FILE,
    subject: Subject = "bench",
    runs: Runs = 3,
    compare: Compare = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Receive a stream's messages by push consumers, in order and with flow control.

    \b
    penstock bench jspush --compare nats-server
    """
    plan = Plan(
        Kind.JSPUSH,
        messages or 1,
        size,
        subscribers=clients,
        subject=subject,
        storage=storage,
        spread=subjects,
        stored=stored,
        one_in=one_in,
        ack=ack,
    )
    wanted = RunOptions(
        connection, messages, seconds, runs, compare, as_json, SyncMode.DEFAULT, data
    )
    measure(plan, wanted)
