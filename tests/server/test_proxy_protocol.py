"""A load balancer before the server: the client's own address, as the real server sees it."""

from __future__ import annotations

import json
import re
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from penstock.testing.servers import BOTH, WAIT_S, ServerProcess
from tests.security.made_certificates import Authority, rdns

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

LINE = b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 4222\r\n"
BINARY = (
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"
    + bytes([10, 0, 0, 1, 10, 0, 0, 2])
    + (5555).to_bytes(2, "big")
    + b"\x10\x7e"
)
LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
GREETING = b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n'


@pytest.fixture(params=BOTH)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    file = tmp_path / "server.conf"
    file.write_text("listen: 127.0.0.1:-1\nhttp: 127.0.0.1:-1\nproxy_protocol: true\n")
    with ServerProcess(request.param, "-c", str(file)) as running:
        running.wait_for("PROXY protocol enabled for client connections")
        yield running


def info(line: bytes) -> dict[str, object]:
    fields: dict[str, object] = json.loads(line.removeprefix(b"INFO "))
    return fields


def addresses(server: ServerProcess) -> list[tuple[str, int]]:
    found = re.search(r":(\d+)$", server.wait_for("Starting http monitor on"))
    assert found is not None
    url = f"http://127.0.0.1:{found[1]}/connz"
    with urllib.request.urlopen(url, timeout=WAIT_S) as page:
        return [(each["ip"], each["port"]) for each in json.load(page)["connections"]]


@pytest.mark.parametrize(
    ("header", "address"), [(LINE, ("192.0.2.1", 4711)), (BINARY, ("10.0.0.1", 5555))]
)
def test_a_client_is_known_by_the_address_that_the_balancer_tells(
    server: ServerProcess, header: bytes, address: tuple[str, int]
) -> None:
    with server.connect() as client, client.makefile("rb") as lines:
        assert "client_ip" not in info(lines.readline())

        client.sendall(header + GREETING)

        assert lines.readline() == b"PONG\r\n"
        assert info(lines.readline())["client_ip"] == address[0]
        assert addresses(server) == [address]


@pytest.mark.parametrize("header", [b"", LOCAL, b"PROXY UNKNOWN\r\n"])
def test_who_comes_without_a_name_keeps_its_own_address(
    server: ServerProcess, header: bytes
) -> None:
    with server.connect() as client, client.makefile("rb") as lines:
        lines.readline()

        client.sendall(header + GREETING)

        assert lines.readline() == b"PONG\r\n"
        assert info(lines.readline())["client_ip"] == "127.0.0.1"
        assert addresses(server) == [client.getsockname()]


def test_a_header_may_come_byte_by_byte(server: ServerProcess) -> None:
    with server.connect() as client, client.makefile("rb") as lines:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines.readline()

        for place in range(len(LINE)):
            client.sendall(LINE[place : place + 1])
        client.sendall(GREETING)

        assert lines.readline() == b"PONG\r\n"
        assert addresses(server) == [("192.0.2.1", 4711)]


@pytest.mark.parametrize("header", [b"PROXY TCP4 x y 1 2\r\n", LINE[:20]])
def test_a_header_that_cannot_be_ends_the_connection(server: ServerProcess, header: bytes) -> None:
    with server.connect() as client, client.makefile("rb") as lines:
        lines.readline()

        client.sendall(header)
        client.shutdown(socket.SHUT_WR)

        assert lines.read() == b""
        server.wait_for("Error reading PROXY protocol header from 127.0.0.1:")


@pytest.mark.parametrize("is_first", [False, True], ids=["INFO first", "handshake first"])
@pytest.mark.parametrize("name", BOTH)
def test_the_header_goes_before_the_handshake(name: str, is_first: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    file = tmp_path / "server.conf"
    file.write_text(
        f"listen: 127.0.0.1:-1\nhttp: 127.0.0.1:-1\nproxy_protocol: true\n"
        f'tls {{ cert_file: "{made.cert_file}", key_file: "{made.key_file}", '
        f"handshake_first: {str(is_first).lower()} }}\n"
    )
    with ServerProcess(name, "-c", str(file)) as running, running.connect() as plain:
        if not is_first:
            assert plain.recv(65_536).startswith(b"INFO ")

        plain.sendall(BINARY)
        with (
            context.wrap_socket(plain, server_hostname="localhost") as client,
            client.makefile("rb") as lines,
        ):
            if is_first:
                assert info(lines.readline())["client_ip"] == "10.0.0.1"
            client.sendall(GREETING)

            assert lines.readline() == b"PONG\r\n"
            assert addresses(running) == [("10.0.0.1", 5555)]
