"""Members of several accounts of one server, and what each of them hears."""

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
    """Members who connect when they are first heard of; leave the block to let them go."""

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
        """Give somebody, who says so and more when connecting."""
        if member not in self._peers:
            known = {"user": member, "pass": "p", "headers": True, "no_responders": True}
            greeting = {"verbose": False, **known, **fields}
            peer = self._peers[member] = Peer(self._port)
            peer.send(f"CONNECT {json.dumps(greeting)}\r\n".encode())
            peer.wait()
            peer.forget()
        return self._peers[member]

    def say(self, member: str, *lines: str) -> None:
        """Send lines, and wait until they are dealt with."""
        peer = self.peer(member)
        peer.send("".join(f"{line}\r\n" for line in lines).encode())
        peer.wait()

    def frames(self, member: str) -> list[bytes]:
        """Give what somebody heard since the last time."""
        peer = self.peer(member)
        peer.wait()
        frames = frames_of(bytes(peer.received))
        peer.forget()
        return [frame for frame in comparable(frames) if frame != b"PONG\r\n"]

    def heard(self, *members: str) -> list[list[bytes]]:
        """Give what some heard, without what differs from one time to the other."""
        return [[plain(frame) for frame in self.frames(member)] for member in members]


def plain(frame: bytes) -> bytes:
    """Give a message without what differs from one time to the other."""
    return _VARIES.sub(b"<varies>", _SIZES.sub(rb"\1\r\n", frame))


SomeCompany = TypeVar("SomeCompany", bound=Company)


def assert_same(
    pair: Pair, company: Callable[[int], SomeCompany], story: Callable[[SomeCompany], object]
) -> None:
    """Compare what a story comes to with ours and with the real server."""
    told = []
    for server in (pair.ours, pair.reference):
        with company(server.port) as members:
            told.append(story(members))
    ours, real = told
    assert ours == real
    assert ours
