"""A folder of account JWTs, one file for each: `<public key>.jwt`.

The layout is the reference server's, so that a folder can be taken over in both directions. A full
folder keeps accounts until their claims expire or they are deleted; one that is a cache keeps each
for a time, and of too many drops the one that nobody asked for longest.

What always holds: a file is whole or not there; a name that is no account's public key is never
made a path; the digest is of exactly those JWTs that are kept.

Reads and writes small files. One thread: the event loop's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.clock import Clock
from penstock.errors import FormatError, UsageError
from penstock.limits import JWT_BYTES_MAX
from penstock.protocol.jwt import Token, decode_token
from penstock.protocol.nkeys import is_account_key
from penstock.store.vfs import FileSystem, OsFileSystem, write_atomically

_SUFFIX: Final = ".jwt"
_DELETED: Final = ".deleted"
_DIGEST_BYTES: Final = 32


class _Kept(msgspec.Struct, frozen=True):
    digest: bytes
    # When it is dropped; 0: never.
    ends_ns: int


class AccountFolder:
    """One folder; see the module. `count_max` and `ttl_ns` are without bound where they are 0.

    Raises OSError where the folder cannot be made or read.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        files: FileSystem | None = None,
        count_max: int = 0,
        ttl_ns: int = 0,
        is_cache: bool = False,
        renames_deleted: bool = False,
    ) -> None:
        self.path = os.path.abspath(path)
        self._clock = clock
        self._files = files or OsFileSystem()
        self._count_max = count_max
        self._ttl_ns = ttl_ns
        self._is_cache = is_cache
        self._renames_deleted = renames_deleted
        # The one that was used longest ago comes first.
        self._kept: dict[str, _Kept] = {}
        self._make_folder()
        self.read_again()

    def _make_folder(self) -> None:
        # A folder is durable once the one that it is in was synced.
        made = self.path
        while not self._files.is_dir(made) and made != os.path.dirname(made):
            made = os.path.dirname(made)
        self._files.make_dirs(self.path)
        parent = self.path
        while parent != made:
            parent = os.path.dirname(parent)
            self._files.sync_dir(parent)

    def read_again(self) -> list[str]:
        """Look at the files anew; give the accounts whose JWT is another than before."""
        before, self._kept = self._kept, {}
        changed = []
        for file in sorted(self._files.list_names(self.path)):
            name = file.removesuffix(_SUFFIX)
            token = self._read(name) if file.endswith(_SUFFIX) and is_account_key(name) else ""
            if not token:
                continue
            self._keep(name, token)
            old = before.get(name)
            if old is None or old.digest != self._kept[name].digest:
                changed.append(name)
        return changed

    @property
    def digest(self) -> bytes:
        """What all that is kept comes to, in any order: servers compare it."""
        total = 0
        for each in self._kept.values():
            total ^= int.from_bytes(each.digest, "big")
        return total.to_bytes(_DIGEST_BYTES, "big")

    def find(self, name: str) -> str:
        """Give the JWT of an account; "" where there is none."""
        if not is_account_key(name):
            return ""
        self._drop_ended()
        token = self._read(name)
        if token:
            self._keep(name, token)
        return token

    def packed(self) -> Iterator[tuple[str, str]]:
        """Give every account with its JWT."""
        self._drop_ended()
        for name in sorted(self._kept):
            if token := self._read(name):
                yield name, token

    def save(self, name: str, token: str) -> bool:
        """Keep a JWT; False where it is there already. Raises UsageError or OSError."""
        if not is_account_key(name):
            raise UsageError("invalid public key")
        known = self._kept.get(name)
        if known is not None and known.digest == _digest(token):
            return False
        if known is None and 0 < self._count_max <= len(self._kept):
            if not self._is_cache:
                raise UsageError("jwt store is full")
            self._remove(next(iter(self._kept)))
        unique = f"{self._clock.now_ns():x}"
        write_atomically(self._files, self._path_of(name), token.encode(), unique=unique)
        self._keep(name, token)
        return True

    def save_if_newer(self, name: str, token: str) -> bool:
        """Keep a JWT unless the one that is there was issued later; raises as `save`."""
        new, old = _decoded(token), _decoded(self.find(name))
        if old is not None and new is not None:
            if old.claims.get("jti") == new.claims.get("jti"):
                return False
            if _issued_at(old) > _issued_at(new):
                return False
        return self.save(name, token)

    def delete(self, name: str) -> bool:
        """Forget an account, or set its file aside; False where there is none."""
        file = self._path_of(name)
        if not is_account_key(name) or not self._files.exists(file):
            return False
        if self._renames_deleted:
            self._files.rename(file, f"{file}{_DELETED}")
            self._kept.pop(name, None)
        else:
            self._remove(name)
        return True

    def _path_of(self, name: str) -> str:
        return os.path.join(self.path, f"{name}{_SUFFIX}")

    def _read(self, name: str) -> str:
        try:
            with contextlib.closing(self._files.open(self._path_of(name), "read")) as file:
                return file.read_at(0, JWT_BYTES_MAX + 1).decode("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def _remove(self, name: str) -> None:
        self._kept.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self._path_of(name))

    def _keep(self, name: str, token: str) -> None:
        known = self._kept.pop(name, None)
        digest = _digest(token)
        if self._ttl_ns:
            ends_ns = self._clock.now_ns() + self._ttl_ns
        elif known is not None and known.digest == digest:
            ends_ns = known.ends_ns
        else:
            ends_ns = _expires_ns(token)
        self._kept[name] = _Kept(digest, ends_ns)

    def _drop_ended(self) -> None:
        now_ns = self._clock.now_ns()
        for name in [name for name, each in self._kept.items() if 0 < each.ends_ns <= now_ns]:
            self._remove(name)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _decoded(token: str) -> Token | None:
    try:
        return decode_token(token)
    except FormatError:
        return None


def _issued_at(token: Token) -> int:
    found = token.claims.get("iat")
    return found if isinstance(found, int) else 0


def _expires_ns(token: str) -> int:
    decoded = _decoded(token)
    expires = decoded.claims.get("exp") if decoded is not None else 0
    return expires * 10**9 if isinstance(expires, int) else 0
