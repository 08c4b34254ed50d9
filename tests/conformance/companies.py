"""Clients of several accounts of one server, and what each of them receives."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.conformance.servers import Pair
from tests.conformance.transcripts import Peer, comparable, frames_of

_VARIES = re.compile(
    rb'"(rtt|start|id|server)":("[^"]*"|\d+)|_R_\.[\w.]+|(?<=Time-Stamp: )[-:.\w]+'
)
_SIZES = re.compile(rb"(HMSG [^\r]*?) \d+ \d+\r\n")


class Company:
    """Clients by name that connect when they are first used; all are closed with the block."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._peers: dict[str, Peer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for peer in self._peers.values():
            peer.close()

    def peer(self, member: str, **fields: Any) -> Peer:
        """Return a client; fields are added to its CONNECT."""
        if member not in self._peers:
            known = {"user": member, "pass": "p", "headers": True, "no_responders": True}
            greeting = {"verbose": False, **known, **fields}
            peer = self._peers[member] = Peer(self._port)
            peer.send(f"CONNECT {json.dumps(greeting)}\r\n".encode())
            peer.wait()
            peer.forget()
        return self._peers[member]

    def say(self, member: str, *lines: str) -> None:
        """Send lines, and wait until the server has handled them."""
        peer = self.peer(member)
        peer.send("".join(f"{line}\r\n" for line in lines).encode())
        peer.wait()

    def frames(self, member: str) -> list[bytes]:
        """Return what a client received since the last call."""
        peer = self.peer(member)
        peer.wait()
        frames = frames_of(bytes(peer.received))
        peer.forget()
        return [frame for frame in comparable(frames) if frame != b"PONG\r\n"]

    def heard(self, *members: str) -> list[list[bytes]]:
        """Return what some clients received, without what differs from run to run."""
        return [[plain(frame) for frame in self.frames(member)] for member in members]


def plain(frame: bytes) -> bytes:
    """Return a message without what differs from run to run."""
    return _VARIES.sub(b"<varies>", _SIZES.sub(rb"\1\r\n", frame))


SomeCompany = TypeVar("SomeCompany", bound=Company)


def assert_same(
    pair: Pair, company: Callable[[int], SomeCompany], story: Callable[[SomeCompany], object]
) -> None:
    """Play a story on both servers and compare the outcomes."""
    told = []
    for server in (pair.ours, pair.reference):
        with company(server.port) as members:
            told.append(story(members))
    ours, real = told
    assert ours == real
    assert ours
