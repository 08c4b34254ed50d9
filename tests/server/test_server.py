"""The server as an object: started and stopped in a program's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import nats
import pytest
import uvloop

from penstock.config.options.server import AuthorizationOptions, ServerOptions
from penstock.errors import CannotListen
from penstock.limits import TURN_TOLD_APART_NS, TURN_TOLD_NS
from penstock.server.server import Server
from penstock.testing.clock import FakeClock
from tests.support.settling import settle

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def run(
    scenario: Callable[[], Awaitable[None]],
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:
    async def main() -> None:
        await scenario()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def options(**fields: int) -> ServerOptions:
    return ServerOptions(host="127.0.0.1", port=-1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
def test_it_serves_clients_in_the_same_program(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        async with Server(options()) as server:
            client = await nats.connect(server.url)
            subscription = await client.subscribe("foo")
            await client.publish("foo", b"hi")
            assert (await subscription.next_msg(30)).data == b"hi"
            await client.close()

    run(scenario, loop)


def test_a_server_that_stopped_lets_go_of_its_port_and_its_clients() -> None:
    async def scenario() -> None:
        async with Server(options()) as first:
            reader, writer = await asyncio.open_connection("127.0.0.1", first.port)
            await reader.readline()
        assert await reader.read() == b""
        writer.close()
        assert first.clients.connections == {}
        async with Server(ServerOptions(host="127.0.0.1", port=first.port)) as second:
            assert second.port == first.port

    run(scenario)


def test_a_port_that_is_taken_is_told_by_its_name() -> None:
    async def scenario() -> None:
        async with Server(options()) as first:
            with pytest.raises(CannotListen) as refused:
                await Server(ServerOptions(host="127.0.0.1", port=first.port)).start()
            assert refused.value.what == "clients"
            assert refused.value.port == first.port
            assert refused.value.reason == "address already in use"

    run(scenario)


def test_monitoring_that_cannot_listen_leaves_no_port_open() -> None:
    async def scenario() -> None:
        async with Server(options()) as first:
            second = Server(options(http_port=first.port))
            with pytest.raises(CannotListen) as refused:
                await second.start()
            assert refused.value.what == "monitoring"
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", second.port)

    run(scenario)


def test_an_error_that_nobody_foresaw_ends_one_connection_and_is_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def scenario() -> None:
        def broken(*_: object) -> NoReturn:
            raise ZeroDivisionError("a bug")

        async with Server(options()) as server:
            healthy = await nats.connect(server.url)
            server.identities.identify = broken  # type: ignore[assignment, method-assign]
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await reader.readline()
            writer.write(b"CONNECT {}\r\nPING\r\n")
            assert await reader.read() == b""
            writer.close()
            await settle(healthy)
            await healthy.close()

    run(scenario)

    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "Internal error: ZeroDivisionError: a bug" in line] == lines
    assert len(lines) == 1


def test_a_token_is_asked_for_and_known() -> None:
    async def scenario() -> None:
        secured = ServerOptions(
            host="127.0.0.1", port=-1, authorization=AuthorizationOptions(token="secret")
        )
        async with Server(secured) as server:
            client = await nats.connect(server.url, token="secret")
            await settle(client)
            await client.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await reader.readline()
            writer.write(b'CONNECT {"auth_token":"guess"}\r\n')
            assert await reader.read() == b"-ERR 'Authorization Violation'\r\n"
            writer.close()

    run(scenario)


def test_a_turn_that_is_far_too_long_is_told_in_the_log_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, lines = FakeClock(), list[str]()
    server = Server(options(), clock=clock)
    monkeypatch.setattr(server, "log", lambda level, text: lines.append(f"{level} {text}"))
    passed_ns = 1
    server.turns.note(passed_ns, 0)

    def told_of(turn_ns: int) -> list[str]:
        nonlocal passed_ns
        lines.clear()
        passed_ns += turn_ns
        clock.advance_ns(turn_ns)
        server.turns.note(passed_ns, 0)
        return lines

    assert told_of(TURN_TOLD_NS) == []
    waited = "WRN Clients have waited 150 ms for a turn of the event loop"
    assert told_of(150_000_000) == [waited]
    assert told_of(150_000_000) == []
    clock.advance_ns(TURN_TOLD_APART_NS)
    assert told_of(150_000_000) == [waited]
