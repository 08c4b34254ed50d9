"""Resolvers: where account JWTs come from. The configuration, a folder, or a web server.

A folder has one file for each account, `<public key>.jwt`, in the reference server's layout, so
that either server can take over the other's folder. A full folder keeps accounts until their claims
expire or they are deleted. A cache keeps each for a time, and removes the least recently requested
account if there are too many.

Invariants: a resolver returns unverified JWT text of bounded size; the caller verifies the
signature. A file is whole or absent. Only an account's public key becomes part of a path. A
folder's digest covers exactly the JWTs that are kept.

Thread: the event loop's. A resolver that waits for a network says so (`is_slow`), and its `fetch`
is called on another thread.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.clock import Clock
from penstock.config.options.server import ServerOptions
from penstock.config.options.trust import ResolverOptions
from penstock.errors import FormatError, UsageError
from penstock.limits import JWT_BYTES_MAX
from penstock.protocol.jwt import Token, decode_token
from penstock.protocol.nkeys import is_account_key
from penstock.security.jwt.claims import read_account
from penstock.store.vfs import FileSystem, OsFileSystem, write_atomically
from penstock.text.quoting import quoted

_SUFFIX: Final = ".jwt"
_DELETED: Final = ".deleted"
_DIGEST_BYTES: Final = 32


class _Kept(msgspec.Struct, frozen=True):
    digest: bytes
    # When it is dropped; 0: never.
    ends_ns: int


class AccountFolder:
    """One folder; see the module. `count_max` and `ttl_ns` are without bound where they are 0.

    Raises OSError if the folder cannot be created or read.
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
        # The least recently used account comes first.
        self._kept: dict[str, _Kept] = {}
        self._make_folder()
        self.read_again()

    def _make_folder(self) -> None:
        # A new folder is durable once its parent was synced.
        made = self.path
        while not self._files.is_dir(made) and made != os.path.dirname(made):
            made = os.path.dirname(made)
        self._files.make_dirs(self.path)
        parent = self.path
        while parent != made:
            parent = os.path.dirname(parent)
            self._files.sync_dir(parent)

    def read_again(self) -> list[str]:
        """Read all files again; return the accounts whose JWT has changed."""
        tokens = {}
        for file in sorted(self._files.list_names(self.path)):
            name = file.removesuffix(_SUFFIX)
            token = self._read(name) if file.endswith(_SUFFIX) and is_account_key(name) else ""
            if token:
                tokens[name] = token
        before, self._kept = self._kept, {}
        for name, token in tokens.items():
            self._keep(name, token)
        return [
            name
            for name, kept in self._kept.items()
            if name not in before or before[name].digest != kept.digest
        ]

    @property
    def digest(self) -> bytes:
        """What all that is kept comes to, in any order: servers compare it."""
        total = 0
        for each in self._kept.values():
            total ^= int.from_bytes(each.digest, "big")
        return total.to_bytes(_DIGEST_BYTES, "big")

    def find(self, name: str) -> str:
        """Return the JWT of an account, or ""."""
        if not is_account_key(name):
            return ""
        self._drop_ended()
        token = self._read(name)
        if token:
            self._keep(name, token)
        return token

    def packed(self) -> Iterator[tuple[str, str]]:
        """Yield every account with its JWT."""
        self._drop_ended()
        for name in sorted(self._kept):
            if token := self._read(name):
                yield name, token

    def save(self, name: str, token: str) -> bool:
        """Save a JWT; return False if it is saved already. Raise UsageError or OSError."""
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
        """Save a JWT unless the saved one was issued later; raise as `save` does."""
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


MISSING: Final = "account missing"
FETCH_TIMEOUT_S: Final = 1.9
CACHE_ACCOUNTS_DEFAULT: Final = 1000


class Resolver(Protocol):
    """One place that knows accounts."""

    is_slow: bool

    def fetch(self, name: str) -> str:
        """Return the JWT of an account; raise UsageError if there is none."""
        ...


