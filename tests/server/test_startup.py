"""How a server starts: what it loads, which is nothing that only others need, and when it is there.

Test-suites of clients start hundreds of servers; what each of them loads is what they wait for.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.net.listener import ListeningSockets
from penstock.testing.servers import WAIT_S, ServerProcess

LISTED = "import json; print(json.dumps(sorted(sys.modules)))"
SERVED = f"""
import asyncio, sys
from penstock.server.embedded import EmbeddedServer

async def main():
    async with EmbeddedServer(settings=sys.argv[1]):
        {LISTED}

asyncio.run(main())
"""
VERSION = f"""
import sys
from penstock.server.main import run

run(["--version"], {{}})
{LISTED}
"""
# A class whose methods dataclasses wrote takes fifty times as long to make as a Struct.
WRITTEN = """
import json, sys
import penstock.server.command_line, penstock.server.process, penstock.server.jetstream.service
from penstock.config.options.declare import Block

made = {
    one
    for name, module in list(sys.modules.items()) if name.startswith("penstock.")
    for one in vars(module).values()
    if isinstance(one, type) and "__dataclass_fields__" in vars(one)
}
written = [one for one in made if not issubclass(one, Block)]
print(json.dumps([f"{one.__module__}.{one.__name__}" for one in written]))
"""
HEAVY = {"aiohttp", "bcrypt", "cryptography", "prometheus_client", "rich", "typer", "uvloop"}
STREAMS = {f"penstock.{each}" for each in ("api", "consumer", "format", "store", "stream")}
REQUESTED = {"hmac", "html", "penstock.monitor.pages", "penstock.net.websocket"}
"""What a plain server loads when it is first needed."""

RARE = {"ctypes", "tarfile", "zoneinfo", "penstock.store.imports.from_go"}


def run(program: str, *arguments: str) -> set[str]:
    """Return the names that a program printed last."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "settings",
    ["port: -1", "port: -1, authorization { token: t }", "port: -1, http_port: -1"],
    ids=["plain", "a token", "monitoring"],
)
def test_a_server_loads_nothing_that_only_others_need(settings: str) -> None:
    assert run(SERVED, settings) & (HEAVY | STREAMS | RARE) == set()


def test_a_plain_server_loads_nothing_that_only_some_requests_need() -> None:
    assert run(SERVED, "port: -1") & REQUESTED == set()


def test_a_server_with_streams_loads_nothing_that_few_streams_need(tmp_path: Path) -> None:
    loaded = run(SERVED, f"port: -1, jetstream {{ store_dir: {json.dumps(str(tmp_path))} }}")

    assert loaded & (HEAVY | RARE) == set()
    assert loaded >= STREAMS


def test_no_class_that_a_server_loads_is_written_while_it_starts() -> None:
    assert run(WRITTEN) == set()


def test_the_version_is_told_without_loading_the_server() -> None:
    ours = {name for name in run(VERSION) if name.startswith("penstock.")}

    assert ours == {"penstock.server", "penstock.server.main", "penstock.server.version"}


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    with ListeningSockets().take("127.0.0.1", 0) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe in place of a stream's configuration: who reads it waits until somebody writes."""
    path = tmp_path / "jetstream" / "$G" / "streams" / "S" / "stream.json"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    return path


@pytest.fixture
def starting(port: int, gate: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that waits, on its way, for what is written to the gate."""
    arguments = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path)]
    with ServerProcess("penstock", *arguments) as server:
        server.wait_for("Starting JetStream")
        yield server


@pytest.mark.slow
def test_a_client_that_connects_while_the_server_starts_is_greeted_when_it_is_ready(
    starting: ServerProcess, port: int, gate: Path
) -> None:
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as early:
        gate.write_text("")

        assert early.recv(65_536).startswith(b"INFO {")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "word"),
    [
        (signal.SIGHUP, "hangup"),
        (signal.SIGUSR1, "user defined signal 1"),
        (signal.SIGUSR2, "user defined signal 2"),
    ],
)
def test_a_signal_that_comes_while_the_server_starts_waits_until_it_is_ready(
    starting: ServerProcess, gate: Path, number: signal.Signals, word: str
) -> None:
    os.kill(starting.pid, number)
    gate.write_text("")

    starting.wait_for(f'Trapped "{word}" signal')


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_end_is_obeyed_at_once_while_the_server_starts(
    starting: ServerProcess, number: signal.Signals
) -> None:
    os.kill(starting.pid, number)

    assert starting.wait() == -number
    assert "Traceback" not in starting.log
