"""The HTTP server of the monitoring pages: what it takes, what it refuses, what bounds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from penstock.limits import (
    MONITOR_CONNECTIONS_MAX,
    MONITOR_REQUEST_BYTES_MAX,
    MONITOR_TURN_NS,
)
from penstock.monitor.http import HttpServer
from penstock.monitor.pages import PLAIN, Page, SlicedPage
from penstock.net.listener import ListeningSockets
from penstock.testing.clock import FakeClock

Talk = Callable[[bytes], Awaitable[bytes]]


class Echo:
    """Pages that say what was asked; one of them fails."""

    def answer(self, path: str, query: str) -> Page:
        if path == "/broken":
            raise RuntimeError("a page that fails")
        return Page(200, PLAIN, f"{path}?{query}".encode(), shared=True)


class LongPage:
    """A page in many slices, each of which takes half of the share of a turn."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns: list[int] = []
        self.turn = 0

    def answer(self, path: str, query: str) -> SlicedPage:
        asyncio.get_running_loop().call_soon(self._next_turn)
        for _ in range(10):
            self.turns.append(self.turn)
            self.clock.advance_ns(MONITOR_TURN_NS // 2)
            yield
        return Page(200, PLAIN, b"long")

    def _next_turn(self) -> None:
        self.turn += 1
        if self.turn < 100:
            asyncio.get_running_loop().call_soon(self._next_turn)


class Port:
    """A listening server and what it logged."""

    def __init__(self, server: HttpServer, log: list[str]) -> None:
        self.server = server
        self.log = log

    async def talk(self, data: bytes) -> bytes:
        """Send bytes and give all that comes back until the server closes."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await reader.read()
        finally:
            writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection."""
        return await asyncio.open_connection("127.0.0.1", self.server.port)


@asynccontextmanager
async def listening(*, wait_s: float = 10.0) -> AsyncIterator[Port]:
    log: list[str] = []
    server = HttpServer(Echo(), lambda level, text: log.append(f"{level} {text}"), wait_s=wait_s)
    await server.start(ListeningSockets().take("127.0.0.1", -1))
    try:
        yield Port(server, log)
    finally:
        await server.stop()


async def answered(data: bytes) -> bytes:
    async with listening() as port:
        return await port.talk(data)


def status_of(data: bytes) -> int:
    return int(asyncio.run(answered(data)).split()[1])


def test_page_is_sent_with_its_length_and_for_everybody() -> None:
    answer = asyncio.run(
        answered(b"GET /a%20b?c=%31 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    )

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nAccess-Control-Allow-Origin: *\r\n" in head
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head
    assert body == b"/a b?c=%31"


def test_head_is_answered_without_a_body() -> None:
    answer = asyncio.run(answered(b"HEAD /page HTTP/1.0\r\n\r\n"))

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Length: 6" in head
    assert body == b""


def test_connection_serves_several_requests() -> None:
    one = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    answer = asyncio.run(answered(one % 1 + one % 2 + last))

    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.endswith(b"/3?")


def test_whole_address_in_the_request_line_is_understood() -> None:
    answer = asyncio.run(answered(b"GET http://x:1/varz?a=1 HTTP/1.0\r\n\r\n"))

    assert answer.endswith(b"/varz?a=1")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"garbage\r\n\r\n", 400),
        (b"GET /  HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n", 400),
        (b"GET http://[x/ HTTP/1.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\xff\xfe\r\n\r\n", 400),
        (b"\x00 / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"G@T / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /" + b"a" * MONITOR_REQUEST_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * MONITOR_REQUEST_BYTES_MAX, 431),
        (b"GET /broken HTTP/1.0\r\n\r\n", 500),
    ],
)
def test_what_is_not_a_request_is_refused_and_the_connection_closed(
    data: bytes, status: int
) -> None:
    assert status_of(data) == status


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"])
def test_a_page_is_given_whatever_the_method(method: bytes) -> None:
    data = method + b" /page HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"

    answer = asyncio.run(answered(data))

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n/page?" in answer


def test_a_path_with_two_slashes_is_a_path() -> None:
    answer = asyncio.run(answered(b"GET //page#x HTTP/1.0\r\n\r\n"))

    assert answer.endswith(b"\r\n\r\n//page#x?")


def test_request_with_a_body_is_the_last_of_its_connection() -> None:
    data = (
        b"GET /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n"
    )

    assert asyncio.run(answered(data)).endswith(b"/1?")


def test_page_that_fails_is_one_line_in_the_log() -> None:
    async def scenario() -> list[str]:
        async with listening() as port:
            answer = await port.talk(b"GET /broken HTTP/1.0\r\n\r\n")
            assert b"a page that fails" not in answer
            return port.log

    assert asyncio.run(scenario()) == [
        "ERR Error answering '/broken': RuntimeError: a page that fails"
    ]


def test_client_that_does_not_finish_its_request_is_cut_off() -> None:
    async def scenario() -> bytes:
        async with listening(wait_s=0.01) as port:
            return await port.talk(b"GET / HTTP/1.1\r\nHost:")

    assert asyncio.run(scenario()) == b""


def test_one_connection_too_many_is_closed_and_the_others_are_served() -> None:
    async def scenario() -> tuple[bytes, bytes]:
        async with listening() as port:
            first, *others = [await port.connect() for _ in range(MONITOR_CONNECTIONS_MAX)]
            try:
                surplus = await port.talk(b"")
            except ConnectionError:
                surplus = b""
            reader, writer = first
            writer.write(b"GET /first HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            for _, each in (first, *others):
                each.close()
            return surplus, answer

    surplus, answer = asyncio.run(scenario())

    assert surplus == b""
    assert answer.endswith(b"/first?")


def test_stopping_ends_connections_that_wait() -> None:
    async def scenario() -> bytes:
        async with listening() as port:
            reader, writer = await port.connect()
            writer.write(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"/1?")
        rest = await reader.read()
        writer.close()
        return rest

    assert asyncio.run(scenario()) == b""


def test_a_long_page_leaves_turns_to_others() -> None:
    async def scenario() -> tuple[bytes, list[int]]:
        pages = LongPage()
        server = HttpServer(pages, lambda level, text: None, clock=pages.clock)
        await server.start(ListeningSockets().take("127.0.0.1", -1))
        try:
            answer = await Port(server, []).talk(b"GET / HTTP/1.0\r\n\r\n")
        finally:
            await server.stop()
        return answer, pages.turns

    answer, turns = asyncio.run(scenario())
    assert answer.endswith(b"\r\n\r\nlong")
    # Two slices, then others have their turn.
    assert turns == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
