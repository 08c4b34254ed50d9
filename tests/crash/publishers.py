"""Clients that publish with many acknowledgements outstanding, until their server is killed.

A `Publisher` numbers its messages, sends them ahead, and notes which of them were acknowledged with
which sequence. Acknowledgements that were under way when the server died count: it gave its word.
"""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.client.client import Client
from penstock.client.wire import ReceivedMessage

IN_FLIGHT_MAX = 500
GETS_AHEAD = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """A stream that is published to, and whether its messages carry ids."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    has_ids: bool = False

    @property
    def subject(self) -> bytes:
        return self.name.lower().encode()

    def create(self, client: Client) -> None:
        config = {"name": self.name, "subjects": [f"{self.name.lower()}.*"], **self.settings}
        call(client, f"STREAM.CREATE.{self.name}", config)


def call(client: Client, name: str, document: object = None) -> dict[str, Any]:
    """Ask the API; an error in the answer fails."""
    body = b"" if document is None else json.dumps(document).encode()
    answer: dict[str, Any] = json.loads(client.request(f"$JS.API.{name}".encode(), body).payload)
    assert "error" not in answer, answer
    return answer


def payload_of(number: int) -> bytes:
    """Return the one payload that a message can have; it begins with its number."""
    return b"%d %b" % (number, Random(number).randbytes(number * 31 % 400))


def number_of(payload: bytes) -> int:
    """Return the number of a message; fails where its payload is not whole."""
    number = int(payload.partition(b" ")[0])
    assert payload == payload_of(number)
    return number


class Publisher:
    """One client's messages to one stream; `acked` has the sequence of each acknowledged number."""

    def __init__(self, client: Client, kind: Kind, first_number: int) -> None:
        self.kind = kind
        self.next_number = first_number
        self.acked: dict[int, int] = {}
        self._client = client
        self._replies: dict[bytes, int] = {}
        self._inbox = client.new_inbox()
        self._sid = client.subscribe(self._inbox + b".*")

    def publish(self, number: int) -> None:
        """Send a message; not waited for."""
        reply = b"%b.%d" % (self._inbox, number)
        self._replies[reply] = number
        headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number if self.kind.has_ids else None
        subject = b"%b.%d" % (self.kind.subject, number % 50)
        self._client.publish(subject, payload_of(number), reply=reply, headers=headers)

    def fill(self) -> None:
        """Send as many as may be outstanding."""
        while len(self._replies) < IN_FLIGHT_MAX:
            self.publish(self.next_number)
            self.next_number += 1
        self._client.send()

    def take_ack(self) -> dict[str, Any]:
        """Wait for an acknowledgement; give it."""
        message = self._client.next_message(self._sid)
        ack: dict[str, Any] = json.loads(message.payload)
        assert ack["stream"] == self.kind.name, ack
        self.acked[self._replies.pop(message.subject)] = ack["seq"]
        return ack

    def take_the_rest(self) -> None:
        """Take what the server has acknowledged before its end."""
        with contextlib.suppress(ConnectionError):
            while True:
                self.take_ack()


def stored_numbers(client: Client, kind: Kind, first_seq: int) -> dict[int, int]:
    """Read a stream from a sequence to its end; give the number of each message by sequence."""
    last_seq = call(client, f"STREAM.INFO.{kind.name}")["state"]["last_seq"]
    found: dict[int, int] = {}
    for start in range(first_seq, last_seq + 1, GETS_AHEAD):
        seqs = range(start, min(start + GETS_AHEAD, last_seq + 1))
        replies = [(seq, _begin_get(client, kind, seq)) for seq in seqs]
        for seq, reply in replies:
            found[seq] = number_of(_payload(client.next_answer(reply)))
    return found


def _begin_get(client: Client, kind: Kind, seq: int) -> bytes:
    subject = f"$JS.API.STREAM.MSG.GET.{kind.name}".encode()
    return client.begin_request(subject, b'{"seq":%d}' % seq)


def _payload(answer: ReceivedMessage) -> bytes:
    document = json.loads(answer.payload)
    assert "error" not in document, document
    return base64.b64decode(document["message"].get("data", ""))
