"""The accounts of trusted operators: fetched when somebody needs them, and kept up to date.

An account is known by a JWT that one of the trusted keys signed. With it come the accounts that it
imports from; an import of an account that is not there waits for it. A JWT that takes the place of
another changes the account where it stands: its members stay, if they still may.

What always holds: no account is declared whose claims did not hold when they were taken; a name is
fetched on the event loop only from a resolver that does not wait for anybody.

One thread: the event loop's, but for `fetch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.clock import Clock
from penstock.config.operators import strict_keys_of, trusted_keys_of
from penstock.config.options import ServerOptions
from penstock.config.options_accounts import AccountOptions
from penstock.config.options_sharing import ImportOptions
from penstock.config.sharing import wrong_import
from penstock.errors import FormatError, UsageError
from penstock.limits import RESOLVER_ACCOUNTS_MAX, TOKEN_SECONDS_MAX
from penstock.protocol.nkeys import is_account_key
from penstock.security.claims import (
    AccountClaims,
    ImportClaims,
    LimitClaims,
    ScopeClaims,
    read_account,
)
from penstock.security.claims_checks import account_issues, blocking
from penstock.server.claimed_options import (
    account_options,
    activation_of,
    export_of,
    import_options,
    jetstream_limits,
)
from penstock.server.resolvers import (
    FolderResolver,
    MemoryResolver,
    Resolver,
    make_resolver,
)

if TYPE_CHECKING:
    from penstock.stream.allowances import AccountLimits

INVALID: Final = "account validation failed"
_UNLIMITED: Final = LimitClaims(
    subs=-1, data=-1, payload=-1, imports=-1, exports=-1, wildcards=True, conn=-1, leaf=-1
)


class KnownAccount:
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


class ClaimedAccounts:
    """All accounts of the trusted operators that are in use; see the module.

    `declare` is told of each account that is new or has changed, and `announce` when all of them
    were declared that changed with it; `expire` of one that ended.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        clock: Clock,
        log: Callable[[str, str], None],
        declare: Callable[[KnownAccount], None],
        announce: Callable[[KnownAccount], None],
        expire: Callable[[KnownAccount], None],
    ) -> None:
        """Build it; raises UsageError where there is no resolver to be had."""
        self._clock = clock
        self._log = log
        self._declare = declare
        self._announce = announce
        self._expire = expire
        self._loop: asyncio.AbstractEventLoop | None = None
        self._known: dict[str, KnownAccount] = {}
        self._importers: dict[str, set[str]] = {}
        self._done: dict[str, list[ImportOptions]] = {}
        self._activations: dict[str, asyncio.TimerHandle] = {}
        self.declared: dict[str, AccountOptions] = {}
        self.resolver: Resolver = make_resolver(options, clock=clock)
        self._resolver_options = options.resolver
        self._trusted = frozenset(trusted_keys_of(options))
        self._strict = strict_keys_of(options)
        # A strict one is not trusted itself, only its signing keys are.
        self.trusts_operators = not self._strict

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to look at the clock: accounts end when their claims say so."""
        self._loop = loop
        for account in list(self._known.values()):
            self._plan_expiry(account)
            self._settle_imports(account)

    def stop(self) -> None:
        """Look at the clock no more."""
        for account in self._known.values():
            if account.expiry is not None:
                account.expiry.cancel()
        for timer in self._activations.values():
            timer.cancel()

    # Finding

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def known(self, name: str) -> KnownAccount | None:
        """Give an account that is in use."""
        return self._known.get(name)

    def find(self, name: str) -> KnownAccount | None:
        """Give an account, fetched if need be; None where there is none that counts."""
        account = self._known.get(name)
        if account is not None and account.is_expired:
            self._log("DBG", f"Requested account [{name}] has expired")
            self._fetch_again(account)
        elif account is None and not self.resolver.is_slow:
            self.take(self.fetch(name))
        return self._known.get(name)

    def _fetch_again(self, account: KnownAccount) -> None:
        if not self.resolver.is_slow:
            self.take(self.fetch(account.name))

    def load(self, names: Iterable[str]) -> None:
        """Have those of these accounts that there are; waits for others. At start only."""
        for name in names:
            if name not in self._known and is_account_key(name):
                self.take(self.fetch(name))

    def is_to_be_fetched(self, name: str) -> bool:
        """Tell whether finding this account must wait for others."""
        known = self._known.get(name)
        is_missing = known is None or known.is_expired
        return self.resolver.is_slow and is_missing and is_account_key(name)

    def fetch(self, name: str) -> dict[str, str]:
        """Give the JWT of an account, and of those that it imports from and are not known.

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
                # On another thread, and the log is the event loop's.
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
        """Read an account's JWT; raises UsageError unless it is one that counts now."""
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
        """Have an account whose claims are not there yet, so that they can be brought."""
        if name not in self._known:
            account = self._known[name] = KnownAccount(name)
            self._settle([account])

    def take(self, tokens: Mapping[str, str]) -> None:
        """Take accounts over, new ones and others; those whose JWT does not count stay as is."""
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
        """Go on with another JWT of an account that is in use; raises UsageError."""
        account = self._changed(name, token)
        if account is not None:
            self.take(self._missing_imports(account))
            self._settle([account])

    def _missing_imports(self, account: KnownAccount) -> dict[str, str]:
        found: dict[str, str] = {}
        if not self.resolver.is_slow:
            for name in {taken.account for taken in account.claims.imports}:
                if name not in self._known:
                    found |= self.fetch(name)
        return found

    def _changed(self, name: str, token: str) -> KnownAccount | None:
        account = self._known.get(name)
        if account is not None and account.token == token and account.is_complete:
            self._log("DBG", f"Requested account update for [{name}], same claims detected")
            return None
        claims = self.verified(name, token)
        account = self._known.setdefault(name, KnownAccount(name))
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
        """Let nobody into an account any more, and its members go."""
        account = self._known.get(name)
        if account is not None:
            self._log("DBG", f"Disable account {name} due to remove")
            self._forget(account)
            account.is_expired = True
            self._expire(account)

    def _forget(self, account: KnownAccount) -> None:
        name = account.name
        del self._known[name]
        if account.expiry is not None:
            account.expiry.cancel()
        for taken in account.claims.imports:
            self._importers.get(taken.account, set()).discard(name)
        self.declared.pop(name, None)
        self._done.pop(name, None)
        self._settle([self._known[each] for each in self._importers.get(name, ())])

    def take_options(self, options: ServerOptions) -> None:
        """Go on with another configuration; raises UsageError."""
        resolver, is_same = self.resolver, options.resolver == self._resolver_options
        if is_same and isinstance(resolver, FolderResolver):
            for name in resolver.folder.read_again():
                if name in self._known:
                    self.update(name, resolver.fetch(name))
        elif not is_same or isinstance(resolver, MemoryResolver):
            self.resolver = make_resolver(options, clock=self._clock)
            self._resolver_options = options.resolver
        if isinstance(self.resolver, MemoryResolver):
            for account in list(self._known.values()):
                self._reload(account, self.resolver)

    def _reload(self, account: KnownAccount, resolver: MemoryResolver) -> None:
        name = account.name
        try:
            self.update(name, resolver.fetch(name))
        except UsageError:
            if account.token:
                # Its members are told when all clients are looked at again.
                self._log("INF", f'Reloaded: deleting account [removed]: "{name}"')
                self._forget(account)

    # Settling

    def _settle(self, accounts: Iterable[KnownAccount]) -> None:
        """Work out what accounts share, and those that import from them; then declare all."""
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

    def _settle_imports(self, account: KnownAccount) -> None:
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

    def _cannot_import(self, account: KnownAccount, taken: ImportClaims) -> str:
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

    def _plan_expiry(self, account: KnownAccount) -> None:
        if account.expiry is not None:
            account.expiry.cancel()
            account.expiry = None
        if not account.claims.expires or self._loop is None:
            return
        left_s = max(account.claims.expires - self._clock.now_ns() // 10**9, 0)
        if left_s < TOKEN_SECONDS_MAX:
            account.expiry = self._loop.call_later(left_s, self._ended, account)

    def _ended(self, account: KnownAccount) -> None:
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
        """Give what an account may use of JetStream; None where it has none."""
        account = self._known.get(name)
        return None if account is None else jetstream_limits(account.claims)
