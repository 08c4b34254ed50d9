"""The system's log as the place for log lines."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config.options.server import ServerOptions
from penstock.errors import CannotLog
from penstock.server.log import Log
from penstock.testing.clock import FakeClock

NOON_NS = 1_700_000_000 * 10**9
STAMP = r"2023-11-1\dT\d\d:\d\d:20(Z|[+-]\d\d:\d\d)"


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(30)
        yield listening


def remote_log(url: str, **options: object) -> Log:
    made = ServerOptions(remote_syslog=url, **options)  # type: ignore[arg-type]
    return Log(FakeClock(now_ns=NOON_NS), made)


@pytest.mark.parametrize(
    ("level", "priority"), [("FTL", 2), ("ERR", 3), ("WRN", 4), ("INF", 5), ("TRC", 5), ("DBG", 7)]
)
def test_a_line_goes_to_another_machine_as_a_datagram(
    receiver: socket.socket, level: str, priority: int
) -> None:
    port = receiver.getsockname()[1]
    written = remote_log(f"udp://127.0.0.1:{port}", debug=True, trace=True)

    written.line(level, "Server is ready")

    host = re.escape(socket.gethostname())
    form = rf"<{priority}>{STAMP} {host} nats-server\[{os.getpid()}\]: Server is ready\n"
    assert re.fullmatch(form, receiver.recv(4096).decode())
    written.close()


def test_levels_that_nobody_asked_for_are_not_sent(receiver: socket.socket) -> None:
    written = remote_log(f"udp://127.0.0.1:{receiver.getsockname()[1]}")

    written.line("DBG", "no")
    written.line("INF", "yes")

    assert receiver.recv(4096).endswith(b": yes\n")
    written.close()


def test_a_unix_socket_gets_the_time_as_syslog_writes_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "log"))
        listening.listen()
        written = remote_log(f"unix://{tmp_path}/log")
        connected, _ = listening.accept()
        with connected:
            connected.settimeout(30)

            written.line("INF", "hello")

            form = rf"<5>Nov 1\d \d\d:\d\d:20 nats-server\[{os.getpid()}\]: hello\n"
            assert re.fullmatch(form, connected.recv(4096).decode())
    written.close()


def test_a_connection_that_broke_is_opened_anew() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        written = remote_log(f"tcp://127.0.0.1:{listening.getsockname()[1]}")
        first, _ = listening.accept()
        # With a reset the next line finds out at once.
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        first.close()

        written.line("INF", "lost")
        second, _ = listening.accept()
        with second:
            second.settimeout(30)
            written.line("INF", "found")

            assert second.recv(4096).endswith(b": found\n")
    written.close()


def test_a_file_counts_more_than_the_system(receiver: socket.socket, tmp_path: Path) -> None:
    path = tmp_path / "log"
    port = receiver.getsockname()[1]
    written = remote_log(f"udp://127.0.0.1:{port}", log_file=str(path))

    written.line("INF", "here")
    written.close()

    assert path.read_text().endswith("[INF] here\n")
    receiver.setblocking(False)
    with pytest.raises(BlockingIOError):
        receiver.recv(1)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nowhere", 'error invalid network type: ""'),
        ("ftp://h:1", 'error invalid network type: "ftp"'),
        ("unix:///no/such/socket", "error connecting to syslog: "),
        ("udp://127.0.0.1", "error connecting to syslog: .*missing port in address"),
    ],
)
def test_a_place_that_cannot_be_is_refused(url: str, reason: str) -> None:
    with pytest.raises(CannotLog, match=reason):
        remote_log(url)
