"""The accounts of trusted operators: fetched when a client needs them, and kept up to date.

An account is known by a JWT that one of the trusted keys signed. The accounts that it imports from
are fetched with it; an import from an account that is absent waits for it. A new JWT changes the
account in place: its clients stay if they still may.

Invariants: an account is declared only if its claims were valid when they were taken over. The
event loop fetches only from resolvers that do not wait for a network.

Thread: the event loop's, except for `fetch`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.clock import Clock
from penstock.config.check_imports import wrong_import
from penstock.config.operators import strict_keys_of, trusted_keys_of
from penstock.config.options.accounts import AccountOptions, ImportOptions
from penstock.config.options.server import ServerOptions
from penstock.errors import FormatError, UsageError
from penstock.limits import RESOLVER_ACCOUNTS_MAX, TOKEN_SECONDS_MAX
from penstock.protocol.nkeys import is_account_key
from penstock.security.jwt.claim_checks import account_issues, blocking
from penstock.security.jwt.claims import (
    AccountClaims,
    ImportClaims,
    LimitClaims,
    ScopeClaims,
    read_account,
)
from penstock.server.accounts.jwt_options import (
    account_options,
    activation_of,
    export_of,
    import_options,
    jetstream_limits,
)
from penstock.server.accounts.jwt_resolvers import (
    FolderResolver,
    MemoryResolver,
    Resolver,
    make_resolver,
)

if TYPE_CHECKING:
    from penstock.stream.quota import AccountLimits

INVALID: Final = "account validation failed"
_UNLIMITED: Final = LimitClaims(
    subs=-1, data=-1, payload=-1, imports=-1, exports=-1, wildcards=True, conn=-1, leaf=-1
)


class JwtAccount:
    """One account as its claims describe it now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.token = ""
        self.claims = AccountClaims(subject=name, limits=_UNLIMITED)
        self.signing_keys: Mapping[str, ScopeClaims | None] = {name: None}
        self.is_expired = False
        self.is_complete = True
        self.update_ns = 0
        self.expiry: asyncio.TimerHandle | None = None


