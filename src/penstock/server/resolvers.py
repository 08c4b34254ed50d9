"""Where account JWTs come from: the configuration, a folder, or a web server.

What always holds: a resolver gives text, whose signature nobody has looked at yet; what it gives is
bounded; a resolver that waits for others says so (`is_slow`), and is then asked on another thread.

The event loop's thread, but for a slow one's `fetch`.
"""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from penstock.clock import Clock
from penstock.config.options import ServerOptions
from penstock.config.options_trust import ResolverOptions
from penstock.config.quoting import quoted
from penstock.errors import FormatError, UsageError
from penstock.limits import JWT_BYTES_MAX
from penstock.security.claims import read_account
from penstock.server.account_folder import AccountFolder

MISSING: Final = "account missing"
FETCH_TIMEOUT_S: Final = 1.9
CACHE_ACCOUNTS_DEFAULT: Final = 1000


class Resolver(Protocol):
    """One place that knows accounts."""

    is_slow: bool

    def fetch(self, name: str) -> str:
        """Give the JWT of an account; raises UsageError where there is none."""
        ...


class MemoryResolver:
    """The JWTs of a configuration."""

    is_slow = False

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = dict(tokens)

    def fetch(self, name: str) -> str:
        """Give the JWT of an account; raises UsageError where there is none."""
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
        """Give the JWT of an account; raises UsageError where there is none."""
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
        """Ask for a JWT, which takes a while; raises UsageError where there is none."""
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
    """Build what a configuration names; raises UsageError where it cannot be had."""
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
        # Somebody should be at home.
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
