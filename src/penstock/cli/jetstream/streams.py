"""`penstock stream`: make, change, show, list, empty, back up, restore and remove streams.

In the manner of the `nats` tool, against any NATS server. With --json what the server answered is
printed as it is.

A backup is two files with the names and the contents of the `nats` tool, so that what one wrote the
other reads:

    backup.json     the configuration and the state, as the server sent them
    stream.tar.s2   the server's own bytes

Invariant: a backup is in its place as a whole or not at all; a broken one leaves its
unfinished file beside it, under a name that says so.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from penstock.cli.arguments import AsJson, ConnectionOptions, with_options, with_server
from penstock.cli.jetstream.connection import Force, check_name, jetstream, make_sure, naming
from penstock.cli.jetstream.stream_options import StorageKind, StreamOptions
from penstock.cli.output import (
    Column,
    OnProgress,
    Output,
    count,
    listed,
    make_output,
    moment,
    progress,
    size,
    text,
    yes_or_no,
)
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import RefusedByServer, UsageError
from penstock.limits import API_REQUEST_BYTES_MAX
from penstock.text.times import format_duration

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Streams of a server: make, change, look into, empty, back up and remove them.",
)

StreamName = Annotated[str, typer.Argument(metavar="STREAM", show_default=False)]
NEVER = "0001-01-01T00:00:00Z"


# How values look


def bound(value: object) -> str:
    """Return a number, or the word for no bound."""
    assert isinstance(value, int)
    return "unlimited" if value < 0 else f"{value:,}"


def bound_size(value: object) -> str:
    """Return a number of bytes, or the word for no bound."""
    assert isinstance(value, int)
    return "unlimited" if value < 0 else size(value)


def span(value: object) -> str:
    """Return a duration, or the word for no bound."""
    assert isinstance(value, int)
    return "unlimited" if value <= 0 else format_duration(value)


def when(value: object) -> str:
    """Return a time, or the word for none."""
    return "never" if value == NEVER else moment(value)


_CONFIG = [
    Column("name", "name", text),
    Column("description", "description", text),
    Column("subjects", "subjects", listed),
    Column("storage", "storage"),
    Column("retention", "retention"),
    Column("discard", "discard"),
    Column("num_replicas", "replicas", count),
    Column("compression", "compression"),
    Column("max_msgs", "max messages", bound),
    Column("max_msgs_per_subject", "max messages per subject", bound),
    Column("max_bytes", "max bytes", bound_size),
    Column("max_age", "max age", span),
    Column("max_msg_size", "max message size", bound_size),
    Column("max_consumers", "max consumers", bound),
    Column("duplicate_window", "duplicate window", span),
    Column("allow_direct", "direct get", yes_or_no),
    Column("allow_rollup_hdrs", "roll-ups", yes_or_no),
    Column("allow_msg_ttl", "message TTLs", yes_or_no),
    Column("deny_delete", "deletes denied", yes_or_no),
    Column("deny_purge", "purges denied", yes_or_no),
    Column("sealed", "sealed", yes_or_no),
]
_STATE = [
    Column("created", "created", when),
    Column("messages", "messages", count),
    Column("bytes", "bytes", size),
    Column("first_seq", "first sequence", count),
    Column("first_ts", "first message", when),
    Column("last_seq", "last sequence", count),
    Column("last_ts", "last message", when),
    Column("num_subjects", "subjects", count),
    Column("num_deleted", "deleted messages", count),
    Column("consumer_count", "consumers", count),
]
_LIST = [
    Column("name", "name", text),
    Column("subjects", "subjects", listed),
    Column("storage", "storage"),
    Column("messages", "messages", count, right=True),
    Column("bytes", "bytes", size, right=True),
    Column("consumers", "consumers", count, right=True),
    Column("last", "last message", when),
]


def show_stream(info: dict[str, Any], *, as_json: bool) -> Output:
    """Print what the server knows of a stream: facts for people, the document for programs."""
    output = make_output(as_json=as_json)
    told = {**info["config"], **info["state"], "created": info["created"]}
    shown = [column for column in _CONFIG if told.get(column.name) not in (None, False, "")]
    known = [column for column in _STATE if told.get(column.name) is not None]
    output.facts(info if as_json else told, [*shown, *known])
    return output


# The commands


@app.command()
@with_options(ConnectionOptions, StreamOptions)
def add(
    connection: ConnectionOptions,
    options: StreamOptions,
    name: StreamName,
    storage: Annotated[
        StorageKind | None, typer.Option("--storage", help="Where it is kept (file).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a stream; an equal stream that exists counts as made.

    \b
    penstock stream add ORDERS --subjects 'orders.>' --max-age 7d --max-bytes 10GB
    penstock stream add ORDERS --config orders.json
    """
    config = options.fields() | {"name": check_name(name)}
    if storage is not None:
        config["storage"] = str(storage)
    if not (config.get("subjects") or config.get("mirror") or config.get("sources")):
        config["subjects"] = [name]
    with jetstream(connection) as streams:
        info = streams.call(f"STREAM.CREATE.{name}", config)
    show_stream(info, as_json=as_json).finish()


