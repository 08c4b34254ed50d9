"""What a client shows of itself: a user, a token, an nkey's signature, a JWT with one.

    Credentials(token="s3cret")
    Credentials.from_creds_file("alice.creds")     a JWT and the seed that signs for it
    Credentials.from_seed_file("alice.nk")         a seed alone

What always holds: nothing secret shows in a repr or in an error, and a seed itself is never sent:
it signs what the server asks to have signed.

Reads the files that it is told to. Any thread.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from penstock.errors import UsageError
from penstock.limits import CREDENTIALS_FILE_BYTES_MAX
from penstock.protocol.nkeys import find_user_seed, sign

_BLOCK = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s*([\w.=-]+?)\s*-{3,}END \1-{3,}")
_SEED = re.compile(r"\bSU[A-Z2-7]{56}\b")


class Credentials(msgspec.Struct, frozen=True):
    """With what to log in; all empty for nobody in particular."""

    user: str = ""
    password: str = ""
    token: str = ""
    jwt: str = ""
    seed: bytes = b""

    def __bool__(self) -> bool:
        """Tell whether there is anything to show."""
        return bool(self.user or self.token or self.jwt or self.seed)

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"Credentials({self.kind})"

    @property
    def kind(self) -> str:
        """What this is, in a word or two."""
        if self.jwt:
            return "creds file"
        if self.seed:
            return "nkey"
        return "token" if self.token else "user" if self.user else "none"

    @classmethod
    def from_creds_file(cls, path: str | Path) -> Credentials:
        """Read a JWT and its seed; raises UsageError or OSError."""
        text = _read(path)
        blocks: dict[str, str] = dict(_BLOCK.findall(text))
        jwt = blocks.get("NATS USER JWT", "")
        if not jwt:
            raise UsageError(f"{path}: no user JWT in this file; is it a .creds file?")
        return cls(jwt=jwt, seed=_seed(path, blocks.get("USER NKEY SEED", "")))

    @classmethod
    def from_seed_file(cls, path: str | Path) -> Credentials:
        """Read a user's seed, alone or among other text; raises UsageError or OSError."""
        found = _SEED.search(_read(path))
        return cls(seed=_seed(path, found[0] if found else ""))

    def connect_fields(self, nonce: str) -> dict[str, str]:
        """Give what CONNECT says of us, the server's nonce signed where a key does it."""
        if self.seed:
            key, signature = sign(self.seed, nonce.encode())
            who = {"jwt": self.jwt} if self.jwt else {"nkey": key}
            return who | {"sig": signature}
        if self.token:
            return {"auth_token": self.token}
        return {"user": self.user, "pass": self.password} if self.user else {}


NOBODY = Credentials()
"""A client that says nothing of itself."""


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