class MemoryResolver:
    """The JWTs of a configuration."""

    is_slow = False

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = dict(tokens)

    def fetch(self, name: str) -> str:
        """Return the JWT of an account; raise UsageError if there is none."""
        token = self._tokens.get(name)
        if token is None:
            raise UsageError(MISSING)
        return token


class FolderResolver:
    """The JWTs of a folder, which the system account's users may change."""

    is_slow = False

    def __init__(
        self, options: ResolverOptions, preloaded: Mapping[str, str], *, clock: Clock
    ) -> None:
        self.is_cache = options.kind.lower() == "cache"
        self.may_delete = self.is_cache or options.allow_delete
        limit = options.limit or (CACHE_ACCOUNTS_DEFAULT if self.is_cache else 0)
        try:
            self.folder = AccountFolder(
                options.directory,
                clock=clock,
                count_max=limit,
                ttl_ns=options.ttl_ns,
                is_cache=self.is_cache,
                renames_deleted=options.allow_delete and not options.hard_delete,
            )
            for name, token in preloaded.items():
                self.folder.save_if_newer(name, token)
        except OSError as error:
            reason = (error.strerror or "failed").lower()
            raise UsageError(f"mkdir {options.directory}: {reason}") from None

    def fetch(self, name: str) -> str:
        """Return the JWT of an account; raise UsageError if there is none."""
        try:
            token = self.folder.find(name)
        except OSError as error:
            raise UsageError(f"open {error.filename}: {error.strerror}") from None
        if not token:
            raise UsageError("account jwt not found")
        return token


class UrlResolver:
    """A web server that has a JWT behind each account's name."""

    is_slow = True

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        split = urlsplit(url if url.endswith("/") else f"{url}/")
        if split.scheme not in ("http", "https"):
            raise UsageError(f'could not fetch: unsupported protocol scheme "{split.scheme}"')
        user, _, place = split.netloc.rpartition("@")
        self._url = split._replace(netloc=place).geturl()
        self._credentials = base64.b64encode(unquote(user).encode()).decode() if user else ""
        # Directly: what the environment says of proxies is not meant for it.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

    def fetch(self, name: str) -> str:
        """Fetch a JWT over the network; raise UsageError if there is none."""
        request = urllib.request.Request(self._url + name)
        if self._credentials:
            request.add_unredirected_header("Authorization", f"Basic {self._credentials}")
        shown = quoted(request.full_url)
        try:
            with self._opener.open(request, timeout=FETCH_TIMEOUT_S) as answer:
                body: bytes = answer.read(JWT_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise UsageError(f"could not fetch <{shown}>: {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            # A failed connection is wrapped once more.
            cause = getattr(error, "reason", error)
            reason = str(getattr(cause, "strerror", "") or cause).lower()
            raise UsageError(f"could not fetch <{shown}>: Get {shown}: {reason}") from None
        return body.decode("ascii", "replace").strip()


def make_resolver(options: ServerOptions, *, clock: Clock) -> Resolver:
    """Return the configured resolver; raise UsageError if it cannot be used."""
    stated = options.resolver or ResolverOptions()
    preloaded = options.resolver_preload
    if stated.kind == "url" and preloaded:
        kinds = "writeable resolver types MEM/DIR/CACHE_DIR"
        raise UsageError(f"resolver preloads only available for {kinds}")
    for name, token in preloaded.items():
        try:
            read_account(token)
        except FormatError as error:
            reason = f"preload account error for {quoted(name)}: {error.reason}"
            raise UsageError(reason) from None
    if stated.kind == "url":
        resolver = UrlResolver(stated.url, _tls_context(options))
        # The server must answer.
        resolver.fetch("")
        return resolver
    if stated.kind == "memory":
        return MemoryResolver(preloaded)
    return FolderResolver(stated, preloaded, clock=clock)


def _tls_context(options: ServerOptions) -> ssl.SSLContext | None:
    stated = options.resolver_tls
    if stated is None:
        return None
    context = ssl.create_default_context(cafile=stated.ca_file or None)
    if stated.cert_file:
        context.load_cert_chain(stated.cert_file, stated.key_file)
    return context
