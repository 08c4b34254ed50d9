"""What connections and subscriptions cost a server in memory, beside nats-server.

Measured by the resident memory of the server's process, before and after. The clients are bare
sockets, so that thousands of them fit into this process.
"""

from __future__ import annotations

import contextlib
import datetime
import resource
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks.measure import Row, Sizes, at_most, folder_in, in_own_process, resident_bytes
from penstock.bench.servers import OURS, BenchServer, find_executable
from penstock.client.credentials import parse_url

REFERENCE = "nats-server"
CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"protocol":1,"lang":"bench","version":"1"}\r\n'
)
SUBSCRIPTIONS_PER_CLIENT = 10_000
WARM_CONNECTIONS = 10
"""Connections before the first look: what every server makes once is not theirs."""


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    _allow_many_files()
    with folder_in(folder, "certificate") as place:
        cert_file, key_file = _make_certificate(place)
        tls_flags = ["--tls", "--tlscert", str(cert_file), "--tlskey", str(key_file)]
        tls = ssl.create_default_context(cafile=str(cert_file))
        return [
            _idle("an idle connection", sizes, b""),
            _idle("an idle connection with a subscription", sizes, b"SUB orders.%d.> 1\r\n"),
            _idle("an idle connection under TLS", sizes, b"", tls_flags, tls),
            _at_once(sizes),
            _subscriptions(sizes),
            _matching(sizes),
        ]


def _allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _commands(flags: Sequence[str] = ()) -> dict[str, list[str]]:
    return {"penstock": [*OURS, *flags], REFERENCE: [find_executable(REFERENCE), *flags]}


class Crowd:
    """Bare connections to one server."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        self._place = ("127.0.0.1", parse_url(url).port)
        self._tls = tls
        self.sockets: list[socket.socket] = []

    def come(self, count: int, operations: bytes = b"") -> None:
        """Connect, one after another; `operations` may have a place for a number."""
        for number in range(count):
            sock = socket.create_connection(self._place, timeout=30)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                # INFO goes before the handshake.
                _read_until(sock, b"\r\n")
                sock = self._tls.wrap_socket(sock, server_hostname="localhost")
            own = operations % number if b"%d" in operations else operations
            sock.sendall(CONNECT + own + b"PING\r\n")
            _read_until(sock, b"PONG\r\n")
            self.sockets.append(sock)

    def close(self) -> None:
        """Close all."""
        for sock in self.sockets:
            sock.close()


def _read_until(sock: socket.socket, text: bytes) -> None:
    received = b""
    while text not in received:
        data = sock.recv(65_536)
        if not data:
            raise ConnectionError(f"the server closed after {received[-80:]!r}")
        received += data


@contextlib.contextmanager
def _crowded(
    name: str, command: Sequence[str], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[BenchServer, Crowd]]:
    with BenchServer(name, command) as server:
        crowd = Crowd(server.url, tls)
        try:
            crowd.come(WARM_CONNECTIONS)
            yield server, crowd
        finally:
            crowd.close()


def _idle(
    what: str,
    sizes: Sizes,
    operations: bytes,
    flags: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
) -> Row:
    count = sizes.idle_connections
    grown: dict[str, float] = {}
    for name, command in _commands(flags).items():
        with _crowded(name, command, tls) as (server, crowd):
            before = resident_bytes(server.pid)
            crowd.come(count, operations)
            grown[name] = (resident_bytes(server.pid) - before) / count
    return Row(
        "server-memory",
        f"memory of {what}",
        grown["penstock"] / 1024,
        "KB",
        at_most(32) if tls is None else None,
        f"{count:,} connections; {REFERENCE} {grown[REFERENCE] / 1024:.1f} KB",
    )


def _at_once(sizes: Sizes) -> Row:
    """Open many connections, and send one message that reaches them all."""
    count = sizes.open_connections
    seconds: dict[str, float] = {}
    opening: dict[str, float] = {}
    for name, command in _commands().items():
        with _crowded(name, command) as (_, crowd):
            started = time.perf_counter()
            crowd.come(count, b"SUB all 1\r\n")
            opening[name] = time.perf_counter() - started
            started = time.perf_counter()
            crowd.sockets[0].sendall(b"PUB all 2\r\nhi\r\n")
            for sock in crowd.sockets[WARM_CONNECTIONS:]:
                _read_until(sock, b"hi\r\n")
            seconds[name] = time.perf_counter() - started
    return Row(
        "server-memory",
        f"{count:,} connections open at once: one message reaches all",
        seconds["penstock"] * 1000,
        "ms",
        None,
        f"{REFERENCE} {seconds[REFERENCE] * 1000:.3g} ms; opened one after another in"
        f" {opening['penstock']:.3g} s, {REFERENCE} {opening[REFERENCE]:.3g} s",
    )


def _subscriptions(sizes: Sizes) -> Row:
    count = sizes.subscriptions
    grown: dict[str, float] = {}
    for name, command in _commands().items():
        with _crowded(name, command) as (server, crowd):
            before = resident_bytes(server.pid)
            for start in range(0, count, SUBSCRIPTIONS_PER_CLIENT):
                end = min(start + SUBSCRIPTIONS_PER_CLIENT, count)
                lines = (b"SUB orders.eu.%d %d\r\n" % (n, n) for n in range(start, end))
                crowd.come(1, b"".join(lines))
            grown[name] = (resident_bytes(server.pid) - before) / count
    return Row(
        "server-memory",
        f"memory of a subscription, {count:,} of them",
        grown["penstock"],
        "B",
        at_most(600),
        f"connections included; {REFERENCE} {grown[REFERENCE]:.0f} B",
    )


def _matching(sizes: Sizes) -> Row:
    runs = [in_own_process("match", sizes.subscriptions) for _ in range(sizes.rounds)]
    micros = sorted(run["seconds"] / run["matches"] * 1e6 for run in runs)
    return Row(
        "server-memory",
        f"match of a subject that is not remembered, {sizes.subscriptions:,} subscriptions",
        micros[len(micros) // 2],
        "µs",
        at_most(10),
        f"every tenth a wildcard; {runs[0]['matches']:,.0f} subjects asked for, each once",
        {"µs": micros},
    )


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of this machine, good for an hour; return its file and its key's."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file
