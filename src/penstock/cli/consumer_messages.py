"""`penstock consumer next` and `sub`: messages as a consumer delivers them.

Each is acknowledged once it is printed, and the server has confirmed that before the next one is
printed, so that a command that is stopped loses nothing and repeats at most one. Whatever comes
from others is shown so that it cannot play with the terminal, except with --raw.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from penstock.cli.connecting import Link, with_options
from penstock.cli.consumers import ConsumerName, find_consumer
from penstock.cli.jetstream import jetstream, naming_consumer
from penstock.cli.messages import json_document, parse_headers
from penstock.cli.messaging import Count, Raw, as_text, interrupted_quietly, tell
from penstock.cli.output import moment, printable, rfc3339
from penstock.cli.streams import StreamName
from penstock.client.client import Client
from penstock.client.delivered import flow_reply, is_delivered, read_delivered
from penstock.client.wire import Message
from penstock.errors import NoAnswer, RefusedByServer, UsageError

BATCH_MAX = 100
"""Messages that a pull asks for at most."""

WAIT_S = 30.0
"""How long a pull of `sub` waits before it is made anew."""

WRONG_PIN = "423"


@dataclass(frozen=True, slots=True)
class Showing:
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
        """Give what is published of each message; b"" for nothing. Raises UsageError."""
        if self.no_ack + self.nak + self.term > 1:
            raise UsageError("--no-ack, --nak and --term exclude each other")
        if self.no_ack or config["ack_policy"] == "none":
            return b""
        return b"-NAK" if self.nak else b"+TERM" if self.term else b"+ACK"

    def write(self, message: Message) -> None:
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


class Pulling:
    """Messages of a consumer that is pulled, as one of its clients."""

    def __init__(self, client: Client, info: dict[str, Any], group: str) -> None:
        self._client = client
        self._stream = info["stream_name"].encode()
        self._name = info["name"].encode()
        config = info["config"]
        self._batch_max = config.get("max_batch") or BATCH_MAX
        groups = config.get("priority_groups") or []
        known = group or (groups[0] if len(groups) == 1 else "")
        self._more: dict[str, object] = {"group": known} if known else {}

    def fetch(self, batch: int, wait_s: float) -> list[Message]:
        """Wait for messages; fewer than so many where no more come in time."""
        self._client.set_timeout(wait_s + WAIT_S)
        wanted = min(batch, self._batch_max, BATCH_MAX)
        try:
            found = self._client.pull(
                self._stream, self._name, wanted, expires_s=wait_s, **self._more
            )
        except RefusedByServer as error:
            if not error.reason.startswith(WRONG_PIN) or "id" not in self._more:
                raise
            # Another client is pinned now; who asks without an id waits for its turn.
            del self._more["id"]
            return []
        for message in found:
            pins = parse_headers(message.headers).get("Nats-Pin-Id")
            if pins:
                self._more["id"] = pins[0]
        return found


def _acknowledge(client: Client, message: Message, answer: bytes) -> None:
    if answer:
        client.request(message.reply, answer)


@with_options(Link, Showing)
def next_messages(
    link: Link,
    showing: Showing,
    stream: StreamName,
    name: ConsumerName,
    count: Count = 1,
) -> None:
    """Pull messages, print them and acknowledge them; waits for --timeout.

    \b
    penstock consumer next ORDERS billing
    penstock consumer next ORDERS billing --count 10 --json --timeout 30s
    penstock consumer next ORDERS billing --no-ack
    """
    with jetstream(link) as streams, naming_consumer(streams, stream, name):
        info = find_consumer(streams, stream, name)
        target = info["config"].get("deliver_subject")
        if target:
            raise UsageError(
                f"{name} pushes to {printable(target.encode())}; `penstock consumer sub` prints it"
            )
        answer = showing.answer(info["config"])
        pulling = Pulling(streams.client, info, showing.group)
        got = 0
        while got < count:
            found = pulling.fetch(count - got, link.timeout_s)
            for message in found:
                showing.write(message)
                _acknowledge(streams.client, message, answer)
            got += len(found)
            if not found:
                break
    if got < count:
        raise NoAnswer(f"{got} of {count} messages within {link.timeout}")


@with_options(Link, Showing)
def sub(
    link: Link,
    showing: Showing,
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
        jetstream(link) as streams,
        naming_consumer(streams, stream, name),
    ):
        client = streams.client
        info = find_consumer(streams, stream, name)
        config = info["config"]
        answer = showing.answer(config)
        pushed = bool(config.get("deliver_subject"))
        found = _pushed(client, config) if pushed else _pulled(client, info, showing.group)
        tell(f"Reading {printable(name.encode())} of {printable(stream.encode())}")
        for number, message in enumerate(found, 1):
            showing.write(message)
            _acknowledge(client, message, answer)
            if number == count:
                break


def _pulled(client: Client, info: dict[str, Any], group: str) -> Iterator[Message]:
    pulling = Pulling(client, info, group)
    while True:
        # One at a time: what was fetched and not printed would be missing for a while.
        yield from pulling.fetch(1, WAIT_S)


def _pushed(client: Client, config: dict[str, Any]) -> Iterator[Message]:
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
