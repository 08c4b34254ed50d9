"""What is decided about a connection: its beginning, its pings, its end. Real sockets only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.config.options.server import ServerOptions
from penstock.limits import SUBSCRIPTIONS_REMOVED_PER_TURN
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.server.server import Server
from penstock.testing.clock import FakeClock

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n'
INTERVAL_NS = 3600 * 10**9


class Client:
    """The other end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> bytes:
        """Send, and give what comes until the server has dealt with it."""
        self.writer.write(data + b"PING\r\n")
        return await self.reader.readuntil(b"PONG\r\n")

    async def line(self) -> bytes:
        """Return the next line."""
        async with asyncio.timeout(20):
            return await self.reader.readline()

    async def rest(self) -> bytes:
        """Return everything until the server closes."""
        async with asyncio.timeout(20):
            return await self.reader.read()


class Meeting:
    """A server with one client, and the server's side of it."""

    def __init__(self, server: Server, client: Client, connection: Connection) -> None:
        self.server = server
        self.client = client
        self.connection = connection


@asynccontextmanager
async def meeting(clock: FakeClock | None = None, **options: object) -> AsyncIterator[Meeting]:
    """Start a server and connect to it."""
    chosen = ServerOptions(host="127.0.0.1", port=-1, **options)  # type: ignore[arg-type]
    async with Server(chosen, clock=clock) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            client = Client(reader, writer)
            await client.line()
            (connection,) = server.clients.all()
            yield Meeting(server, client, connection)
        finally:
            writer.close()


def test_nothing_is_left_of_a_connection_that_closed() -> None:
    async def story() -> None:
        async with meeting() as met:
            sublist = met.connection.sublist
            before = sublist.count
            await met.client.say(QUIET + b"SUB a.* 1\r\nSUB b q 2\r\n")
            assert sublist.count == before + 2

            met.client.writer.write(b"NONSENSE")
            assert b"Unknown Protocol Operation" in await met.client.rest()

            assert sublist.count == before
            assert met.server.clients.all() == []
            assert met.connection.close_reason is ClosedReason.PROTOCOL_VIOLATION
            assert not met.connection.subscriptions

    asyncio.run(story())


def test_very_many_subscriptions_of_a_closed_connection_leave_in_turns() -> None:
    async def story() -> None:
        async with meeting() as met:
            sublist = met.connection.sublist
            before = sublist.count
            many = SUBSCRIPTIONS_REMOVED_PER_TURN * 2 + 1
            lines = (b"SUB a.%d %d\r\n" % (number, number) for number in range(many))
            await met.client.say(QUIET + b"".join(lines))
            assert sublist.count == before + many

            met.connection.close(ClosedReason.KICKED)

            for left in (SUBSCRIPTIONS_REMOVED_PER_TURN + 1, 1, 0):
                assert sublist.count == before + left
                assert met.server.hub.publish(sublist, b"a.%d" % (many - 1), None, b"", b"") == 0
                await asyncio.sleep(0)

    asyncio.run(story())


def test_a_client_that_asks_for_very_much_lets_others_have_their_turn() -> None:
    async def story() -> None:
        async with meeting() as met:
            await met.client.say(QUIET)
            await met.client.line()
            lines = (b"SUB a.%d %d\r\n" % (number, number) for number in range(1_200))

            met.connection.feed(b"".join(lines))

            for held in (500, 1_000, 1_200):
                assert len(met.connection.subscriptions) == held
                await asyncio.sleep(0)
            assert not met.connection.held
            assert await met.client.say(b"") == b"PONG\r\n"

    asyncio.run(story())


def test_who_waits_to_be_known_is_not_let_through_by_a_long_turn() -> None:
    async def story() -> None:
        async with meeting() as met:
            states = []
            for pause in (met.connection.on_long_turn, met.connection.hold):
                pause()
                states.append(met.connection.is_on_hold)
            await asyncio.sleep(0)
            states.append(met.connection.is_on_hold)
            met.connection.on_long_turn()
            await asyncio.sleep(0)
            states.append(met.connection.is_on_hold)

            assert states == [False, True, True, True]

    asyncio.run(story())


