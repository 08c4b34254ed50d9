"""Stories about mirrors and sources, played on the real server and on ours alike."""

from __future__ import annotations

import json
import os
import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from penstock.stream.replication.source import short_hash
from penstock.testing.servers import WAIT_S, ServerProcess, reference_server, server_process
from tests.support.nats_client import NatsClient

SERVERS = (reference_server, server_process)


class Kept(NamedTuple):
    """A message in a stream."""

    seq: int
    subject: str
    headers: str
    data: str
    time: str


class Side(NatsClient):
    """One of both servers."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.url = f"nats://127.0.0.1:{port}"

    def make(self, name: str, **config: Any) -> dict[str, Any]:
        """Create a stream."""
        return self.api(f"STREAM.CREATE.{name}", {"name": name} | config)

    def change(self, name: str, **config: Any) -> dict[str, Any]:
        """Change a stream."""
        return self.api(f"STREAM.UPDATE.{name}", {"name": name} | config)

    def origin(self, name: str, count: int = 6, **config: Any) -> None:
        """Create a stream with messages that others can take: of two kinds, each with a number."""
        self.make(name, subjects=[f"{name}.>"], **config)
        for number in range(count):
            self.put(f"{name}.{number % 2}.{number}", b"%d" % number)

    def put(self, subject: str, data: bytes = b"", **headers: str) -> dict[str, Any]:
        """Publish and wait for the acknowledgement; `_` in a header's name stands for `-`."""
        lines = (f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        block = f"NATS/1.0\r\n{''.join(lines)}\r\n".encode() if headers else b""
        answer: dict[str, Any] = json.loads(self.request(subject, data, headers=block).payload)
        return answer

    def drop(self, name: str, *seqs: int) -> None:
        """Purge messages."""
        for seq in seqs:
            self.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})

    def info(self, name: str) -> dict[str, Any]:
        """Return the information of a stream."""
        return self.api(f"STREAM.INFO.{name}", {"deleted_details": True})

    def wait(self, name: str, is_ready: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a stream is as it should become."""
        give_up_s = time.monotonic() + WAIT_S
        while not is_ready(info := self.info(name)):
            assert time.monotonic() < give_up_s, f"{name} stays {info}"
            os.sched_yield()
        return info

    def wait_for(self, name: str, last_seq: int) -> dict[str, Any]:
        """Wait until a stream has reached a sequence."""
        return self.wait(name, lambda info: bool(info["state"]["last_seq"] >= last_seq))

    def kept(self, name: str) -> list[Kept]:
        """Return all messages of a stream."""
        state = self.info(name)["state"]
        gone = set(state.get("deleted", ()))
        seqs = range(max(state["first_seq"], 1), state["last_seq"] + 1)
        found = []
        for seq in seqs:
            if seq not in gone:
                message = self.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
                headers = b64decode(message.get("hdrs", "")).decode()
                data = b64decode(message.get("data", "")).decode()
                found.append(Kept(seq, message["subject"], headers, data, message["time"]))
        return found

    def identity(self, name: str) -> str:
        """Return the identity of a stream."""
        return short_hash(self.info(name)["created"])

    def picture(self, name: str) -> list[Any]:
        """Return a stream's information without what differs: times and creators."""
        info = self.info(name)
        state, mirror = info["state"], info.get("mirror", {})
        numbers = [state[field] for field in ("messages", "bytes", "last_seq")]
        if state["last_seq"]:
            # The first sequence of a stream that never had a message differs.
            numbers += [state["first_seq"], *state.get("deleted", ())]
        messages = [
            (
                each.seq,
                each.subject,
                re.sub(r" \w{8}\r\n", " IDENTITY\r\n", each.headers),
                each.data,
            )
            for each in self.kept(name)
        ]
        origins = [mirror, *sorted(info.get("sources", ()), key=lambda each: str(each["name"]))]
        for origin in origins:
            origin.pop("active", None)
        return [numbers, messages, origins]


Story = Callable[[Side], list[str]]
"""Plays it on one server, and returns the streams to compare."""


def check_alike(both: tuple[Side, Side], story: Story) -> None:
    """Play a story on both servers, and compare the outcomes."""
    theirs, ours = both
    names = story(theirs)
    assert story(ours) == names
    for name in names:
        assert ours.picture(name) == theirs.picture(name)


def restarted(server: ServerProcess, folder: Path, *, is_killed: bool) -> ServerProcess:
    """Restart our server."""
    if is_killed:
        server.kill()
    else:
        server.stop()
    return server_process(store_dir=folder)


@contextmanager
def sides(folder: Path) -> Iterator[tuple[Side, Side]]:
    """Return the real server and ours."""
    with (
        reference_server(store_dir=folder / "theirs") as theirs,
        server_process(store_dir=folder / "ours") as ours,
        Side(theirs.port) as their_side,
        Side(ours.port) as our_side,
    ):
        yield their_side, our_side
