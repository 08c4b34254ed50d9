"""`penstock stream backup` and `restore`: a stream as two files, and a stream from them.

    backup.json     the configuration and the state, as the server sent them
    stream.tar.s2   the server's own bytes

The names and the contents are those of the `nats` tool, so that what one wrote the other reads.

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

from penstock.cli.arguments import AsJson
from penstock.cli.connect import ConnectionOptions, with_server
from penstock.cli.jetstream.connection import check_name, jetstream, naming
from penstock.cli.jetstream.streams import StreamName
from penstock.cli.output import OnProgress, make_output, progress, size
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import RefusedByServer, UsageError
from penstock.limits import API_REQUEST_BYTES_MAX

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