def test_closing_twice_tells_the_server_once() -> None:
    async def story() -> None:
        async with meeting() as met:
            met.connection.close(ClosedReason.KICKED)
            met.connection.close(ClosedReason.CLIENT_CLOSED)

            assert met.connection.close_reason is ClosedReason.KICKED
            assert len(met.server.clients.closed) == 1

    asyncio.run(story())


def test_the_first_pong_is_followed_by_a_second_info() -> None:
    async def story() -> None:
        async with meeting() as met:
            await met.client.say(QUIET)
            assert b'"connect_info":true' in await met.client.line()
            assert await met.client.say(b"") == b"PONG\r\n"

    asyncio.run(story())


def fire_ping_timer(met: Meeting) -> None:
    """Let the time of the next ping come."""
    met.connection._ping_timer()


def test_a_client_that_never_answers_is_stale_after_so_many_pings() -> None:
    async def story() -> None:
        clock = FakeClock(monotonic_ns=1)
        async with meeting(clock, ping_interval_ns=INTERVAL_NS, ping_max=2) as met:
            await met.client.say(QUIET)
            await met.client.line()

            for _ in range(3):
                clock.advance_ns(INTERVAL_NS)
                fire_ping_timer(met)

            ending = await met.client.rest()
            assert ending == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"

    asyncio.run(story())


def test_an_answer_keeps_a_client_from_being_stale() -> None:
    async def story() -> None:
        clock = FakeClock(monotonic_ns=1)
        async with meeting(clock, ping_interval_ns=INTERVAL_NS, ping_max=1) as met:
            await met.client.say(QUIET)
            await met.client.line()

            for _ in range(5):
                fire_ping_timer(met)
                assert await met.client.line() == b"PING\r\n"
                assert await met.client.say(b"PONG\r\n") == b"PONG\r\n"
                clock.advance_ns(INTERVAL_NS * 2)

            assert not met.connection.closed

    asyncio.run(story())


@pytest.mark.parametrize("activity", [b"PUB a 0\r\n\r\n", b"SUB a 1\r\n", b""])
def test_a_busy_client_is_not_pinged_once_its_distance_is_known(activity: bytes) -> None:
    async def story() -> None:
        clock = FakeClock(monotonic_ns=1)
        async with meeting(clock, ping_interval_ns=INTERVAL_NS // 2) as met:
            await met.client.say(QUIET)
            await met.client.line()
            fire_ping_timer(met)
            assert await met.client.line() == b"PING\r\n"
            await met.client.say(b"PONG\r\n")

            await met.client.say(activity)
            fire_ping_timer(met)

            assert await met.client.say(b"") == b"PONG\r\n"

    asyncio.run(story())


def test_the_end_of_the_client_is_noticed() -> None:
    async def story() -> None:
        async with meeting() as met:
            gone = asyncio.Event()
            left = met.server.clients.left

            def note(connection: Connection, reason: ClosedReason) -> None:
                left(connection, reason)
                gone.set()

            met.server.clients.left = note  # type: ignore[method-assign]
            met.client.writer.close()
            await asyncio.wait_for(gone.wait(), 20)

            assert met.connection.close_reason is ClosedReason.CLIENT_CLOSED

    asyncio.run(story())


def test_a_reset_connection_is_no_error_of_the_server() -> None:
    async def story() -> None:
        async with meeting() as met:
            sock = met.client.writer.get_extra_info("socket")
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
            )
            met.client.writer.transport.abort()
            reader, writer = await asyncio.open_connection("127.0.0.1", met.server.port)
            other = Client(reader, writer)
            await other.line()

            assert await other.say(b"") == b"PONG\r\n"
            assert met.connection not in met.server.clients.all()
            writer.close()

    asyncio.run(story())


def test_a_stalled_producer_is_not_read_before_its_time_whatever_else_ends() -> None:
    async def story() -> None:
        async with meeting() as met:
            await met.client.say(QUIET)
            await met.client.line()

            met.connection.on_stall()
            met.connection.hold()
            met.connection.proceed()
            # It has been sent to a server that does not read: only the end of the stall helps.
            met.client.writer.write(b"PING\r\n")
            await asyncio.sleep(0)
            assert not met.connection._reading

            assert await met.client.line() == b"PONG\r\n"

    asyncio.run(story())
