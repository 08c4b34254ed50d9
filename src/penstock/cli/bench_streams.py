"""`penstock bench jspub`, `jsget`, `jsfetch` and `jspush`: how fast a server's streams are.

Arguments only: `penstock.bench` measures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.bench.plan import STORED_DEFAULT, Ack, Kind, Plan, Storage
from penstock.cli.arguments import AsJson
from penstock.cli.bench import (
    Clients,
    Compare,
    InFlight,
    Messages,
    Publishers,
    Runs,
    Seconds,
    Size,
    Subject,
)
from penstock.cli.bench_running import SyncWish, Wanted, measure
from penstock.cli.connecting import Link, with_server

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
    measure(plan, Wanted(link, messages, seconds, runs, compare, as_json, sync, data))


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
    measure(plan, wanted)


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


@with_server
def jsfetch(
    link: Link,
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
    wanted = Wanted(link, messages, seconds, runs, compare, as_json, SyncWish.DEFAULT, data)
    measure(plan, wanted)


@with_server
def jspush(
    link: Link,
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
    """Have messages of a stream pushed, in order and with flow control, a consumer a client.

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
    wanted = Wanted(link, messages, seconds, runs, compare, as_json, SyncWish.DEFAULT, data)
    measure(plan, wanted)
