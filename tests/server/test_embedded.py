"""`penstock.Server`: servers inside a program, with either event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import pytest
import uvloop

import penstock
from penstock.errors import CannotListen, ConfigError, UsageError
from tests.support.settling import settle

NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def run(scenario: Callable[[], Awaitable[None]], loop: NewLoop = uvloop.new_event_loop) -> None:
    async def main() -> None:
        await scenario()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@LOOPS
def test_several_servers_live_in_one_program_and_know_nothing_of_each_other(loop: NewLoop) -> None:
    async def scenario() -> None:
        async with penstock.Server() as one, penstock.Server() as other:
            assert one.port != other.port
            assert one.host == "127.0.0.1"
            assert one.url == f"nats://127.0.0.1:{one.port}"
            here, there = await nats.connect(one.url), await nats.connect(other.url)
            heard, unheard = await here.subscribe("a"), await there.subscribe("a")
            await settle(here, there)
            await here.publish("a", b"hello")
            assert (await heard.next_msg(30)).data == b"hello"
            await settle(there)
            assert unheard.pending_msgs == 0
            await here.close()
            await there.close()

    run(scenario, loop)


@LOOPS
def test_a_server_tells_where_everything_is(loop: NewLoop) -> None:
    settings = 'server_name: inner, websocket { listen: "127.0.0.1:-1", no_tls: true }'

    async def scenario() -> None:
        async with penstock.Server(settings=settings, monitor_port=-1) as server:
            assert server.websocket_url is not None
            port = server.websocket_url.removeprefix("ws://127.0.0.1:")
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 400")
            writer.close()
            page = await asyncio.to_thread(fetch, f"{server.monitor_url}/varz")
            assert json.loads(page)["server_name"] == "inner"

    run(scenario, loop)


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as page:
        return bytes(page.read())


def test_without_monitoring_and_websockets_there_is_nowhere_to_go() -> None:
    server = penstock.Server()

    assert (server.monitor_url, server.websocket_url) == (None, None)


def test_arguments_count_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text('listen: "127.0.0.2:4444"\nhttp_port: 8333')

    assert (penstock.Server(config=file).host, penstock.Server(config=file).port) == (
        "127.0.0.2",
        4444,
    )
    server = penstock.Server(config=str(file), host="127.0.0.3", port=5555, monitor_port=9999)
    assert (server.host, server.port) == ("127.0.0.3", 5555)
    assert server.monitor_url == "http://127.0.0.3:9999"


def test_a_file_that_names_no_address_does_not_open_the_server_to_the_world(
    tmp_path: Path,
) -> None:
    file = tmp_path / "server.conf"
    file.write_text("max_payload: 1MB")

    server = penstock.Server(config=file)

    assert (server.host, server.port) == ("127.0.0.1", -1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("port: many", "expected an integer"),
        ("unheard_of: 1", "unheard_of"),
        ("tls { cert_file: '/no/such', key_file: '/no/such' }", "/no/such"),
    ],
    ids=["type", "key", "file"],
)
def test_a_configuration_that_cannot_be_is_an_exception(settings: str, told: str) -> None:
    with pytest.raises((ConfigError, UsageError), match=told):
        penstock.Server(settings=settings)


def test_a_file_and_settings_do_not_go_together() -> None:
    with pytest.raises(UsageError, match="not both"):
        penstock.Server(config="a.conf", settings="port: 1")


def test_a_file_is_read_again_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text("authorization { token: old }")

    async def scenario() -> None:
        async with penstock.Server(config=file) as server:
            file.write_text("authorization { token: new }")
            await server.reload()
            await (await nats.connect(server.url, token="new")).close()
            file.write_text("authorization { token: newer }, unheard_of: 1")
            with pytest.raises(ConfigError, match="unheard_of"):
                await server.reload()
            await (await nats.connect(server.url, token="new")).close()
            with pytest.raises(UsageError, match="is a file"):
                await server.reload("port: 1")

    run(scenario)


def test_settings_are_replaced_by_others() -> None:
    async def scenario() -> None:
        async with penstock.Server(settings="authorization { token: old }") as server:
            await server.reload("authorization { token: new }")
            await (await nats.connect(server.url, token="new")).close()
            with pytest.raises(UsageError, match="give new settings"):
                await server.reload()

    run(scenario)


def test_a_port_that_is_taken_is_an_exception() -> None:
    async def scenario() -> None:
        async with penstock.Server() as first:
            with pytest.raises(CannotListen, match="address already in use"):
                await penstock.Server(port=first.port).start()

    run(scenario)


def test_clients_are_let_go_before_a_server_leaves() -> None:
    async def scenario() -> None:
        server = penstock.Server()
        await server.start()
        reader, writer = await asyncio.open_connection(server.host, server.port)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        assert await reader.readline() == b"PONG\r\n"
        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(server.lame_duck())
            lines = [await reader.readline(), await reader.readline()]
            assert any(b'"ldm":true' in line for line in lines)
            leaving.cancel()
        await server.close()
        await server.close()
        assert await reader.read() == b""
        writer.close()

    run(scenario)


def test_its_log_goes_through_logging_and_nowhere_else(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        async with penstock.Server(settings="authorization { token: s3cret }") as server:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            await reader.readline()
            writer.write(b'CONNECT {"auth_token":"guess"}\r\n')
            assert await reader.read() == b"-ERR 'Authorization Violation'\r\n"
            writer.close()

    run(scenario)

    found = [(record.name, record.levelname) for record in caplog.records]
    assert ("penstock.server", "INFO") in found
    assert ("penstock.server", "ERROR") in found
    assert "authentication error" in caplog.text
    assert "s3cret" not in caplog.text
    assert capfd.readouterr().err == ""


def test_it_leaves_the_programs_signals_alone() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

    async def scenario() -> None:
        async with penstock.Server():
            now = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)]
            assert now == before[1:]

    run(scenario)


def test_importing_the_package_loads_no_part_of_it() -> None:
    program = (
        "import sys, penstock\n"
        "assert penstock.__version__\n"
        "loaded = [name for name in sys.modules if name.startswith('penstock')]\n"
        "assert loaded == ['penstock'], loaded\n"
        "assert 'asyncio' not in sys.modules\n"
        "assert penstock.Server.__name__ == 'EmbeddedServer'\n"
        "assert not hasattr(penstock, 'Other')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
