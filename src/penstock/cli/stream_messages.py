"""`penstock stream get` and `view`: messages of a server's streams.

Whatever comes from others is shown so that it cannot play with the terminal, except with --raw.
"""

from __future__ import annotations

import itertools
import sys
from typing import Annotated

import typer

from penstock.cli.connecting import Link, with_server
from penstock.cli.jetstream import check_name, jetstream, naming
from penstock.cli.messages import json_document
from penstock.cli.messaging import Raw, as_text, interrupted_quietly
from penstock.cli.output import moment, printable
from penstock.cli.streams import StreamName
from penstock.client.jetstream import Stored
from penstock.errors import UsageError

JsonLines = Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")]


def write_stored(message: Stored, *, raw: bool, as_json: bool) -> None:
    """Print a stored message: the payload as it is, a JSON object on a line, or text."""
    if raw:
        line = message.payload + b"\n"
    elif as_json:
        document: dict[str, object] = {
            "seq": message.seq,
            "time": message.time,
            "subject": printable(message.subject),
        }
        line = json_document(document, message.headers, message.payload)
    else:
        heading = f"[{message.seq}] {moment(message.time)} {printable(message.subject)}"
        line = as_text(heading, message.headers, message.payload)
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


@with_server
def get(
    link: Link,
    name: StreamName,
    seq: Annotated[
        int | None, typer.Argument(metavar="SEQ", min=1, show_default=False, help="Which one.")
    ] = None,
    last_for: Annotated[
        str | None,
        typer.Option("--last-for", "-S", metavar="SUBJECT", help="The last one of a subject."),
    ] = None,
    raw: Raw = False,
    as_json: JsonLines = False,
) -> None:
    """Print one message.

    \b
    penstock stream get ORDERS 12345
    penstock stream get ORDERS --last-for orders.eu --raw
    """
    if (seq is None) == (last_for is None):
        raise UsageError("a sequence or --last-for says which message")
    wanted: dict[str, object] = {"seq": seq} if seq is not None else {"last_by_subj": last_for}
    with jetstream(link) as streams, naming(streams, name):
        found = streams.find(check_name(name), **wanted)
        state = streams.call(f"STREAM.INFO.{name}")["state"]
    if found is None:
        which = f"message {seq}" if seq is not None else f"message of {last_for!r}"
        raise UsageError(
            f"there is no {which} in {name}; it has {state['messages']:,}, with sequences from"
            f" {state['first_seq']} to {state['last_seq']}"
        )
    write_stored(found, raw=raw, as_json=as_json)


@with_server
def view(
    link: Link,
    name: StreamName,
    subject: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only messages of these subjects.")
    ] = ">",
    seq: Annotated[int, typer.Option(min=1, metavar="SEQ", help="From this sequence on.")] = 1,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="So many; 0 for all.")] = 100,
    raw: Raw = False,
    as_json: JsonLines = False,
) -> None:
    """Print messages in their order.

    \b
    penstock stream view ORDERS --subject 'orders.eu.>' --limit 10
    """
    with interrupted_quietly(0), jetstream(link) as streams, naming(streams, name):
        found = streams.each(check_name(name), subject, seq)
        for message in itertools.islice(found, limit or None):
            write_stored(message, raw=raw, as_json=as_json)
