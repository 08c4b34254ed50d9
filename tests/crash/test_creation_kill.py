"""A server that is killed while streams and consumers are created, changed and removed.

One client has many requests in flight, at most one for each name. The server is killed after a
random number of answers and started again on the same folder. Then every answered change is there,
an unanswered one is there as a whole or not at all, and every name can be used again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.client.client import Client
from penstock.testing.servers import server_process
from tests.crash.publishers import call
from tests.support.figures import Record

IN_FLIGHT_MAX = 20
ANSWERS_MAX = 150
"""The most answers that a server gives before it is killed."""

NAMES = [f"S{place}" for place in range(6)] + [f"BASE c{place}" for place in range(30)]

Version = int | None
"""What a stream or consumer was last told to be; None if it was removed or never there."""


@dataclass
class Story:
    """What is known of every stream and consumer, over all rounds."""

    random: Random
    known: dict[str, Version] = field(default_factory=lambda: dict.fromkeys(NAMES))
    asked: dict[bytes, tuple[str, Version]] = field(default_factory=dict)
    numbers: int = 0

    def ask(self, client: Client) -> None:
        """Create, change or remove something that no other request is about."""
        busy = {name for name, _ in self.asked.values()}
        name = self.random.choice([each for each in NAMES if each not in busy])
        self.numbers += 1
        before = self.known[name]
        wanted = None if before is not None and self.random.random() < 0.4 else self.numbers
        subject, body = request(name, wanted, is_new=before is None)
        self.asked[client.begin_request(subject, body)] = (name, wanted)

    def take_answer(self, client: Client) -> None:
        """Take the answer to the oldest request."""
        reply = next(iter(self.asked))
        answer = json.loads(client.next_answer(reply).payload)
        name, wanted = self.asked.pop(reply)
        assert "error" not in answer, (name, answer)
        self.known[name] = wanted

    def check(self, client: Client) -> None:
        """Hold what is there against what was answered, and go on from what is there."""
        found = dict(found_versions(client))
        for name in NAMES:
            allowed = {self.known[name]}
            allowed |= {wanted for each, wanted in self.asked.values() if each == name}
            assert found.get(name) in allowed, name
            self.known[name] = found.get(name)
        assert found.keys() <= set(NAMES)
        self.asked.clear()


def request(name: str, version: Version, *, is_new: bool) -> tuple[bytes, bytes]:
    """Return subject and body of the request that makes a name be what it shall be."""
    stream, _, consumer = name.partition(" ")
    metadata = {"version": str(version)}
    if version is None:
        verb = "CONSUMER.DELETE" if consumer else "STREAM.DELETE"
        return f"$JS.API.{verb}.{name.replace(' ', '.')}".encode(), b""
    if not consumer:
        config: dict[str, Any] = {"name": stream, "subjects": [stream], "metadata": metadata}
        verb = "CREATE" if is_new else "UPDATE"
        return f"$JS.API.STREAM.{verb}.{stream}".encode(), json.dumps(config).encode()
    config = {"durable_name": consumer, "ack_policy": "explicit", "metadata": metadata}
    body = {"stream_name": stream, "config": config}
    return f"$JS.API.CONSUMER.CREATE.{stream}.{consumer}".encode(), json.dumps(body).encode()


def found_versions(client: Client) -> Iterator[tuple[str, Version]]:
    """Yield the streams and consumers of the server; nothing may be offline."""
    streams = call(client, "STREAM.LIST")
    assert not streams.get("offline"), streams
    for stream in streams["streams"]:
        name = stream["config"]["name"]
        if name != "BASE":
            yield name, int(stream["config"]["metadata"]["version"])
    consumers = call(client, "CONSUMER.LIST.BASE")
    assert not consumers.get("offline"), consumers
    for consumer in consumers["consumers"] or []:
        yield f"BASE {consumer['name']}", int(consumer["config"]["metadata"]["version"])


def kill_under_load(client: Client, story: Story, answers: int) -> None:
    for _ in range(IN_FLIGHT_MAX):
        story.ask(client)
    client.send()
    for _ in range(answers):
        story.take_answer(client)
        story.ask(client)
        client.send()


def survive_kills(folder: Path, kills: int, seed: int = 0) -> int:
    """Kill a server again and again; return how many changes it had answered."""
    answered = 0
    story = Story(Random(seed))
    server = server_process(store_dir=folder)
    with Client.connect(server.url) as client:
        call(client, "STREAM.CREATE.BASE", {"name": "BASE", "subjects": ["base"]})
    for _ in range(kills):
        with Client.connect(server.url) as client:
            wanted = story.random.randint(1, ANSWERS_MAX)
            kill_under_load(client, story, wanted)
            answered += wanted
            server.kill()
            try:
                while story.asked:
                    story.take_answer(client)
            except ConnectionError:
                pass
        server = server_process(store_dir=folder)
        with Client.connect(server.url) as client:
            story.check(client)
    with server, Client.connect(server.url) as client:
        remove_all(client, story)
    assert not list(folder.glob("**/consumers/*"))
    assert not list(folder.glob("**/*.tmp"))
    assert not list(folder.glob("**/*.journal"))
    return answered


def remove_all(client: Client, story: Story) -> None:
    """Use every name once more, and remove it."""
    for name in NAMES:
        for version in (1, None):
            subject, body = request(name, version, is_new=story.known[name] is None)
            answer = json.loads(client.request(subject, body).payload)
            assert "error" not in answer, (name, answer)


@pytest.mark.slow
def test_a_server_killed_ten_times_has_all_that_it_answered_and_nothing_half(
    tmp_path: Path,
) -> None:
    survive_kills(tmp_path, 10)


@pytest.mark.soak
def test_a_server_killed_two_hundred_times_has_all_that_it_answered_and_nothing_half(
    tmp_path: Path, record_property: Record
) -> None:
    record_property("changes answered", survive_kills(tmp_path, 200, seed=1))