@app.command()
@with_options(ConnectionOptions, StreamOptions)
def edit(
    connection: ConnectionOptions, options: StreamOptions, name: StreamName, as_json: AsJson = False
) -> None:
    """Change a stream's configuration; options that are not given stay as they are.

    \b
    penstock stream edit ORDERS --max-age 30d
    """
    changes = options.fields()
    if not changes:
        raise UsageError("nothing to change was said; --help lists what can be")
    with jetstream(connection) as streams, naming(streams, name):
        config = streams.call(f"STREAM.INFO.{check_name(name)}")["config"]
        info = streams.call(f"STREAM.UPDATE.{name}", config | changes | {"name": name})
    show_stream(info, as_json=as_json).finish()


@app.command()
@with_server
def info(
    connection: ConnectionOptions,
    name: StreamName,
    subjects: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="List subjects and how many messages each has."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a stream: its configuration and what is in it."""
    with jetstream(connection) as streams, naming(streams, name):
        told = streams.call(f"STREAM.INFO.{check_name(name)}")
        found = dict(streams.subjects(name, subjects)) if subjects is not None else None
    output = show_stream(told, as_json=as_json)
    if found is not None:
        columns = [
            Column("subject", "subject", text),
            Column("messages", "messages", count, right=True),
        ]
        rows = [{"subject": each, "messages": number} for each, number in found.items()]
        output.rows("subjects", columns, rows)
    output.finish()


@app.command()
@with_server
def ls(
    connection: ConnectionOptions,
    subject: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only those that take these subjects.")
    ] = "",
    names: Annotated[bool, typer.Option("--names", "-n", help="Print only the names.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the streams."""
    with jetstream(connection) as streams:
        wanted = {"subject": subject} if subject else {}
        infos = sorted(
            streams.pages("STREAM.LIST", "streams", wanted), key=lambda each: each["config"]["name"]
        )
    output = make_output(as_json=as_json)
    if names:
        for each in infos:
            output.say(text(each["config"]["name"]))
        output.facts({"streams": [each["config"]["name"] for each in infos]}, [])
    else:
        output.rows("streams", _LIST, [_row(each) for each in infos])
    output.finish()


def _row(info: dict[str, Any]) -> dict[str, object]:
    config, state = info["config"], info["state"]
    return {
        "name": config["name"],
        "subjects": config.get("subjects") or [],
        "storage": config["storage"],
        "messages": state["messages"],
        "bytes": state["bytes"],
        "consumers": state["consumer_count"],
        "last": state["last_ts"],
    }


@app.command()
@with_server
def rm(connection: ConnectionOptions, name: StreamName, force: Force = False) -> None:
    """Remove a stream and everything in it."""
    make_sure(f"Remove the stream {name!r} and everything in it?", force=force)
    with jetstream(connection) as streams, naming(streams, name):
        streams.call(f"STREAM.DELETE.{check_name(name)}")


@app.command()
@with_server
def purge(
    connection: ConnectionOptions,
    name: StreamName,
    subject: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only messages of these subjects.")
    ] = "",
    seq: Annotated[int, typer.Option(min=0, metavar="SEQ", help="Only those before it.")] = 0,
    keep: Annotated[int, typer.Option(min=0, metavar="N", help="All but the last so many.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Remove a stream's messages, all or some; the stream stays."""
    if seq and keep:
        raise UsageError("--seq and --keep exclude each other")
    make_sure(f"Purge messages of the stream {name!r}?", force=force)
    wanted = {"filter": subject, "seq": seq, "keep": keep}
    with jetstream(connection) as streams, naming(streams, name):
        asked = {key: value for key, value in wanted.items() if value}
        purged = streams.call(f"STREAM.PURGE.{check_name(name)}", asked)
    output = make_output(as_json=as_json)
    output.facts(purged, [])
    output.say(f"Purged {purged['purged']:,} messages")
    output.finish()


@app.command()
@with_server
def rmm(
    connection: ConnectionOptions,
    name: StreamName,
    seq: Annotated[int, typer.Argument(metavar="SEQ", min=1, show_default=False)],
    no_erase: Annotated[
        bool, typer.Option("--no-erase", help="Do not overwrite its bytes; quicker.")
    ] = False,
    force: Force = False,
) -> None:
    """Remove one message; its bytes are overwritten."""
    make_sure(f"Remove message {seq} of the stream {name!r}?", force=force)
    with jetstream(connection) as streams, naming(streams, name):
        wanted = {"seq": seq, "no_erase": no_erase}
        streams.call(f"STREAM.MSG.DELETE.{check_name(name)}", wanted)


# Backups

CHUNK_BYTES = 128 * 1024
CHUNKS_AHEAD = 32
"""Chunks of a restore that wait for their answer at a time: 4 MiB."""

DOCUMENT_NAME = "backup.json"
DATA_NAME = "stream.tar.s2"


@with_server
def backup(
    connection: ConnectionOptions,
    name: StreamName,
    folder: Annotated[Path, typer.Argument(metavar="DIR", file_okay=False, show_default=False)],
    no_consumers: Annotated[
        bool, typer.Option("--no-consumers", help="Leave the consumers out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a stream into files in DIR, which must not have a backup yet.

    \b
    penstock stream backup ORDERS /backups/orders
    """
    if (folder / DOCUMENT_NAME).exists():
        raise UsageError(f"{folder} has a backup already")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{DATA_NAME}.unfinished"
    with (
        jetstream(connection) as streams,
        naming(streams, name),
        progress("backup", is_shown=not as_json) as tell,
    ):
        client = streams.client
        inbox = client.new_inbox() + b".backup"
        sid = client.subscribe(inbox)
        wanted = {"deliver_subject": inbox.decode(), "no_consumers": no_consumers}
        document = streams.call(f"STREAM.SNAPSHOT.{check_name(name)}", wanted)
        with partial.open("wb") as file:
            written = _receive(client, sid, file, document["state"]["bytes"], tell)
            file.flush()
            os.fsync(file.fileno())
    partial.replace(folder / DATA_NAME)
    kept = {"type": document["type"], "config": document["config"], "state": document["state"]}
    (folder / DOCUMENT_NAME).write_text(json.dumps(kept, indent=2) + "\n")
    _tell(document["state"], folder, written, as_json)


def _receive(client: Client, sid: bytes, file: BinaryIO, bytes_about: int, tell: OnProgress) -> int:
    """Write what comes until the end; return how many bytes came."""
    written = 0
    while True:
        message = client.next_message(sid)
        status = message.headers[9:].partition(b"\r\n")[0].decode(errors="replace")
        if status and not status.startswith("204"):
            raise RefusedByServer(f"the backup was broken off: {status}")
        if not message.payload:
            return written
        file.write(message.payload)
        written += len(message.payload)
        if message.reply:
            client.publish(message.reply)
            client.send()
        tell(written, max(bytes_about, written))


@with_server
def restore(
    connection: ConnectionOptions,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", exists=True, file_okay=False, show_default=False),
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="STREAM", help="Under another name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a stream from a backup in DIR.

    \b
    penstock stream restore /backups/orders
    """
    document = _read_document(folder / DOCUMENT_NAME)
    config = document["config"] | ({"name": check_name(name)} if name else {})
    asked = {"config": config, "state": document["state"]}
    with jetstream(connection) as streams, progress("restore", is_shown=not as_json) as tell:
        target = streams.call(f"STREAM.RESTORE.{config['name']}", asked)["deliver_subject"].encode()
        with (folder / DATA_NAME).open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            sent = 0
            for done in _send(streams, target, file):
                sent += done
                tell(sent, total)
        info = streams.read(streams.client.request(target))
    _tell(info["state"], folder, sent, as_json)


def _send(streams: JetStream, target: bytes, file: BinaryIO) -> Iterator[int]:
    """Send a file in chunks, several ahead; yield the size of each acknowledged chunk."""
    client = streams.client
    waiting: list[tuple[bytes, int]] = []
    for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
        waiting.append((client.begin_request(target, chunk), len(chunk)))
        if len(waiting) >= CHUNKS_AHEAD:
            yield _taken(streams, *waiting.pop(0))
    for each in waiting:
        yield _taken(streams, *each)


def _taken(streams: JetStream, reply: bytes, done: int) -> int:
    answer = streams.client.next_answer(reply)
    if answer.payload:
        # The server answers before the end: it says why it gave up.
        streams.read(answer)
    return done


def _read_document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(API_REQUEST_BYTES_MAX))
        document["config"]["name"], document["state"]
    except FileNotFoundError:
        raise UsageError(f"{path.parent} has no backup: there is no {path.name}") from None
    except (ValueError, LookupError, TypeError):
        raise UsageError(f"{path} is not a backup's document") from None
    return dict(document)


def _tell(state: dict[str, Any], folder: Path, data_bytes: int, as_json: bool) -> None:
    output = make_output(as_json=as_json)
    output.facts({"directory": str(folder), "data_bytes": data_bytes, "state": state}, [])
    output.say(f"{state['messages']:,} messages, {size(data_bytes)} in {folder}")
    output.finish()
    sys.stdout.flush()
