"""Listening sockets: a client is accepted, if not at once then as soon as there is room."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Iterator

from penstock.net.listener import Listener, ListeningSockets


@contextlib.contextmanager
def room_for_files(count: int) -> Iterator[None]:
    """Let this process open so many files and no more."""
    free = [os.dup(0) for _ in range(count)]
    for each in free:
        os.close(each)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Door:
    """A listener, who came in, and what it told the log."""

    def __init__(self) -> None:
        self.accepted: list[socket.socket] = []
        self.logged: list[str] = []
        self.changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        listening = ListeningSockets().take("127.0.0.1", -1)
        self.listener = Listener(loop, listening, "127.0.0.1", self.take, self.log)
        self.clients: list[socket.socket] = []

    def take(self, accepted: socket.socket) -> None:
        self.accepted.append(accepted)
        self.changed.set()

    def log(self, level: str, text: str) -> None:
        self.logged.append(f"{level} {text}")
        self.changed.set()

    def knock(self, count: int) -> None:
        """Connect; the kernel answers, whether or not anybody accepts."""
        place = ("127.0.0.1", self.listener.port)
        self.clients += [socket.create_connection(place) for _ in range(count)]

    async def wait(self, *, accepted: int = 0, logged: int = 0) -> None:
        async with asyncio.timeout(20):
            while len(self.accepted) < accepted or len(self.logged) < logged:
                self.changed.clear()
                await self.changed.wait()

    def close(self) -> None:
        self.listener.close()
        for each in (*self.clients, *self.accepted):
            each.close()


@contextlib.contextmanager
def door() -> Iterator[Door]:
    """Return a listener that is not started yet."""
    made = Door()
    try:
        yield made
    finally:
        made.close()


def test_a_burst_is_accepted_whole() -> None:
    async def story() -> None:
        with door() as met:
            met.knock(200)
            met.listener.start()

            await met.wait(accepted=200)

            assert not met.logged

    asyncio.run(story())


def test_without_room_for_more_files_it_pauses_longer_each_time_and_says_so() -> None:
    async def story() -> None:
        with door() as met:
            met.knock(5)
            with room_for_files(2):
                met.listener.start()
                await met.wait(accepted=2, logged=3)
                assert len(met.accepted) == 2

            place = f"127.0.0.1:{met.listener.port}"
            reason = f"accept tcp {place}: accept4: too many open files"
            assert met.logged[:3] == [
                f"ERR Temporary Client Accept Error({reason}), sleeping {pause_ms}ms"
                for pause_ms in (10, 20, 40)
            ]

    asyncio.run(story())


def test_who_waits_is_accepted_when_there_is_room_again() -> None:
    async def story() -> None:
        with door() as met:
            met.knock(5)
            with room_for_files(2):
                met.listener.start()
                await met.wait(logged=1)

            await met.wait(accepted=5)

    asyncio.run(story())


def test_a_listener_that_was_closed_while_it_paused_stays_closed() -> None:
    async def story() -> None:
        with door() as met:
            met.knock(3)
            with room_for_files(1):
                met.listener.start()
                await met.wait(logged=1)
            met.listener.close()

            met.listener._resume()

            assert len(met.accepted) == 1

    asyncio.run(story())
