"""Misbehaving clients: they cost the others nothing and leave nothing behind."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

import pytest

from penstock.testing.servers import ServerProcess, server_process
from tests.conformance.conftest import PairWith
from tests.conformance.scripts import CONNECTS, FULL, GARBAGE, LAX, LONG_LINES, PUBLISHING, QUIET
from tests.conformance.servers import OURS, Pair
from tests.conformance.test_protocol import steps_of
from tests.conformance.transcripts import Peer, play, say

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
    """Return our server; whatever was done to it, its log shows no unhandled error."""
    (tmp_path / "server.conf").write_text("max_closed_clients: 10")
    with server_process(OURS, config=tmp_path / "server.conf") as running:
        yield running
    assert "Traceback" not in running.log
    assert "Internal error" not in running.log


def wait_until_served(port: int) -> None:
    """Wait until the server has handled everything that came before."""
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
    server: ServerProcess,
) -> None:
    # The first rounds fill what stays: caches, and arenas for a thousand connections at once.
    for _ in range(5):
        open_halves(server.port)
    before = server.resident_bytes

    for _ in range(3):
        open_halves(server.port)

    # The bytes of 3,000 half operations are 85 MB; the allocator may keep a few.
    assert server.resident_bytes - before < 20_000_000


def test_bad_scripts_and_noise_do_not_disturb_others(server: ServerProcess) -> None:
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


def test_an_announced_payload_takes_no_memory_until_it_comes(server: ServerProcess) -> None:
    peers = [Peer(server.port) for _ in range(300)]
    for peer in peers:
        peer.send(QUIET.encode())
        peer.wait()
    before = server.resident_bytes

    for peer in peers:
        peer.send_uncounted(b"PUB foo 1048576\r\nhalf")
    wait_until_served(server.port)

    # All of them together announce 300 MB.
    assert server.resident_bytes - before < 10_000_000
    for peer in peers:
        peer.close()


def test_many_subjects_leave_no_memory_behind(server: ServerProcess) -> None:
    peer = Peer(server.port)
    peer.send(QUIET.encode() + b"SUB > 1\r\nSUB *.* q 2\r\n")
    peer.wait()

    def publish(first: int) -> None:
        for start in range(first, first + 100_000, 1000):
            peer.send(b"".join(b"PUB a.%d 0\r\n\r\n" % n for n in range(start, start + 1000)))
            peer.wait()
            peer.forget()

    publish(0)
    before = server.resident_bytes
    publish(100_000)

    assert server.resident_bytes - before < 5_000_000
    peer.close()


@pytest.mark.parametrize("said", [b"PING\r\n" * 1000, b"SUB a.. 1\r\n" * 1000])
def test_who_asks_and_does_not_listen_is_cut(tmp_path: Path, said: bytes) -> None:
    config = tmp_path / "server.conf"
    config.write_text("max_pending: 1MB")
    with server_process(OURS, config=config) as server:
        peer = Peer(server.port)
        peer.send(QUIET.encode())
        peer.wait()
        before = server.resident_bytes

        # It goes on until the server has closed, and sends without waiting for an answer.
        while peer.try_to_send(said):
            pass

        server.wait_for("Slow Consumer Detected: MaxPending of 1048576 Exceeded")
        assert server.resident_bytes - before < 5_000_000
        peer.close()
    assert "Traceback" not in server.log


@pytest.mark.oracle
def test_a_flood_of_those_who_never_connect_ends_at_the_time_to_authenticate(
    pair_with: PairWith,
) -> None:
    pair = pair_with("authorization { token: s3cret, timeout: 1 }")
    endings = []
    for server in (pair.reference, pair.ours):
        before = server.resident_bytes
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(500)]
        # Some send nothing, others a byte at times: each byte is its own packet.
        for byte in b'CONNECT {"auth':
            for sock in sockets[::2]:
                with contextlib.suppress(OSError):
                    sock.sendall(bytes([byte]))
        endings.append({ending_of(sock) for sock in sockets})
        if server is pair.ours:
            assert server.resident_bytes - before < 10_000_000

    assert endings[1] == endings[0] == {b"-ERR 'Authentication Timeout'\r\n"}


def ending_of(sock: socket.socket) -> bytes:
    """Return what came after INFO until the server closed."""
    with sock, sock.makefile("rb") as stream:
        stream.readline()
        return stream.read()


NUMBERS = [
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "4294967295",
    "4294967297",
    "2147483647",
    "-0",
    "+0",
    "00",
    "0x7fffffffffffffff",
    "1e3",
    "\u0661",
    "1\x00",
    "\x001",
    "9" * 400,
]


@pytest.mark.oracle
@pytest.mark.parametrize("number", NUMBERS, ids=ascii)
@pytest.mark.parametrize(
    "script",
    [
        LAX + "SUB foo 1\r\nPUB foo {}\r\n\r\n",
        FULL + "SUB foo 1\r\nHPUB foo {} 12\r\nNATS/1.0\r\n\r\n\r\n",
        FULL + "SUB foo 1\r\nHPUB foo 12 {}\r\n",
        FULL + "SUB foo 1\r\nHPUB foo {} {}\r\n\r\n",
        LAX + "SUB foo 1\r\nUNSUB 1 {}\r\nPUB foo 1\r\na\r\nPUB foo 1\r\nb\r\n",
        LAX + "SUB foo {}\r\nPUB foo 1\r\na\r\nUNSUB {}\r\nPUB foo 1\r\nb\r\n",
        'CONNECT {{"protocol":{}}}\r\n',
    ],
    ids=["PUB", "header size", "total size", "both sizes", "UNSUB", "SUB", "CONNECT"],
)
def test_numbers_at_the_edges_are_taken_alike(pair: Pair, script: str, number: str) -> None:
    steps = [say(script.replace("{}", number).replace("{{", "{").replace("}}", "}"))]

    assert play(pair.ours.port, steps) == play(pair.reference.port, steps)


STRANGE = [bytes([code]) for code in (0, 1, 7, 8, 11, 12, 27, 127, 128, 160, 255)]
STRANGE += [b"\xc2\xa0", b"\xe2\x80\xa8", b"\x00\x00", b"\xed\xa0\x80"]


@pytest.mark.oracle
@pytest.mark.parametrize("first", [LAX.encode(), b""], ids=["lax", "pedantic"])
@pytest.mark.parametrize("shape", [b"%s", b"a.%s", b"a%sb", b"a.%s.b"])
@pytest.mark.parametrize("strange", STRANGE, ids=repr)
def test_strange_bytes_in_subjects_queues_and_ids_are_taken_alike(
    pair: Pair, strange: bytes, shape: bytes, first: bytes
) -> None:
    name = shape % strange
    lines = (
        b"SUB %s 1", b"SUB > 2", b"PUB %s 2\r\nhi", b"PUB foo %s 2\r\nho", b"SUB x %s 3",
        b"SUB y %s", b"PUB x 1\r\nx", b"PUB y 0\r\n", b"UNSUB %s",
    )  # fmt: skip
    script = first + b"".join(line.replace(b"%s", name) + b"\r\n" for line in lines)

    assert play(pair.ours.port, [say(script)]) == play(pair.reference.port, [say(script)])


def dotted(token: str, count: int) -> str:
    """Return a subject of equal tokens."""
    return ".".join([token] * count)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "script",
    [
        LAX + "SUB " + "." * 2000 + " 1\r\nPUB " + "." * 2000 + " 0\r\n\r\n",
        LAX
        + f"SUB {dotted('*', 2000)} 1\r\nSUB {dotted('a', 2000)} 2\r\n"
        + f"PUB {dotted('a', 2000)} 0\r\n\r\n",
        LAX + f"SUB {dotted('*', 1000)}.> 1\r\nPUB {dotted('a', 1500)} 0\r\n\r\n",
        'CONNECT {"x":' + '{"a":' * 500 + "1" + "}" * 501 + "\r\n",
        'CONNECT {"x":' + "1" * 3900 + "}\r\n",
        'CONNECT {"x":1e999999}\r\n',
        'CONNECT {"protocol":1e999999}\r\n',
        "CONNECT {" + ",".join(f'"k{n}":{n}' for n in range(350)) + "}\r\n",
        'CONNECT {"name":"\\u0000"}\r\n',
        'CONNECT {"name":"\x00"}\r\n',
        "CONNECT {}\x00\r\n",
        "CONNECT \x00{}\r\n",
    ],
    ids=lambda script: repr(script[-30:]),
)
def test_long_deep_and_empty_things_are_taken_alike(pair: Pair, script: str) -> None:
    steps = [say(script)]

    assert play(pair.ours.port, steps) == play(pair.reference.port, steps)
