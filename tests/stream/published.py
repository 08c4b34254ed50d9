"""The same messages published to the real server and to our streams: answers, stored messages."""

from __future__ import annotations

import base64
import itertools
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import RecordNotFound
from penstock.stream.stream import Stream
from penstock.testing.servers import WAIT_S
from tests.stream.hosts import StreamHouse
from tests.support.nats_client import NatsClient

SENTINEL: Final = "_IN.sentinel"
NOT_FOUND: Final = 10037


def block(headers: dict[str, str]) -> bytes:
    """Return a block of headers as a client writes it."""
    if not headers:
        return b""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


@dataclass(frozen=True)
class Publish:
    """One message; without a reply there is no answer."""

    subject: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    reply: str | None = None
    raw_headers: bytes = b""


def pub(
    subject: str,
    body: bytes = b"x",
    /,
    *,
    reply: str | None = None,
    raw: str = "",
    **headers: str,
) -> Publish:
    """Return a message; headers are without `Nats-` and with underscores, or the `raw` block."""
    names = {f"Nats-{name.replace('_', '-')}": value for name, value in headers.items()}
    return Publish(subject, body, names, reply, raw.encode())


@dataclass(frozen=True)
class Case:
    """A stream S on `s.>`, and what is published to it."""

    name: str
    config: dict[str, Any]
    messages: tuple[Publish, ...]

    def __str__(self) -> str:
        return self.name


def case(name: str, /, *messages: Publish, **config: Any) -> Case:
    return Case(name, {"name": "S", "subjects": ["s.>"]} | config, messages)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    answers: list[tuple[str, bytes]]
    stored: list[tuple[int, str, bytes, bytes]]
    state: dict[str, int]


def replies(messages: tuple[Publish, ...]) -> list[tuple[Publish, str]]:
    """Return each message with its reply, or one of its own."""
    numbers = itertools.count(1)
    return [
        (each, f"_IN.{next(numbers)}" if each.reply is None else each.reply) for each in messages
    ]


def wait_until_cleared(folder: Path) -> None:
    """Wait until nothing is left of a stream: the real server cleans up after its answer."""
    give_up_s = time.monotonic() + WAIT_S
    # The folder of all streams stays while it is not empty.
    (folder.parent / ".kept").mkdir(exist_ok=True, parents=True)
    while folder.exists() or folder.with_name(f".{folder.name}").exists():
        assert time.monotonic() < give_up_s, f"{folder} is still there"
        os.sched_yield()


def ask_reference(client: NatsClient, asked: Case, store_dir: Path) -> Outcome:
    wait_until_cleared(store_dir / "jetstream/$G/streams/S")
    client.api("STREAM.CREATE.S", asked.config)
    try:
        for message, reply in replies(asked.messages):
            headers = message.raw_headers or block(message.headers)
            client.publish(message.subject, message.body, headers=headers, reply=reply)
        # It is refused, and answered behind everything else.
        client.publish("s.end", headers=block({"Nats-Expected-Stream": "X"}), reply=SENTINEL)
        answers = []
        while (answer := client.next_delivery()).subject != SENTINEL:
            answers.append((answer.subject, answer.payload))
        state = client.api("STREAM.INFO.S")["state"]
        return Outcome(answers, reference_messages(client, state), numbers_of(state))
    finally:
        client.api("STREAM.DELETE.S")


def reference_messages(
    client: NatsClient, state: dict[str, Any]
) -> list[tuple[int, str, bytes, bytes]]:
    found = []
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        request = json.dumps({"seq": seq}).encode()
        answer = json.loads(client.request("$JS.API.STREAM.MSG.GET.S", request).payload)
        if "error" in answer:
            assert answer["error"]["err_code"] == NOT_FOUND
            continue
        message = answer["message"]
        headers = base64.b64decode(message.get("hdrs", ""))
        body = base64.b64decode(message.get("data", ""))
        found.append((seq, message["subject"], headers, body))
    return found


def numbers_of(state: dict[str, Any]) -> dict[str, int]:
    names = ("messages", "bytes", "first_seq", "last_seq", "num_deleted")
    return {name: state.get(name, 0) for name in names}


def ask_ours(house: StreamHouse, asked: Case) -> Outcome:
    return outcome_of(house, house.create(**asked.config), asked)


def outcome_of(house: StreamHouse, stream: Stream, asked: Case) -> Outcome:
    """Create a stream, publish to it and return the outcome."""
    for message, reply in replies(asked.messages):
        headers = message.raw_headers or block(message.headers)
        house.publish(message.subject, message.body, headers=headers, reply=reply)
    answers = [(answer.subject, answer.body) for answer in house.answers()]
    return Outcome(answers, our_messages(stream), our_numbers(stream))


def our_messages(stream: Stream) -> list[tuple[int, str, bytes, bytes]]:
    found = []
    state = stream.store.state()
    for seq in range(state.first_seq, state.last_seq + 1):
        try:
            message = stream.store.load(seq)
        except RecordNotFound:
            continue
        found.append((seq, message.subject.decode(), message.headers, message.payload))
    return found


def our_numbers(stream: Stream) -> dict[str, int]:
    state = stream.store.state()
    return {
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq if state.last_seq else 0,
        "last_seq": state.last_seq,
        "num_deleted": state.deleted,
    }
