"""Makes operators, accounts and users with their JWTs, as `nsc` does."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # it has no types

HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
UNLIMITED = {
    "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True,
    "conn": -1, "leaf": -1,
}  # fmt: skip
"""What an account may have whose operator does not say."""

STORAGE = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
"""JetStream without bounds."""

FREE = {"subs": -1, "data": -1, "payload": -1}
"""What a user may have whose account does not say."""


def now() -> int:
    """Return the time in seconds, as JWTs have it."""
    return int(time.time())


def encoded(raw: bytes) -> str:
    """Write bytes as JWTs have them."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Key:
    """A key pair of a kind: O, A or U."""

    def __init__(self, kind: str) -> None:
        prefix = {
            "O": nkeys.PREFIX_BYTE_OPERATOR,
            "A": nkeys.PREFIX_BYTE_ACCOUNT,
            "U": nkeys.PREFIX_BYTE_USER,
        }[kind]
        self.seed: bytes = nkeys.encode_seed(os.urandom(32), prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self._pair.public_key.decode()

    def sign(self, text: str) -> str:
        """Sign something."""
        return encoded(self._pair.sign(text.encode()))

    def token(self, claims: dict[str, Any]) -> str:
        """Make a JWT of claims."""
        stated = {"iat": now(), "iss": self.public} | claims
        digest = hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).digest()
        stated = {"jti": base64.b32encode(digest).decode().rstrip("=")} | stated
        parts = (encoded(json.dumps(each).encode()) for each in (HEADER, stated))
        signed = ".".join(parts)
        return f"{signed}.{self.sign(signed)}"


class Operator:
    """An operator with one account for the system; `own` are claims of the operator itself."""

    def __init__(self, *, with_system: bool = True, **own: Any) -> None:
        self.key = Key("O")
        self.system = Account(self, "SYS")
        stated = {"system_account": self.system.key.public} if with_system else {}
        self.token = self.key.token(
            {
                "sub": self.key.public,
                "name": "Operator",
                "nats": {"type": "operator", "version": 2} | stated | own,
            }
        )

    def account(self, name: str = "A", **own: Any) -> Account:
        """Make an account; see Account."""
        return Account(self, name, **own)

    def settings(self, *accounts: Account, resolver: str = "MEMORY", more: str = "") -> str:
        """Return a configuration with these accounts, and with the system's."""
        preload = "\n".join(f"{each.key.public}: {each.token}" for each in (self.system, *accounts))
        lines = (f"operator: {self.token}", f"resolver: {resolver}", "resolver_preload {")
        return "\n".join((*lines, preload, "}", more))


class Account:
    """An account; `own` are its claims, of which `limits` stand over those without bounds."""

    def __init__(self, operator: Operator, name: str, **own: Any) -> None:
        self.operator = operator
        self.key = Key("A")
        self.name = name
        self.token = ""
        self.change(**own)

    def change(
        self, *, by: Key | None = None, data: dict[str, Any] | None = None, **own: Any
    ) -> str:
        """Make its JWT anew, with these claims; give it."""
        limits = UNLIMITED | own.pop("limits", {})
        nats = {"type": "account", "version": 2, "limits": limits} | own
        claims = {"sub": self.key.public, "name": self.name, "nats": nats} | (data or {})
        self.token = (by or self.operator.key).token(claims)
        return self.token

    def user(
        self,
        name: str = "U",
        *,
        by: Key | None = None,
        data: dict[str, Any] | None = None,
        is_scoped: bool = False,
        **own: Any,
    ) -> User:
        """Make a user; `by` is a signing key of the account, `data` are claims beside NATS's."""
        key = Key("U")
        nats: dict[str, Any] = {"type": "user", "version": 2} | ({} if is_scoped else FREE) | own
        if by is not None:
            nats["issuer_account"] = self.key.public
        claims = {"sub": key.public, "name": name, "nats": nats} | (data or {})
        return User(key, (by or self.key).token(claims))

    def activation(
        self, importer: Account, subject: str, kind: str, *, by: Key | None = None, **data: Any
    ) -> str:
        """Let another account import something; `by` is a signing key of this one."""
        nats: dict[str, Any] = {"type": "activation", "version": 2}
        nats |= {"subject": subject, "kind": kind}
        if by is not None:
            nats["issuer_account"] = self.key.public
        claims = {"sub": importer.key.public, "name": subject, "nats": nats} | data
        return (by or self.key).token(claims)


class User:
    """A user: its key and its JWT."""

    def __init__(self, key: Key, token: str) -> None:
        self.key = key
        self.token = token

    def fields(self, nonce: str) -> dict[str, Any]:
        """Return what CONNECT needs."""
        return {"jwt": self.token, "sig": self.key.sign(nonce)}

    def write(self, path: Path) -> Path:
        """Write a credentials file; give where it is."""
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{self.token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.key.seed.decode()}\n"
            "------END USER NKEY SEED------\n"
        )
        return path
