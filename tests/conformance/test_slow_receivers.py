"""Receivers that do not read: each costs what it may, is cut, and delays no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.scripts import QUIET
from tests.conformance.servers import OURS, REFERENCE
from tests.conformance.transcripts import Peer
from tests.monitor.compared import Watched

pytestmark = pytest.mark.slow

BODY_BYTES = 500_000
MESSAGE = b"PUB big %d\r\n" % BODY_BYTES + b"x" * BODY_BYTES + b"\r\n"
DELIVERED = b"MSG big 1 %d\r\n" % BODY_BYTES
MESSAGES = 60
"""Far more than a limit of some megabytes and the kernel's buffers hold together."""

BOTH = [
    pytest.param(REFERENCE, marks=pytest.mark.oracle, id="reference"),
    pytest.param(OURS, id="ours"),
]


class Room:
    """A server with a sender, a receiver that reads, and some that do not."""

    def __init__(self, server: Watched, deaf: int) -> None:
        self.server = server
        self.deaf = [self._peer(b"SUB big 1\r\n") for _ in range(deaf)]
        self.keen = self._peer(b"SUB big 1\r\n")
        self.sender = self._peer(b"")

    def _peer(self, operations: bytes) -> Peer:
        peer = Peer(self.server.port)
        peer.send(QUIET.encode() + operations)
        peer.wait()
        return peer

    def publish(self) -> None:
        """Send messages one by one, each when the reading receiver has the one before."""
        for _ in range(MESSAGES):
            self.sender.send(MESSAGE)
            self.sender.wait()
            self.keen.wait()
            assert self.keen.received.count(DELIVERED) == 1
            self.keen.forget()

    def page(self, path: str) -> dict[str, Any]:
        """Return a page of the server's monitoring."""
        page: dict[str, Any] = json.loads(self.server.get(path)[2])
        return page

    def close(self) -> None:
        for peer in (*self.deaf, self.keen, self.sender):
            peer.close()


@contextmanager
def room(
    folder: Path, settings: str, *, deaf: int = 1, command: tuple[str, ...] = OURS
) -> Iterator[Room]:
    """Start a server with clients; its log shows no unhandled error."""
    config = folder / "server.conf"
    config.write_text(f'http: "127.0.0.1:-1"\n{settings}\n')
    with ExitStack() as stack:
        server = stack.enter_context(Watched(command, config))
        made = Room(server, deaf)
        stack.callback(made.close)
        yield made
    assert "Traceback" not in server.log
    assert "Internal error" not in server.log


@pytest.mark.parametrize("command", BOTH)
def test_a_receiver_with_too_much_waiting_is_cut_and_others_are_not_held_up(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with room(tmp_path, "max_pending: 2MB", command=command) as met:
        met.publish()
        met.server.wait_for("Slow Consumer Detected: MaxPending of 2097152 Exceeded")
        (deaf,) = met.deaf
        deaf.wait_closed()

        assert 0 < deaf.received.count(DELIVERED) < MESSAGES


@pytest.mark.parametrize("command", BOTH)
def test_a_receiver_that_takes_nothing_until_the_deadline_is_cut(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    with room(tmp_path, 'write_deadline: "300ms"', command=command) as met:
        met.publish()
        met.server.wait_for("Slow Consumer Detected: WriteDeadline")
        (deaf,) = met.deaf
        deaf.wait_closed()

        told = r"WriteDeadline of 300ms exceeded with \d+ chunks of \d+ total bytes\.\n"
        assert re.search(told, met.server.log)
        assert 0 < deaf.received.count(DELIVERED) < MESSAGES


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("max_pending: 2MB", "Slow Consumer (Pending Bytes)"),
        ('write_deadline: "300ms"', "Slow Consumer (Write Deadline)"),
    ],
)
def test_monitoring_tells_of_receivers_that_were_cut(
    tmp_path: Path, settings: str, reason: str
) -> None:
    with room(tmp_path, settings, deaf=2) as met:
        met.publish()
        met.server.wait_for("Slow Consumer Detected", times=2)

        server = met.page("/varz")
        assert server["slow_consumers"] == 2
        assert server["slow_consumer_stats"]["clients"] == 2
        closed = met.page("/connz?state=closed")["connections"]
        assert [each["reason"] for each in closed] == [reason] * 2
        assert met.page("/connz")["num_connections"] == 2


@pytest.mark.parametrize("deaf", [1, 3])
def test_a_receiver_costs_at_most_what_may_wait_for_it(tmp_path: Path, deaf: int) -> None:
    with room(tmp_path, "max_pending: 16MB", deaf=deaf) as met:
        before = met.server.resident_bytes

        met.publish()
        met.server.wait_for("Slow Consumer Detected", times=deaf)

        grown = met.server.peak_resident_bytes - before
        assert 0.8 * 16 * 2**20 * deaf < grown < 16 * 2**20 * deaf + 5_000_000
        # And its memory is freed.
        assert met.server.resident_bytes - before < 5_000_000
