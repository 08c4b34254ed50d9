"""Where a server is, and what a client logs in with.

    Credentials(token="s3cret")
    Credentials.from_creds_file("alice.creds")     a JWT and the seed that signs for it
    Credentials.from_seed_file("alice.nk")         a seed alone
    parse_url("nats://[user[:password]@]host[:port]")     a bare host is fine

tls:// is for TLS, ws:// and wss:// are for a server's WebSocket port.

Invariants: no secret shows in a repr or in an error. A seed is never sent: it signs the server's
nonce.

Reads credential files; otherwise pure. Any thread.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import UsageError
from penstock.limits import CREDENTIALS_FILE_BYTES_MAX
from penstock.protocol.nkeys import find_user_seed, sign

_BLOCK = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s*([\w.=-]+?)\s*-{3,}END \1-{3,}")
_SEED = re.compile(r"\bSU[A-Z2-7]{56}\b")


class Credentials(msgspec.Struct, frozen=True):
    """What to log in with; all empty for a client without credentials."""

    user: str = ""
    password: str = ""
    token: str = ""
    jwt: str = ""
    seed: bytes = b""

    def __bool__(self) -> bool:
        """Return True if there are any credentials."""
        return bool(self.user or self.token or self.jwt or self.seed)

    def __repr__(self) -> str:
        """Return the kind of credentials, without secrets."""
        return f"Credentials({self.kind})"

    @property
    def kind(self) -> str:
        """The kind of credentials, in a word or two."""
        if self.jwt:
            return "creds file"
        if self.seed:
            return "nkey"
        return "token" if self.token else "user" if self.user else "none"

    @classmethod
    def from_creds_file(cls, path: str | Path) -> Credentials:
        """Read a JWT and its seed; raise UsageError or OSError."""
        text = _read(path)
        blocks: dict[str, str] = dict(_BLOCK.findall(text))
        jwt = blocks.get("NATS USER JWT", "")
        if not jwt:
            raise UsageError(f"{path}: no user JWT in this file; is it a .creds file?")
        return cls(jwt=jwt, seed=_seed(path, blocks.get("USER NKEY SEED", "")))

    @classmethod
    def from_seed_file(cls, path: str | Path) -> Credentials:
        """Read a user's seed, alone or among other text; raise UsageError or OSError."""
        found = _SEED.search(_read(path))
        return cls(seed=_seed(path, found[0] if found else ""))

    def connect_fields(self, nonce: str) -> dict[str, str]:
        """Return the fields for CONNECT; with a seed, the server's nonce is signed."""
        if self.seed:
            key, signature = sign(self.seed, nonce.encode())
            who = {"jwt": self.jwt} if self.jwt else {"nkey": key}
            return who | {"sig": signature}
        if self.token:
            return {"auth_token": self.token}
        return {"user": self.user, "pass": self.password} if self.user else {}


NOBODY = Credentials()
"""A client without credentials."""


def _seed(path: str | Path, text: str) -> bytes:
    seed = find_user_seed(text)
    if seed is None:
        raise UsageError(f"{path}: no user's seed in this file (58 characters that begin with SU)")
    return seed


def _read(path: str | Path) -> str:
    with Path(path).open("rb") as file:
        data = file.read(CREDENTIALS_FILE_BYTES_MAX + 1)
    if len(data) > CREDENTIALS_FILE_BYTES_MAX:
        raise UsageError(f"{path}: too large to hold credentials")
    return data.decode("utf-8", "replace")


DEFAULT_PORT = 4222
SCHEMES = ("nats", "tcp", "tls", "ws", "wss")
WEBSOCKET_PORTS = {"ws": 80, "wss": 443}


class Address(msgspec.Struct, frozen=True):
    """A server's host and port, and the credentials and TLS that its URL asks for."""

    host: str
    port: int
    credentials: Credentials = NOBODY
    is_tls: bool = False
    is_websocket: bool = False

    def __str__(self) -> str:
        """Return host and port as people write them, without secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> Address:
    """Return the address of a URL; raise UsageError if it is not one of NATS."""
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        port = parts.port or WEBSOCKET_PORTS.get(parts.scheme, DEFAULT_PORT)
    except ValueError:
        raise UsageError("not a NATS address: host and port do not read as such") from None
    if parts.scheme not in SCHEMES:
        raise UsageError(f"not a NATS address: {parts.scheme}:// (nats://, tls://, ws:// are)")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    known = Credentials(user=user, password=password)
    if user and parts.password is None:
        known = Credentials(token=user)
    is_websocket = parts.scheme in WEBSOCKET_PORTS
    is_tls = parts.scheme in ("tls", "wss")
    return Address(parts.hostname or "127.0.0.1", port, known, is_tls, is_websocket)
