"""A server that is killed under a load of publishes: it keeps every promise that it made.

In each round publishers send ahead to several streams, the server is killed once it has given a
random number of acknowledgements, and started again on the same folder. Each stream then has every
acknowledged message under the sequence of its acknowledgement, once and in order; what was sent
behind those is there or not, without a gap.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from penstock.client.client import Client
from penstock.testing.servers import ServerProcess, server_process
from tests.crash.publishers import Kind, Publisher, call, stored_numbers
from tests.support.figures import Record

KINDS = [
    Kind("PLAIN"),
    Kind("PACKED", {"compression": "s2"}),
    Kind("NAMED", has_ids=True),
    Kind(
        "GUARDED",
        {
            "discard": "new",
            "max_bytes": 2**30,
            "republish": {"src": "guarded.>", "dest": "copies.>"},
        },
    ),
    Kind("RENAMED", {"subject_transform": {"src": "renamed.*", "dest": "x.{{wildcard(1)}}"}}),
]
ACKS_MAX = 2_000
"""The most acknowledgements that a server gives for one stream before it is killed."""

SENT_AGAIN = 100
"""Messages that were acknowledged and are sent once more after the restart."""


class Story:
    """What is known of one stream over all rounds."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.next_number = 1
        self.last_seq = 0

    def check(self, client: Client, before: Publisher) -> None:
        """Hold what is stored against what was acknowledged, and go on behind it."""
        found = stored_numbers(client, self.kind, self.last_seq + 1)

        acked = {seq: number for number, seq in before.acked.items()}
        assert not acked.items() - found.items()
        numbers = list(found.values())
        assert numbers == list(range(self.next_number, self.next_number + len(numbers)))
        assert list(found) == list(range(self.last_seq + 1, self.last_seq + 1 + len(found)))

        self.last_seq += len(found)
        if self.kind.has_ids:
            self._send_again(client, before, found)
        self.next_number = before.next_number

    def _send_again(self, client: Client, before: Publisher, found: dict[int, int]) -> None:
        """Send again what was acknowledged last and what was not: each message is there once."""
        seqs = {number: seq for seq, number in found.items()}
        first = max(self.next_number, self.next_number + len(found) - SENT_AGAIN)
        again = Publisher(client, self.kind, first)
        for number in range(first, before.next_number):
            again.publish(number)
        client.send()
        for number in range(first, before.next_number):
            ack = again.take_ack()
            assert ack.get("duplicate", False) == (number in seqs), (number, ack)
            if number not in seqs:
                self.last_seq += 1
            assert again.acked[number] == seqs.get(number, self.last_seq)


def kill_under_load(server: ServerProcess, stories: list[Story], seed: int) -> list[Publisher]:
    """Publish to all streams until a random moment; give who did, with what was acknowledged."""
    wanted = Random(seed).randint(1, ACKS_MAX)
    clients = [Client.connect(server.url) for _ in stories]
    publishers = [
        Publisher(client, story.kind, story.next_number)
        for client, story in zip(clients, stories, strict=True)
    ]
    for publisher in publishers:
        publisher.fill()
    for _ in range(wanted):
        for publisher in publishers:
            publisher.take_ack()
            publisher.fill()
    server.kill()
    for publisher, client in zip(publishers, clients, strict=True):
        publisher.take_the_rest()
        client.close()
    return publishers


def survive_kills(folder: Path, kills: int) -> int:
    """Kill a server again and again; return how many messages its streams have in the end."""
    stories = [Story(kind) for kind in KINDS]
    server = server_process(store_dir=folder)
    with Client.connect(server.url) as client:
        for story in stories:
            story.kind.create(client)
    for seed in range(kills):
        publishers = kill_under_load(server, stories, seed)
        server = server_process(store_dir=folder)
        with Client.connect(server.url) as client:
            for story, publisher in zip(stories, publishers, strict=True):
                story.check(client, publisher)
    with server, Client.connect(server.url) as client:
        for story in stories:
            state = call(client, f"STREAM.INFO.{story.kind.name}")["state"]
            assert state["messages"] == state["last_seq"] == story.last_seq
    return sum(story.last_seq for story in stories)


@pytest.mark.slow
def test_a_server_killed_five_times_keeps_all_that_it_acknowledged(tmp_path: Path) -> None:
    survive_kills(tmp_path, 5)


@pytest.mark.soak
def test_a_server_killed_a_hundred_times_keeps_all_that_it_acknowledged(
    tmp_path: Path, record_property: Record
) -> None:
    record_property("messages kept", survive_kills(tmp_path, 100))