class JwtAccounts:
    """All accounts of the trusted operators that are in use; see the module.

    `declare` is called for each account that is new or has changed, `announce` when all accounts
    that changed with it were declared, and `expire` when an account has ended.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        clock: Clock,
        log: Callable[[str, str], None],
        declare: Callable[[JwtAccount], None],
        announce: Callable[[JwtAccount], None],
        expire: Callable[[JwtAccount], None],
    ) -> None:
        """Build the resolver; raise UsageError if it cannot be used."""
        self._clock = clock
        self._log = log
        self._declare = declare
        self._announce = announce
        self._expire = expire
        self._loop: asyncio.AbstractEventLoop | None = None
        self._known: dict[str, JwtAccount] = {}
        self._importers: dict[str, set[str]] = {}
        self._done: dict[str, list[ImportOptions]] = {}
        self._activations: dict[str, asyncio.TimerHandle] = {}
        self.declared: dict[str, AccountOptions] = {}
        self.resolver: Resolver = make_resolver(options, clock=clock)
        self._resolver_options = options.resolver
        self._trusted = frozenset(trusted_keys_of(options))
        self._strict = strict_keys_of(options)
        # A strict operator is not trusted itself, only its signing keys are.
        self.trusts_operators = not self._strict

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timers: accounts end when their claims expire."""
        self._loop = loop
        for account in list(self._known.values()):
            self._plan_expiry(account)
            self._settle_imports(account)

    def stop(self) -> None:
        """Stop the timers."""
        for account in self._known.values():
            if account.expiry is not None:
                account.expiry.cancel()
        for timer in self._activations.values():
            timer.cancel()

    # Finding

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def known(self, name: str) -> JwtAccount | None:
        """Return an account that is in use, or None."""
        return self._known.get(name)

    def find(self, name: str) -> JwtAccount | None:
        """Return an account, fetched if it is not in use yet; None if it has no valid JWT."""
        account = self._known.get(name)
        if account is not None and account.is_expired:
            self._log("DBG", f"Requested account [{name}] has expired")
            self._fetch_again(account)
        elif account is None and not self.resolver.is_slow:
            self.take(self.fetch(name))
        return self._known.get(name)

    def _fetch_again(self, account: JwtAccount) -> None:
        if not self.resolver.is_slow:
            self.take(self.fetch(account.name))

    def load(self, names: Iterable[str]) -> None:
        """Fetch those of these accounts that exist. May wait for a network; at start only."""
        for name in names:
            if name not in self._known and is_account_key(name):
                self.take(self.fetch(name))

    def is_to_be_fetched(self, name: str) -> bool:
        """Return True if this account must be fetched from a slow resolver first."""
        known = self._known.get(name)
        is_missing = known is None or known.is_expired
        return self.resolver.is_slow and is_missing and is_account_key(name)

    def fetch(self, name: str) -> dict[str, str]:
        """Return the JWTs of an account and of the unknown accounts that it imports from.

        Any thread: nothing is changed.
        """
        found: dict[str, str] = {}
        wanted = [name]
        while wanted and len(found) < RESOLVER_ACCOUNTS_MAX:
            each = wanted.pop()
            if each in found or (each != name and each in self._known):
                continue
            token = self._fetched(each)
            if token:
                found[each] = token
                wanted += self._imported_by(each, token)
        return found

    def _fetched(self, name: str) -> str:
        if not is_account_key(name):
            return ""
        try:
            return self.resolver.fetch(name)
        except UsageError as error:
            failed = f"Account fetch failed: {error}"
            if self._loop is not None and self.resolver.is_slow:
                # This is another thread, and the log belongs to the event loop's.
                self._loop.call_soon_threadsafe(self._log, "WRN", failed)
            else:
                self._log("WRN", failed)
            return ""

    def _imported_by(self, name: str, token: str) -> list[str]:
        try:
            return [taken.account for taken in self.verified(name, token).imports]
        except UsageError:
            return []

    def verified(self, name: str, token: str) -> AccountClaims:
        """Return the claims of an account's JWT; raise UsageError unless they are valid now."""
        try:
            claims = read_account(token)
        except FormatError as error:
            raise UsageError(error.reason) from None
        issues = account_issues(claims, self._clock.now_ns() // 10**9)
        if claims.issuer not in self._trusted or blocking(issues, with_time=True):
            raise UsageError(INVALID)
        if claims.subject != name:
            raise UsageError(INVALID)
        return claims

    # Changing

    def bootstrap(self, name: str) -> None:
        """Add an account without a JWT, so that its users can bring the JWT."""
        if name not in self._known:
            account = self._known[name] = JwtAccount(name)
            self._settle([account])

    def take(self, tokens: Mapping[str, str]) -> None:
        """Add or update accounts; an account whose JWT is not valid stays as it is."""
        changed = []
        for name, token in tokens.items():
            try:
                account = self._changed(name, token)
            except UsageError as error:
                self._log("DBG", f"Account [{name}] cannot be used: {error}")
            else:
                if account is not None:
                    changed.append(account)
        self._settle(changed)

    def update(self, name: str, token: str) -> None:
        """Replace the JWT of an account that is in use; raise UsageError if it is not valid."""
        account = self._changed(name, token)
        if account is not None:
            self.take(self._missing_imports(account))
            self._settle([account])

    def _missing_imports(self, account: JwtAccount) -> dict[str, str]:
        found: dict[str, str] = {}
        if not self.resolver.is_slow:
            for name in {taken.account for taken in account.claims.imports}:
                if name not in self._known:
                    found |= self.fetch(name)
        return found

    def _changed(self, name: str, token: str) -> JwtAccount | None:
        account = self._known.get(name)
        if account is not None and account.token == token and account.is_complete:
            self._log("DBG", f"Requested account update for [{name}], same claims detected")
            return None
        claims = self.verified(name, token)
        account = self._known.setdefault(name, JwtAccount(name))
        self._log("DBG", f"Updating account claims: {name}/{claims.name}")
        for taken in account.claims.imports:
            self._importers.get(taken.account, set()).discard(name)
        for taken in claims.imports:
            self._importers.setdefault(taken.account, set()).add(name)
        account.token, account.claims = token, claims
        own: dict[str, ScopeClaims | None] = {} if claims.issuer in self._strict else {name: None}
        account.signing_keys = claims.signing_keys | own
        account.is_expired = False
        account.update_ns = self._clock.now_ns()
        self._plan_expiry(account)
        return account

    def remove(self, name: str) -> None:
        """Remove an account: its clients are closed, and no client is admitted."""
        account = self._known.get(name)
        if account is not None:
            self._log("DBG", f"Disable account {name} due to remove")
            self._forget(account)
            account.is_expired = True
            self._expire(account)

    def _forget(self, account: JwtAccount) -> None:
        name = account.name
        del self._known[name]
        if account.expiry is not None:
            account.expiry.cancel()
        for taken in account.claims.imports:
            self._importers.get(taken.account, set()).discard(name)
        self.declared.pop(name, None)
        self._done.pop(name, None)
        self._settle([self._known[each] for each in self._importers.get(name, ())])

    def prepare(self, options: ServerOptions) -> Callable[[], None]:
        """Read the JWTs of another configuration; return a function that takes them over.

        Raises UsageError or OSError if the resolver cannot be had, and then nothing has changed.
        The function does not fail.
        """
        resolver, is_same = self.resolver, options.resolver == self._resolver_options
        tokens: dict[str, str] = {}
        if is_same and isinstance(resolver, FolderResolver):
            resolver.folder.read_again()
            tokens = _tokens_of(resolver, self._known)
        elif not is_same or isinstance(resolver, MemoryResolver):
            resolver = make_resolver(options, clock=self._clock)
            if isinstance(resolver, MemoryResolver):
                tokens = _tokens_of(resolver, self._known)

        def take_over() -> None:
            self.resolver, self._resolver_options = resolver, options.resolver
            if isinstance(resolver, FolderResolver):
                self._update_from_folder(tokens)
            elif isinstance(resolver, MemoryResolver):
                for account in list(self._known.values()):
                    self._update_from_configuration(account, tokens.get(account.name, ""))

        return take_over

    def _update_from_folder(self, tokens: Mapping[str, str]) -> None:
        for name, token in tokens.items():
            account = self._known.get(name)
            if account is None or account.token == token:
                continue
            try:
                self.update(name, token)
            except UsageError as error:
                told = f"resulted in error {error}"
                self._log("ERR", f'DirResolver - Update for account "{name}" {told}')

    def _update_from_configuration(self, account: JwtAccount, token: str) -> None:
        try:
            self.update(account.name, token)
        except UsageError:
            if account.token:
                # Its clients are told when all clients are checked again.
                self._log("INF", f'Reloaded: deleting account [removed]: "{account.name}"')
                self._forget(account)

    # Settling

    def _settle(self, accounts: Iterable[JwtAccount]) -> None:
        """Find the imports of accounts and of their importers; then declare all of them."""
        touched = {each.name: each for each in accounts}
        for name in list(touched):
            for importer in self._importers.get(name, ()):
                if importer in self._known:
                    touched[importer] = self._known[importer]
        for account in touched.values():
            self._done[account.name] = []
            self.declared[account.name] = account_options(account.claims, ())
        for account in touched.values():
            self._settle_imports(account)
        for account in touched.values():
            self._declare(account)
        for account in touched.values():
            self._announce(account)

    def _settle_imports(self, account: JwtAccount) -> None:
        account.is_complete = True
        done = self._done[account.name] = []
        for taken in account.claims.imports:
            reason = self._cannot_import(account, taken)
            if reason:
                account.is_complete = False
                self._log("DBG", f"Error adding {taken.type} import to account: {reason}")
            else:
                done.append(import_options(taken))
        self.declared[account.name] = account_options(account.claims, done)

    def _cannot_import(self, account: JwtAccount, taken: ImportClaims) -> str:
        exporter = self._known.get(taken.account)
        if exporter is None:
            what = f"import of [{taken.subject}] {taken.type} (err=account missing)"
            self._log("ERR", f"Can't locate account [{taken.account}] for {what}")
            return "account missing"
        export = export_of(taken, exporter.claims)
        if export is not None and export.token_req and not export.account_token_position:
            now_s = self._clock.now_ns() // 10**9
            activation = activation_of(taken, account.name, exporter, now_s)
            if activation is None:
                return f"{taken.type} import not authorized"
            if activation.expires:
                self._look_again_in(account.name, activation.expires - now_s)
        wanted = import_options(taken)
        return wrong_import(self.declared, self.declared, account.name, wanted, self._done)

    # The clock

    def _plan_expiry(self, account: JwtAccount) -> None:
        if account.expiry is not None:
            account.expiry.cancel()
            account.expiry = None
        if not account.claims.expires or self._loop is None:
            return
        left_s = max(account.claims.expires - self._clock.now_ns() // 10**9, 0)
        if left_s < TOKEN_SECONDS_MAX:
            account.expiry = self._loop.call_later(left_s, self._ended, account)

    def _ended(self, account: JwtAccount) -> None:
        account.is_expired = True
        self._expire(account)

    def _look_again_in(self, name: str, delay_s: float) -> None:
        if self._loop is None:
            return
        planned = self._activations.get(name)
        if planned is None or planned.when() > self._loop.time() + delay_s:
            if planned is not None:
                planned.cancel()
            later = self._loop.call_later(delay_s, self._look_again, name)
            self._activations[name] = later

    def _look_again(self, name: str) -> None:
        self._activations.pop(name, None)
        account = self._known.get(name)
        if account is not None:
            self._settle([account])

    # JetStream

    def jetstream_limits(self, name: str) -> AccountLimits | None:
        """Return what an account may use of JetStream, or None if it has none."""
        account = self._known.get(name)
        return None if account is None else jetstream_limits(account.claims)


def _tokens_of(resolver: Resolver, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with contextlib.suppress(UsageError):
            found[name] = resolver.fetch(name)
    return found
