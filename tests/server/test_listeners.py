"""What a listener makes of a client's certificate, in a running server."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

from cryptography import x509

from penstock.server.embedded import EmbeddedServer
from penstock.testing.clock import FakeClock
from tests.security.made_certificates import Authority, rdns

WAIT_S = 30


def log_in(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[bytes, ssl.SSLSession | None]:
    """Return the answer to CONNECT and PING, and the session."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain:
        plain.recv(65_536)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as client:
            client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            try:
                return client.recv(65_536), client.session
            except (ssl.SSLEOFError, ConnectionError):
                return b"", None


def test_a_session_is_not_resumed_after_its_certificate_ended(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    own = authority.make(rdns("CN=client"))
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.load_cert_chain(own.cert_file, own.key_file)
    # The one version that resumes a session without a ticket.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    settings = (
        f'tls {{ cert_file: "{server.cert_file}", key_file: "{server.key_file}"\n'
        f'ca_file: "{authority.ca_file}", verify: true }}'
    )
    end_ns = int(own.certificate.not_valid_after_utc.timestamp()) * 10**9
    clock = FakeClock(now_ns=end_ns)

    async def scenario() -> list[bytes]:
        async with EmbeddedServer(settings=settings, clock=clock) as running:
            first, session = await asyncio.to_thread(log_in, running.port, context)
            second, _ = await asyncio.to_thread(log_in, running.port, context, session)
            clock.advance_ns(1)
            third, _ = await asyncio.to_thread(log_in, running.port, context, session)
            # The session is gone; the certificate is verified again, by the machine's own clock.
            fourth, _ = await asyncio.to_thread(log_in, running.port, context, session)
            return [first, second, third, fourth]

    assert asyncio.run(scenario()) == [b"PONG\r\n", b"PONG\r\n", b"", b"PONG\r\n"]
