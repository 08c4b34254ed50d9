"""Thousands of connections: all are served, each costs little, and one too many harms no other."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing.servers import ServerProcess, server_process
from tests.conformance.scripts import QUIET
from tests.conformance.servers import OURS, REFERENCE

pytestmark = pytest.mark.slow

IDLE_BYTES_MAX = 32 * 1024
"""Resident memory of an idle connection."""

CONNECTIONS = 1_000
CONNECTIONS_AT_ONCE = 5_000
GREETING = (
    b'CONNECT {"verbose":false,"pedantic":false,"protocol":1,"lang":"python3","version":"2.1.0"}'
    b"\r\nPING\r\n"
)

Start = Callable[..., ServerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a server; its log shows no unhandled error."""
    servers = []

    def begin(
        settings: str = "port: -1", *, files: str = "", command: tuple[str, ...] = OURS
    ) -> ServerProcess:
        config = tmp_path / "server.conf"
        config.write_text(settings)
        if files:
            command = ("sh", "-c", f'ulimit {files} && exec "$@"', "sh", *command)
        servers.append(server_process(command, config=config))
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()
        assert "Traceback" not in server.log
        assert "Internal error" not in server.log


class Crowd:
    """Many clients that send at once."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._received: dict[socket.socket, bytes] = {}

    def come(self, port: int, count: int) -> None:
        """Connect without waiting."""
        for _ in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            self._received[sock] = b""
            self._selector.register(sock, selectors.EVENT_READ)

    def say(self, data: bytes) -> None:
        """Have every client send something short."""
        for sock in self._received:
            assert sock.send(data) == len(data)

    def hear(self, text: bytes) -> None:
        """Wait until every client has received something."""
        for sock in self._received:
            self._received[sock] = b""
        waiting = set(self._received)
        while waiting:
            ready = self._selector.select(timeout=30)
            assert ready, f"{len(waiting)} wait in vain"
            for key, _ in ready:
                speaker = key.fileobj
                assert isinstance(speaker, socket.socket)
                data = speaker.recv(65_536)
                assert data, "the server closed"
                self._received[speaker] += data
                if text in self._received[speaker]:
                    waiting.discard(speaker)

    def close(self) -> None:
        self._selector.close()
        for sock in self._received:
            sock.close()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """Return clients, with as many open files as they need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS_AT_ONCE + 1_000:
        pytest.skip("this system does not let a process have so many connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = Crowd()
    yield made
    made.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("operations", [b"", b"SUB orders.eu.> 1\r\n"])
def test_an_idle_connection_takes_little_memory(
    start: Start, crowd: Crowd, operations: bytes
) -> None:
    server = start()
    before = server.resident_bytes

    crowd.come(server.port, CONNECTIONS)
    crowd.hear(b"\r\n")
    crowd.say(operations + GREETING)
    # The second INFO comes after the answer to PING.
    crowd.hear(b"} \r\n")

    assert (server.resident_bytes - before) / CONNECTIONS <= IDLE_BYTES_MAX


def test_a_connection_that_has_become_idle_gives_back_what_it_needed(
    start: Start, crowd: Crowd
) -> None:
    server = start('ping_interval: "500ms", ping_max: 1000')
    before = server.resident_bytes
    crowd.come(server.port, CONNECTIONS)
    crowd.hear(b"\r\n")
    crowd.say(QUIET.encode() + b"SUB burst 1\r\nPING\r\n")
    crowd.hear(b"PONG\r\n")

    with socket.create_connection(("127.0.0.1", server.port)) as sender:
        sender.sendall(b"PUB burst 60000\r\n" + b"x" * 60_000 + b"\r\n")
        crowd.hear(b"x\r\n")
    crowd.hear(b"PING\r\n")

    assert (server.resident_bytes - before) / CONNECTIONS <= IDLE_BYTES_MAX


def test_thousands_connect_at_once_and_all_are_served(start: Start, crowd: Crowd) -> None:
    server = start()

    crowd.come(server.port, CONNECTIONS_AT_ONCE)
    crowd.hear(b"\r\n")
    crowd.say(QUIET.encode() + b"SUB all 1\r\nPING\r\n")
    crowd.hear(b"PONG\r\n")
    with socket.create_connection(("127.0.0.1", server.port)) as sender:
        sender.sendall(b"PUB all 2\r\nhi\r\n")
        crowd.hear(b"MSG all 1 2\r\nhi\r\n")


def test_the_soft_limit_of_open_files_does_not_bound_the_connections(
    start: Start, crowd: Crowd
) -> None:
    server = start(files="-Sn 100")

    crowd.come(server.port, 200)

    crowd.hear(b"\r\n")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(REFERENCE, marks=pytest.mark.oracle, id="reference"),
        pytest.param(OURS, id="ours"),
    ],
)
def test_without_room_for_more_files_those_who_are_in_are_served_and_others_wait(
    start: Start, crowd: Crowd, command: tuple[str, ...]
) -> None:
    server = start(files="-n 64", command=command)
    with contextlib.ExitStack() as leaving:
        first = leaving.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        for _ in range(70):
            leaving.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        server.wait_for("too many open files), sleeping 10ms\n")

        first.sendall(b"PING\r\n")
        heard = b""
        while b"PONG\r\n" not in heard:
            heard += first.recv(65_536)
        crowd.come(server.port, 20)

    crowd.hear(b"\r\n")
