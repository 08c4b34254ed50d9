"""Lame duck mode, as clients see it: the same on both servers."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import nats
import pytest

from penstock.testing.servers import BOTH, ServerProcess
from tests.support.dialogue import Dialogue
from tests.support.settling import settle

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

both = pytest.mark.parametrize("name", BOTH)


def config(folder: Path, grace: str) -> str:
    file = folder / "server.conf"
    file.write_text(
        f'listen: 127.0.0.1:-1\nlame_duck_duration: "30s"\nlame_duck_grace_period: "{grace}"\n'
    )
    return str(file)


@pytest.fixture
def short(tmp_path: Path) -> str:
    """A file with which clients are let go at once."""
    return config(tmp_path, "10ms")


@both
def test_a_server_without_clients_ends_at_once(name: str, tmp_path: Path) -> None:
    with ServerProcess(name, "-c", config(tmp_path, "10s")) as server:
        server.wait_for("Server is ready")

        server.signal(signal.SIGUSR2, "Entering lame duck mode, stop accepting new clients")

        assert server.wait() == 0
        assert server.messages[-1] == "[INF] Server Exiting.."


@both
def test_clients_that_understand_are_told_and_all_are_let_go(name: str, short: str) -> None:
    with (
        ServerProcess(name, "-c", short) as server,
        Dialogue(server.port) as modern,
        Dialogue(server.port) as old,
    ):
        assert len(modern.login(protocol=1)) <= 1
        if (after := modern.answers()) != []:
            assert after[0].startswith("INFO ")
        assert old.login(protocol=0) == []

        server.signal(signal.SIGUSR2, "Closing existing clients")

        told = modern.next()
        assert json.loads(told.removeprefix("INFO "))["ldm"] is True
        assert modern.next() == "closed"
        assert old.next() == "closed"
        assert server.wait() == 0
        assert "[INF] Closing existing clients" in server.messages


@both
def test_nobody_new_is_let_in(name: str, tmp_path: Path) -> None:
    with (
        ServerProcess(name, "-c", config(tmp_path, "20s")) as server,
        Dialogue(server.port) as client,
    ):
        assert len(client.login(protocol=1)) <= 1
        port = server.port

        server.signal(signal.SIGUSR2, "Entering lame duck mode")
        while "ldm" not in client.next():
            pass

        with pytest.raises(ConnectionRefusedError):
            Dialogue(port)
        assert client.answers() == []


@both
def test_a_server_that_leaves_is_not_hurried_by_term_but_by_interrupt(
    name: str, tmp_path: Path
) -> None:
    with (
        ServerProcess(name, "-c", config(tmp_path, "20s")) as server,
        Dialogue(server.port) as client,
    ):
        assert client.login() == []
        server.signal(signal.SIGUSR2, "Entering lame duck mode")

        server.signal(signal.SIGTERM, 'Trapped "terminated" signal')
        assert client.answers() == []
        server.signal(signal.SIGINT, 'Trapped "interrupt" signal')

        assert server.wait() == 0
        assert client.next() == "closed"


@both
def test_a_real_client_hears_of_it_and_goes_on_elsewhere(name: str, short: str) -> None:
    async def scenario(leaving: ServerProcess, other: ServerProcess) -> int:
        moved = asyncio.Event()

        async def reconnected() -> None:
            moved.set()

        client = await nats.connect(
            [f"nats://127.0.0.1:{leaving.port}", f"nats://127.0.0.1:{other.port}"],
            dont_randomize=True,
            reconnect_time_wait=0,
            reconnected_cb=reconnected,
        )
        leaving.signal(signal.SIGUSR2)
        await asyncio.wait_for(moved.wait(), 30)
        await settle(client)
        assert client.connected_url is not None
        port = client.connected_url.port
        await client.close()
        assert port is not None
        return port

    with (
        ServerProcess(name, "-c", short) as leaving,
        ServerProcess("penstock", "-p", "-1") as other,
    ):
        assert asyncio.run(scenario(leaving, other)) == other.port
        assert leaving.wait() == 0
