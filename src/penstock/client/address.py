"""Where a server is: the URL that people write, taken apart.

    nats://[user[:password]@]host[:port]      tls:// is the same with TLS; a bare host is fine

Pure.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import msgspec

from penstock.client.credentials import NOBODY, Credentials
from penstock.errors import UsageError

DEFAULT_PORT = 4222
SCHEMES = ("nats", "tcp", "tls")


class Address(msgspec.Struct, frozen=True):
    """A server's host and port, and what the URL says of how to come there."""

    host: str
    port: int
    credentials: Credentials = NOBODY
    is_tls: bool = False

    def __str__(self) -> str:
        """Give it as people write it, without anything secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> Address:
    """Read a URL; raises UsageError."""
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise UsageError("not a NATS address: host and port do not read as such") from None
    if parts.scheme not in SCHEMES:
        raise UsageError(f"not a NATS address: {parts.scheme}:// (nats:// and tls:// are)")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    known = Credentials(user=user, password=password)
    if user and parts.password is None:
        known = Credentials(token=user)
    return Address(parts.hostname or "127.0.0.1", port, known, parts.scheme == "tls")
