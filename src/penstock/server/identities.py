"""Accounts and users of a running server: who a client is, and which account it is in.

Builds the accounts and the authenticator from the options, joins both into `Rights`, and keeps
account membership. Rebuilt on reload; accounts that stay keep their subscriptions. Where operators
are trusted, accounts come from their JWTs, one by one as somebody needs them.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.config.options import AccountOptions, AuthorizationOptions, ServerOptions
from penstock.config.options_accounts import TraceOptions
from penstock.config.options_transports import SimpleAuthorizationOptions
from penstock.config.reading import changed
from penstock.errors import UsageError
from penstock.net.connection import Connection
from penstock.protocol.handshake import ConnectOptions
from penstock.routing.sublist import Sublist
from penstock.routing.transforms import SubjectMappings
from penstock.security.accounts import AccountLimits, Accounts
from penstock.security.authenticator import Authenticator, Identity
from penstock.server.rights import Rights
from penstock.server.version import NATS_VERSION

if TYPE_CHECKING:
    # A server without operators starts without loading what is about tokens.
    from penstock.security.token_authenticator import TokenAuthenticator
    from penstock.server.claimed_accounts import ClaimedAccounts, KnownAccount

GLOBAL_ACCOUNT = "$G"


class Identities:
    """The accounts and users of one server; see the module.

    `claimed` are the accounts of operators, None without these. `on_claims` is told of such an
    account that has changed, and `on_end` of one that nobody may use any more.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        log: Callable[[str, str], None] = lambda level, text: None,
        on_claims: Callable[[KnownAccount], None] = lambda account: None,
        on_end: Callable[[KnownAccount], None] = lambda account: None,
    ) -> None:
        """Build them; raises UsageError for what cannot be."""
        self._clock = clock
        self._random_bytes = random_bytes
        self._log = log
        self._on_claims = on_claims
        self._on_end = on_end
        self.authenticator: Authenticator | TokenAuthenticator
        self.claimed: ClaimedAccounts | None = None
        self._tokens: TokenAuthenticator | None = None
        self.system_account_name = options.system_account or "$SYS"
        self.accounts: Accounts[Sublist, SubjectMappings] = Accounts(
            Sublist, system_name=None if options.no_system_account else self.system_account_name
        )
        self.apply(options)

    def apply(self, options: ServerOptions) -> None:
        """Take over users, accounts and mappings; raises UsageError for what cannot be."""
        self._take_users(options)
        self._configured = options.accounts
        self.accounts.declare(GLOBAL_ACCOUNT, mappings=self._mappings(options.mappings))
        for name, account in options.accounts.items():
            self._declare(name, account)
        if options.operators or options.trusted_keys:
            self._take_operators(options)
        wanted = {GLOBAL_ACCOUNT, self.system_account_name, *self.declared}
        for name in [each.name for each in self.accounts if each.name not in wanted]:
            self.accounts.remove(name)

    @property
    def declared(self) -> Mapping[str, AccountOptions]:
        """What accounts share and may, be it from the configuration or from claims."""
        if self.claimed is None:
            return self._configured
        return ChainMap(self.claimed.declared, self._configured)

    def _take_users(self, options: ServerOptions) -> None:
        tls, websocket = options.tls, options.websocket
        mapping = {
            "STANDARD": tls is not None and tls.verify_and_map,
            "WEBSOCKET": websocket is not None
            and websocket.port != 0
            and websocket.tls is not None
            and websocket.tls.verify_and_map,
        }
        users = Authenticator.from_options(
            authorization=_stated(options.authorization),
            accounts=options.accounts,
            system_account=self.system_account_name,
            no_auth_user=options.no_auth_user or None,
            maps_certificates=mapping["STANDARD"],
            mapped_connection_types=frozenset(kind for kind, maps in mapping.items() if maps),
            random_bytes=self._random_bytes,
        )
        # Where operators are trusted, nobody else's users ever count.
        self.authenticator = self._tokens or users
        own = websocket.authorization if websocket is not None else SimpleAuthorizationOptions()
        self._websocket_authenticator = users.for_listener(
            maps_certificates=mapping["WEBSOCKET"],
            user=own.user,
            password=own.password,
            token=own.token,
            no_auth_user=websocket.no_auth_user if websocket is not None else "",
        )
        self._timeout_s = options.authorization.timeout_s
        self._websocket_timeout_s = own.timeout_s or self._timeout_s
        # Asked for each CONNECT, and answered by looking at every user.
        self.is_slow = users.is_slow or self._websocket_authenticator.is_slow

    def _declare(self, name: str, account: AccountOptions) -> None:
        limits, trace = account.limits, account.msg_trace or TraceOptions()
        found = self.accounts.declare(
            name,
            limits=AccountLimits(
                limits.max_connections,
                limits.max_subscriptions,
                limits.max_payload,
                limits.max_leafnodes,
            ),
            mappings=self._mappings(account.mappings),
        )
        found.trace_destination, found.trace_sampling = trace.destination, trace.sampling

    # Operators

    def _take_operators(self, options: ServerOptions) -> None:
        from penstock.config.operators import wrong_versions
        from penstock.security.token_authenticator import TokenAuthenticator
        from penstock.server.claimed_accounts import ClaimedAccounts

        if reason := wrong_versions(options, NATS_VERSION):
            raise UsageError(reason)
        if self.claimed is None:
            self.claimed = ClaimedAccounts(
                options,
                clock=self._clock,
                log=self._log,
                declare=self._declare_claimed,
                announce=self._on_claims,
                expire=self._on_end,
            )
            self._find_system_account(options, self.claimed)
        else:
            self.claimed.take_options(options)
        pinned = options.resolver_pinned_accounts
        system = (options.system_account,) if pinned and options.system_account else ()
        self._tokens = self.authenticator = TokenAuthenticator(
            self.claimed.find,
            now_s=lambda: self._clock.now_ns() / 1e9,
            default_token=options.default_sentinel,
            pinned_accounts=frozenset((*pinned, *system)),
        )
        self.is_slow = False

    def _find_system_account(self, options: ServerOptions, claimed: ClaimedAccounts) -> None:
        name = options.system_account
        if not name or name in options.accounts:
            return
        claimed.load((name,))
        if name in claimed:
            return
        if options.resolver is None or options.resolver.kind == "memory":
            raise UsageError("error resolving system account: account missing")
        # It comes later: somebody must be in it to bring it.
        if not claimed.trusts_operators:
            raise UsageError("Can't set system account: account validation failed")
        claimed.bootstrap(name)

    def _declare_claimed(self, account: KnownAccount) -> None:
        assert self.claimed is not None
        try:
            self._declare(account.name, self.claimed.declared[account.name])
        except UsageError as error:
            # Only a mapping can be wrong by now; the account goes on without.
            self._log("ERR", f"Error adding mappings to account [{account.name}]: {error}")
            self.accounts.declare(account.name)
        found = self.accounts.find(account.name)
        assert found is not None, "it was declared"
        found.name_tag = account.claims.name

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to look at the clock, where claims end by it."""
        if self.claimed is not None:
            self.claimed.start(loop)

    def stop(self) -> None:
        """Look at the clock no more."""
        if self.claimed is not None:
            self.claimed.stop()

    def account_to_fetch(self, options: ConnectOptions) -> str:
        """Give the account of a client that others must be asked for first; "" for none."""
        if self.claimed is None or self._tokens is None or not self.claimed.resolver.is_slow:
            return ""
        name = self._tokens.account_of(options)
        return name if name and self.claimed.is_to_be_fetched(name) else ""

    def _mappings(self, declared: Any) -> SubjectMappings | None:
        return SubjectMappings(declared, random_below=self._random_below) if declared else None

    def _random_below(self, bound: int) -> int:
        return int.from_bytes(self._random_bytes(8), "little") % bound

    @property
    def asks_for_credentials(self) -> bool:
        """Tell whether INFO says that credentials are needed."""
        return self.authenticator.asks_for_credentials

    def _authenticator_of(self, connection: Connection) -> Authenticator | TokenAuthenticator:
        if self._tokens is not None:
            return self._tokens
        is_websocket = connection.kind == "websocket"
        return self._websocket_authenticator if is_websocket else self.authenticator

    def required_of(self, connection: Connection) -> bool:
        """Tell whether this client must say who it is."""
        return self._authenticator_of(connection).required

    def asked_of(self, connection: Connection) -> bool:
        """Tell whether INFO says to this client that credentials are needed."""
        users = self._authenticator_of(connection)
        # A WebSocket client is told so even where one without credentials is somebody.
        return users.required if connection.kind == "websocket" else users.asks_for_credentials

    def timeout_s_of(self, connection: Connection) -> float:
        """Give how long this client may take to say who it is."""
        is_websocket = connection.kind == "websocket"
        return self._websocket_timeout_s if is_websocket else self._timeout_s

    @property
    def needs_nonce(self) -> bool:
        """Tell whether INFO must carry something to sign."""
        return self.authenticator.needs_nonce

    def identify(self, connection: Connection, options: ConnectOptions) -> Identity | None:
        """Find out who a client is; None for nobody who may connect. Any thread; may be slow."""
        if self._tokens is not None:
            return self._tokens.authenticate(
                options,
                nonce=connection.nonce,
                connection_type=_type_of(connection),
                address=connection.ip,
                explain=lambda level, text: self._log(level, f"{connection} - {text}"),
            )
        return self._authenticator_of(connection).authenticate(
            options,
            nonce=connection.nonce,
            peer_certificate=connection.peer_certificate,
            connection_type=_type_of(connection),
        )

    def rights_of(self, identity: Identity | None) -> Rights | None:
        """Give what somebody may; None for nobody, or where the account is gone."""
        account = self.accounts.find(identity.account) if identity is not None else None
        if identity is None or account is None:
            return None
        return Rights(
            account,
            user=identity.user,
            permissions=identity.permissions,
            clock=self._clock,
            grant=identity.grant,
        )

    def anonymous(self, connection: Connection) -> Rights | None:
        """Give what a client may before it said who it is; None where it must say so first."""
        users = self._authenticator_of(connection)
        if not users.required:
            nobody = self.accounts.global_account
            return Rights(nobody, user="", permissions=None, clock=self._clock)
        if not users.admits_without_credentials:
            return None
        found = users.authenticate(ConnectOptions(), connection_type=_type_of(connection))
        return self.rights_of(found)

    def join(self, connection: Connection, rights: Rights) -> bool:
        """Enter a connection into its account; False where that is full."""
        if connection.identity is not None:
            connection.identity.account.leave(connection)
        return rights.account.enter(connection)

    def leave(self, connection: Connection) -> None:
        """Take a closed connection out of its account."""
        if connection.identity is not None:
            connection.identity.account.leave(connection)


def _type_of(connection: Connection) -> str:
    return "WEBSOCKET" if connection.kind == "websocket" else "STANDARD"


def _stated(authorization: AuthorizationOptions) -> AuthorizationOptions | None:
    """Give the block if it says anything of users; where it does not, it is as if it was absent."""
    absent = changed(AuthorizationOptions(), timeout_s=authorization.timeout_s)
    return None if authorization == absent else authorization
