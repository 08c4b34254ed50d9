"""What comes from a consumer: messages, whose reply subjects tell of them, and statuses.

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>

The newer form of it has a domain and an account before the stream, and may grow behind.

Pure; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import FormatError, RefusedByServer

if TYPE_CHECKING:
    from penstock.client.wire import Message

VERSION = b"NATS/1.0 "
STALLED = b"Nats-Consumer-Stalled: "
PREFIX = b"$JS.ACK."
TOKENS = 9
TOKENS_WITH_DOMAIN = 11


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message as a consumer delivered it; `pending` are those that are still to come."""

    deliveries: int
    seq: int
    consumer_seq: int
    time_ns: int
    pending: int


def is_delivered(message: Message) -> bool:
    """Tell whether it is a message of a consumer, and not a status."""
    return message.reply.startswith(PREFIX)


def read_delivered(message: Message) -> Delivered:
    """Read a message's reply subject; raises FormatError."""
    tokens = message.reply.split(b".")
    first = 4 if len(tokens) < TOKENS_WITH_DOMAIN else 6
    numbers = tokens[first : first + 5]
    if len(tokens) < TOKENS or not all(number.isdigit() for number in numbers):
        raise FormatError("a message of a consumer without its sequence")
    return Delivered(*map(int, numbers))


def status_of(message: Message) -> str:
    """Give what a status says, as "408 Request Timeout"; "" for a message."""
    line = message.headers.partition(b"\r\n")[0]
    return line[len(VERSION) :].decode(errors="replace") if line.startswith(VERSION) else ""


def flow_reply(message: Message) -> bytes:
    """Give where the answer to a status goes that asks whether we keep up; b"" where none is due.

    Raises RefusedByServer for any status that ends the delivery.
    """
    status = status_of(message)
    if not status.startswith("100"):
        raise RefusedByServer(status)
    # Either it asks, or it tells in a heartbeat that it still waits for such an answer.
    return message.reply or message.headers.partition(STALLED)[2].partition(b"\r")[0]
