"""Bad company: what clients do wrong costs the others nothing and leaves nothing behind."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
from pathlib import Path

import pytest

from tests.conformance.scripts import CONNECTS, FULL, GARBAGE, LONG_LINES, PUBLISHING, QUIET
from tests.conformance.servers import OURS, RunningServer
from tests.conformance.test_protocol import steps_of
from tests.conformance.transcripts import Peer

pytestmark = pytest.mark.slow

CONNECTIONS = 1000
HALVES = [
    b"P",
    b"PUB foo 1048576\r\n" + b"x" * 100_000,
    b"CONNECT {" + b'"a":1,' * 500,
    b"SUB " + b"y" * 4000,
    FULL.encode() + b"HPUB foo 12 1000000\r\nNATS/1.0\r\n\r\n" + b"z" * 100_000,
    QUIET.encode() + b"SUB foo.> 1\r\nPUB foo.bar 10\r\n12345",
    b"",
]


@pytest.fixture
def server(tmp_path: Path):  # type: ignore[no-untyped-def]  # a generator fixture
    """Give our server; whatever was done to it, its log shows no unhandled error."""
    (tmp_path / "server.conf").write_text("max_closed_clients: 10")
    with RunningServer(OURS, tmp_path / "server.conf") as running:
        yield running
    assert "Traceback" not in running.log
    assert "Internal error" not in running.log


def resident_bytes(pid: int) -> int:
    """Give the memory of a process that is really there."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def wait_until_served(port: int) -> None:
    """Wait until the server has dealt with everything that came before."""
    peer = Peer(port)
    peer.wait()
    peer.close()


def open_halves(port: int) -> None:
    """Open many connections at once, leave each in the middle of something, and close them."""
    sockets = []
    for number in range(CONNECTIONS):
        sock = socket.create_connection(("127.0.0.1", port))
        with contextlib.suppress(OSError):
            sock.sendall(HALVES[number % len(HALVES)])
        sockets.append(sock)
    wait_until_served(port)
    for sock in sockets:
        sock.close()
    wait_until_served(port)


def test_half_operations_of_many_connections_leave_no_memory_behind(
    server: RunningServer,
) -> None:
    # The first rounds fill what stays: caches, and arenas for a thousand connections at once.
    for _ in range(5):
        open_halves(server.port)
    before = resident_bytes(server.pid)

    for _ in range(3):
        open_halves(server.port)

    # The bytes of 3,000 half operations are 85 MB; the allocator still moves by a few.
    assert resident_bytes(server.pid) - before < 30_000_000


def test_bad_scripts_and_noise_do_not_disturb_others(server: RunningServer) -> None:
    noise = random.Random(1)
    quiet = Peer(server.port)
    quiet.send(QUIET.encode() + b"SUB good 1\r\n")
    quiet.wait()

    for script in (*GARBAGE, *CONNECTS, *LONG_LINES, *PUBLISHING):
        peer = Peer(server.port)
        peer.send_uncounted(b"".join(step.data for step in steps_of(script)))
        peer.close()
    for _ in range(300):
        peer = Peer(server.port)
        peer.send_uncounted(noise.randbytes(noise.randint(1, 3000)))
        peer.close()
    quiet.send(b"PUB good 2\r\nhi\r\n")
    quiet.wait()
    quiet.close()

    assert b"MSG good 1 2\r\nhi\r\n" in quiet.received
    assert not quiet.closed


def test_a_receiver_that_does_not_read_is_cut_and_others_are_not_held_up(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text("max_pending: 2MB")
    message = b"PUB big 500000\r\n" + b"x" * 500_000 + b"\r\n"
    with RunningServer(OURS, config) as server:
        deaf, keen, sender = Peer(server.port), Peer(server.port), Peer(server.port)
        for peer in (deaf, keen, sender):
            peer.send(QUIET.encode())
        deaf.send(b"SUB big 1\r\n")
        deaf.wait()
        keen.send(b"SUB big 1\r\n")
        keen.wait()

        # Far more than the limit and the kernel's buffers hold together.
        for number in range(60):
            sender.send(message)
            sender.wait()
            keen.wait()
            assert keen.received.count(b"MSG big 1 500000\r\n") == number + 1
        deaf.wait_closed()

        assert 0 < deaf.received.count(b"MSG big 1 500000\r\n") < 60
        for peer in (deaf, keen, sender):
            peer.close()
        log = server.log
    assert "Slow Consumer Detected: MaxPending" in log
    assert "Traceback" not in log
