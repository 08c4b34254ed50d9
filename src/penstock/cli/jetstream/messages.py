"""`penstock stream get` and `view`, `penstock consumer next` and `sub`: messages of streams.

`next` and `sub` acknowledge each message after it is printed, and wait for the server's
confirmation before they print the next one. So a command that is stopped loses nothing and repeats
at most one message. Text from other clients is printed so that it cannot control the terminal,
except with --raw.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from penstock.cli.arguments import ConnectionOptions, with_options, with_server
from penstock.cli.jetstream.connection import check_name, jetstream, naming, naming_consumer
from penstock.cli.jetstream.consumers import ConsumerName, find_consumer
from penstock.cli.jetstream.streams import StreamName
from penstock.cli.output import json_document, moment, parse_headers, printable, rfc3339
from penstock.cli.pubsub import Count, Raw, as_text, interrupted_quietly, tell
from penstock.client.client import Client
from penstock.client.jetstream import Stored, flow_reply, is_delivered, pull, read_delivered
from penstock.client.wire import ReceivedMessage
from penstock.errors import NoAnswer, RefusedByServer, UsageError
from penstock.limits import CLI_PULL_MESSAGES_MAX

WAIT_S = 30.0
"""How long a pull of `sub` waits before it is made anew."""

WRONG_PIN = "423"

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
    connection: ConnectionOptions,
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
    with jetstream(connection) as streams, naming(streams, name):
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
    connection: ConnectionOptions,
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
    with interrupted_quietly(0), jetstream(connection) as streams, naming(streams, name):
        found = streams.each(check_name(name), subject, seq)
        for message in itertools.islice(found, limit or None):
            write_stored(message, raw=raw, as_json=as_json)


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """How messages are shown and acknowledged."""

    no_ack: Annotated[bool, typer.Option("--no-ack", help="Do not acknowledge.")] = False
    nak: Annotated[bool, typer.Option("--nak", help="Have them delivered once more.")] = False
    term: Annotated[bool, typer.Option("--term", help="Have them not delivered again.")] = False
    group: Annotated[
        str, typer.Option("--group", metavar="GROUP", help="The priority group that we are of.")
    ] = ""
    raw: Raw = False
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False

    def answer(self, config: dict[str, Any]) -> bytes:
        """Return the answer to each message, b"" for none; raise UsageError."""
        if self.no_ack + self.nak + self.term > 1:
            raise UsageError("--no-ack, --nak and --term exclude each other")
        if self.no_ack or config["ack_policy"] == "none":
            return b""
        return b"-NAK" if self.nak else b"+TERM" if self.term else b"+ACK"

    def write(self, message: ReceivedMessage) -> None:
        """Print a message: the payload as it is, a JSON object on a line, or text."""
        told = read_delivered(message)
        if self.raw:
            line = message.payload + b"\n"
        elif self.as_json:
            document: dict[str, object] = {
                "seq": told.seq,
                "consumer_seq": told.consumer_seq,
                "deliveries": told.deliveries,
                "pending": told.pending,
                "time": rfc3339(told.time_ns),
                "subject": printable(message.subject),
            }
            line = json_document(document, message.headers, message.payload)
        else:
            again = f", delivery {told.deliveries}" if told.deliveries > 1 else ""
            heading = (
                f"[{told.seq}] {moment(rfc3339(told.time_ns) or '')} {printable(message.subject)}"
                f" ({told.pending:,} to come{again})"
            )
            line = as_text(heading, message.headers, message.payload)
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


class PullConsumer:
    """Messages of a consumer that is pulled, as one of its clients."""

    def __init__(self, client: Client, info: dict[str, Any], group: str) -> None:
        self._client = client
        self._stream = info["stream_name"].encode()
        self._name = info["name"].encode()
        config = info["config"]
        self._batch_max = config.get("max_batch") or CLI_PULL_MESSAGES_MAX
        groups = config.get("priority_groups") or []
        known = group or (groups[0] if len(groups) == 1 else "")
        self._more: dict[str, object] = {"group": known} if known else {}

    def fetch(self, batch: int, wait_s: float) -> list[ReceivedMessage]:
        """Return up to `batch` messages; fewer if no more come in time."""
        self._client.set_timeout(wait_s + WAIT_S)
        wanted = min(batch, self._batch_max, CLI_PULL_MESSAGES_MAX)
        try:
            found = pull(
                self._client, self._stream, self._name, wanted, expires_s=wait_s, **self._more
            )
        except RefusedByServer as error:
            if not error.reason.startswith(WRONG_PIN) or "id" not in self._more:
                raise
            # Another client is pinned now; a pull without an id waits for its turn.
            del self._more["id"]
            return []
        for message in found:
            pins = parse_headers(message.headers).get("Nats-Pin-Id")
            if pins:
                self._more["id"] = pins[0]
        return found


def _acknowledge(client: Client, message: ReceivedMessage, answer: bytes) -> None:
    if answer:
        client.request(message.reply, answer)


@with_options(ConnectionOptions, MessageOptions)
def next_messages(
    connection: ConnectionOptions,
    shown: MessageOptions,
    stream: StreamName,
    name: ConsumerName,
    count: Count = 1,
) -> None:
    """Pull messages, print them and acknowledge them; wait for --timeout.

    \b
    penstock consumer next ORDERS billing
    penstock consumer next ORDERS billing --count 10 --json --timeout 30s
    penstock consumer next ORDERS billing --no-ack
    """
    with jetstream(connection) as streams, naming_consumer(streams, stream, name):
        info = find_consumer(streams, stream, name)
        target = info["config"].get("deliver_subject")
        if target:
            raise UsageError(
                f"{name} pushes to {printable(target.encode())}; `penstock consumer sub` prints it"
            )
        answer = shown.answer(info["config"])
        pulling = PullConsumer(streams.client, info, shown.group)
        got = 0
        while got < count:
            found = pulling.fetch(count - got, connection.timeout_s)
            for message in found:
                shown.write(message)
                _acknowledge(streams.client, message, answer)
            got += len(found)
            if not found:
                break
    if got < count:
        raise NoAnswer(f"{got} of {count} messages within {connection.timeout}")


@with_options(ConnectionOptions, MessageOptions)
def sub(
    connection: ConnectionOptions,
    shown: MessageOptions,
    stream: StreamName,
    name: ConsumerName,
    count: Count = 0,
) -> None:
    """Print messages as they come and acknowledge them, until --count of them or Ctrl-C.

    \b
    penstock consumer sub ORDERS billing --raw
    """
    with (
        interrupted_quietly(0),
        jetstream(connection) as streams,
        naming_consumer(streams, stream, name),
    ):
        client = streams.client
        info = find_consumer(streams, stream, name)
        config = info["config"]
        answer = shown.answer(config)
        pushed = bool(config.get("deliver_subject"))
        found = _pushed(client, config) if pushed else _pulled(client, info, shown.group)
        tell(f"Reading {printable(name.encode())} of {printable(stream.encode())}")
        for number, message in enumerate(found, 1):
            shown.write(message)
            _acknowledge(client, message, answer)
            if number == count:
                break


def _pulled(client: Client, info: dict[str, Any], group: str) -> Iterator[ReceivedMessage]:
    pulling = PullConsumer(client, info, group)
    while True:
        # One at a time: messages fetched and not printed would be held back from other clients.
        yield from pulling.fetch(1, WAIT_S)


def _pushed(client: Client, config: dict[str, Any]) -> Iterator[ReceivedMessage]:
    queue = config.get("deliver_group")
    target = config["deliver_subject"].encode()
    sid = client.subscribe(target, queue=queue.encode() if queue else None)
    client.flush()
    client.set_timeout(None)
    while True:
        message = client.next_message(sid)
        if is_delivered(message):
            yield message
        elif reply := flow_reply(message):
            client.publish(reply)
            client.send()
