"""The accounts and users of a running server: who a client is, and which account it is in.

Builds accounts and authenticators from the options, joins both into `Rights`, and keeps the members
of accounts. A reload prepares other users, switches to them, and settles; accounts that stay keep
their subscriptions. Where operators are trusted, accounts come from their JWTs as clients need
them.

Thread: the event loop's, except for `identify`.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.clock import Clock
from penstock.config.options.accounts import TraceOptions
from penstock.config.options.server import AccountOptions, AuthorizationOptions, ServerOptions
from penstock.config.options.transports import SimpleAuthorizationOptions
from penstock.config.options.values import changed
from penstock.errors import UsageError
from penstock.net.connection import Connection
from penstock.protocol.handshake import ConnectOptions
from penstock.routing.applied_mappings import Chance
from penstock.routing.sublist import Sublist
from penstock.routing.transforms import SubjectMappings
from penstock.security.accounts import AccountLimits, Accounts
from penstock.security.authenticator import Authenticator, Identity
from penstock.server.accounts.admission import Rights
from penstock.server.version import NATS_VERSION

if TYPE_CHECKING:
    # A server without operators starts without loading what is about tokens.
    from penstock.security.jwt.authenticator import TokenAuthenticator
    from penstock.server.accounts.jwt_accounts import JwtAccount, JwtAccounts

GLOBAL_ACCOUNT = "$G"


class _Users(NamedTuple):
    """Everything that is decided by the configured users, replaced as one."""

    authenticator: Authenticator | TokenAuthenticator
    websocket_authenticator: Authenticator
    tokens: TokenAuthenticator | None
    timeout_s: float
    websocket_timeout_s: float
    is_slow: bool


class Prepared(NamedTuple):
    """Users and accounts of other options, built and not in use yet."""

    users: _Users
    declared: dict[str, AccountOptions]
    mappings: dict[str, SubjectMappings | None]
    configured: dict[str, AccountOptions]
    update_jwt_accounts: Callable[[], None] | None


class Identities:
    """The accounts and users of one server; see the module.

    `jwt_accounts` are the accounts of operators, None without operators. `on_claims` is called for
    such an account when it has changed, and `on_end` when it has ended.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        log: Callable[[str, str], None] = lambda level, text: None,
        on_claims: Callable[[JwtAccount], None] = lambda account: None,
        on_end: Callable[[JwtAccount], None] = lambda account: None,
    ) -> None:
        """Build users and accounts; raise UsageError if they cannot be used."""
        self._clock = clock
        self._random_bytes = random_bytes
        self._log = log
        self._on_claims = on_claims
        self._on_end = on_end
        self.jwt_accounts: JwtAccounts | None = None
        self.system_account_name = options.system_account or "$SYS"
        self.accounts: Accounts[Sublist, SubjectMappings] = Accounts(
            Sublist, system_name=None if options.no_system_account else self.system_account_name
        )
        self._configured: dict[str, AccountOptions] = {}
        self._current: _Users = None  # type: ignore[assignment]  # set by the first switch
        prepared = self.prepare(options)
        self.switch(prepared)
        if options.operators or options.trusted_keys:
            self._find_system_account(options)
        self.settle(prepared)

    # Taking options over: everything that can fail, then a switch that can be undone, then the rest

    def prepare(self, options: ServerOptions) -> Prepared:
        """Build users, mappings and the resolver of other options, and change nothing.

        Raises UsageError for options that cannot be used, and OSError if JWTs cannot be read.
        """
        users, websocket_users = self._users(options)
        declared = {GLOBAL_ACCOUNT: AccountOptions(mappings=options.mappings)} | options.accounts
        mappings = {name: self._mappings(each.mappings) for name, each in declared.items()}
        tokens, update = self._operators(options)
        own = _websocket_authorization(options)
        timeout_s = options.authorization.timeout_s
        return Prepared(
            _Users(
                # Where operators are trusted, users of the configuration do not count.
                authenticator=tokens or users,
                websocket_authenticator=websocket_users,
                tokens=tokens,
                timeout_s=timeout_s,
                websocket_timeout_s=own.timeout_s or timeout_s,
                # Asked for each CONNECT, and answered by looking at every user.
                is_slow=tokens is None and (users.is_slow or websocket_users.is_slow),
            ),
            declared,
            mappings,
            options.accounts,
            update,
        )

    def switch(self, prepared: Prepared) -> Callable[[], None]:
        """Use other users, and declare their accounts; return a function that undoes both.

        Accounts that are gone stay until `settle`. Neither function fails.
        """
        users, configured = self._current, self._configured
        restore_accounts = self.accounts.snapshot()

        def undo() -> None:
            self._current, self._configured = users, configured
            restore_accounts()

        self._current, self._configured = prepared.users, prepared.configured
        for name, account in prepared.declared.items():
            self._declare(name, account, prepared.mappings[name])
        return undo

    def settle(self, prepared: Prepared) -> None:
        """Remove the accounts that are gone, and take over JWTs that have changed."""
        if prepared.update_jwt_accounts is not None:
            prepared.update_jwt_accounts()
        wanted = {GLOBAL_ACCOUNT, self.system_account_name, *self.declared}
        for name in [each.name for each in self.accounts if each.name not in wanted]:
            self.accounts.remove(name)

    @property
    def authenticator(self) -> Authenticator | TokenAuthenticator:
        """What checks the credentials of clients, those of WebSocket clients excepted."""
        return self._current.authenticator

    @property
    def is_slow(self) -> bool:
        """Whether checking a client may take long, so that another thread has to do it."""
        return self._current.is_slow

    @property
    def declared(self) -> Mapping[str, AccountOptions]:
        """The options of all accounts, from the configuration and from claims."""
        if self.jwt_accounts is None:
            return self._configured
        return ChainMap(self.jwt_accounts.declared, self._configured)

    def _users(self, options: ServerOptions) -> tuple[Authenticator, Authenticator]:
        """Build what checks the configured users: on the client port, and on the WebSocket one."""
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
        own = _websocket_authorization(options)
        websocket_users = users.for_listener(
            maps_certificates=mapping["WEBSOCKET"],
            user=own.user,
            password=own.password,
            token=own.token,
            no_auth_user=websocket.no_auth_user if websocket is not None else "",
        )
        return users, websocket_users

    def _declare(
        self, name: str, account: AccountOptions, mappings: SubjectMappings | None
    ) -> None:
        limits, trace = account.limits, account.msg_trace or TraceOptions()
        found = self.accounts.declare(
            name,
            limits=AccountLimits(
                limits.max_connections,
                limits.max_subscriptions,
                limits.max_payload,
                limits.max_leafnodes,
            ),
            mappings=mappings,
        )
        found.trace_destination, found.trace_sampling = trace.destination, trace.sampling

    # Operators

    def _operators(
        self, options: ServerOptions
    ) -> tuple[TokenAuthenticator | None, Callable[[], None] | None]:
        """Return what checks JWTs, and what updates the accounts of operators; None without."""
        if not options.operators and not options.trusted_keys:
            return None, None
        from penstock.config.operators import wrong_versions
        from penstock.security.jwt.authenticator import TokenAuthenticator
        from penstock.server.accounts.jwt_accounts import JwtAccounts

        if reason := wrong_versions(options, NATS_VERSION):
            raise UsageError(reason)
        update: Callable[[], None] | None = None
        if self.jwt_accounts is None:
            # Only when the server is built: a reload cannot bring operators.
            self.jwt_accounts = JwtAccounts(
                options,
                clock=self._clock,
                log=self._log,
                declare=self._declare_claimed,
                announce=self._on_claims,
                expire=self._on_end,
            )
        else:
            update = self.jwt_accounts.prepare(options)
        pinned = options.resolver_pinned_accounts
        system = (options.system_account,) if pinned and options.system_account else ()
        tokens = TokenAuthenticator(
            self.jwt_accounts.find,
            now_s=lambda: self._clock.now_ns() / 1e9,
            default_token=options.default_sentinel,
            pinned_accounts=frozenset((*pinned, *system)),
        )
        return tokens, update

    def _find_system_account(self, options: ServerOptions) -> None:
        name, known = options.system_account, self.jwt_accounts
        if known is None or not name or name in options.accounts:
            return
        known.load((name,))
        if name in known:
            return
        if options.resolver is None or options.resolver.kind == "memory":
            raise UsageError("error resolving system account: account missing")
        # Its JWT comes later, through a user of the system account itself.
        if not known.trusts_operators:
            raise UsageError("Can't set system account: account validation failed")
        known.bootstrap(name)

    def _declare_claimed(self, account: JwtAccount) -> None:
        assert self.jwt_accounts is not None
        options = self.jwt_accounts.declared[account.name]
        try:
            self._declare(account.name, options, self._mappings(options.mappings))
        except UsageError as error:
            # Only a mapping can be wrong by now. The account goes on without any.
            self._log("ERR", f"Error adding mappings to account [{account.name}]: {error}")
            self.accounts.declare(account.name)
        found = self.accounts.find(account.name)
        assert found is not None, "it was declared"
        found.name_tag = account.claims.name

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timers of claims that expire."""
        if self.jwt_accounts is not None:
            self.jwt_accounts.start(loop)

    def stop(self) -> None:
        """Stop the timers."""
        if self.jwt_accounts is not None:
            self.jwt_accounts.stop()

    def account_to_fetch(self, options: ConnectOptions) -> str:
        """Return the client's account if it must be fetched first, or ""."""
        if (
            self.jwt_accounts is None
            or self._current.tokens is None
            or not self.jwt_accounts.resolver.is_slow
        ):
            return ""
        name = self._current.tokens.account_of(options)
        return name if name and self.jwt_accounts.is_to_be_fetched(name) else ""

    def _mappings(self, declared: Any) -> SubjectMappings | None:
        if not declared:
            return None
        chance = Chance(int.from_bytes(self._random_bytes(8), "little"))
        return SubjectMappings(declared, random_below=chance)

    @property
    def asks_for_credentials(self) -> bool:
        """Whether INFO says that credentials are needed."""
        return self.authenticator.asks_for_credentials

    def _authenticator_of(self, connection: Connection) -> Authenticator | TokenAuthenticator:
        if self._current.tokens is not None:
            return self._current.tokens
        is_websocket = connection.kind == "websocket"
        return self._current.websocket_authenticator if is_websocket else self.authenticator

    def required_of(self, connection: Connection) -> bool:
        """Return True if this client must authenticate."""
        return self._authenticator_of(connection).required

    def asked_of(self, connection: Connection) -> bool:
        """Return True if the INFO for this client says that credentials are needed."""
        users = self._authenticator_of(connection)
        # A WebSocket client is told so even if there is a user for clients without credentials.
        return users.required if connection.kind == "websocket" else users.asks_for_credentials

    def timeout_s_of(self, connection: Connection) -> float:
        """Return how long this client may take to authenticate."""
        is_websocket = connection.kind == "websocket"
        users = self._current
        return users.websocket_timeout_s if is_websocket else users.timeout_s

    @property
    def needs_nonce(self) -> bool:
        """Whether INFO must carry a nonce to sign."""
        return self.authenticator.needs_nonce

    def identify(self, connection: Connection, options: ConnectOptions) -> Identity | None:
        """Return the identity of a client, or None if it is refused. Any thread; may be slow."""
        if self._current.tokens is not None:
            return self._current.tokens.authenticate(
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
        """Return the user's rights, or None if the user or its account is gone."""
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
        """Return a client's rights before CONNECT, or None if it must authenticate first."""
        users = self._authenticator_of(connection)
        if not users.required:
            account = self.accounts.global_account
            return Rights(account, user="", permissions=None, clock=self._clock)
        if not users.admits_without_credentials:
            return None
        found = users.authenticate(ConnectOptions(), connection_type=_type_of(connection))
        return self.rights_of(found)

    def join(self, connection: Connection, rights: Rights) -> bool:
        """Add a connection to its account; return False if the account is full."""
        if connection.identity is not None:
            connection.identity.account.leave(connection)
        return rights.account.enter(connection)

    def leave(self, connection: Connection) -> None:
        """Remove a closed connection from its account."""
        if connection.identity is not None:
            connection.identity.account.leave(connection)


def _type_of(connection: Connection) -> str:
    return "WEBSOCKET" if connection.kind == "websocket" else "STANDARD"


def _stated(authorization: AuthorizationOptions) -> AuthorizationOptions | None:
    """Return the block, or None if it says nothing of users."""
    absent = changed(AuthorizationOptions(), timeout_s=authorization.timeout_s)
    return None if authorization == absent else authorization


def _websocket_authorization(options: ServerOptions) -> SimpleAuthorizationOptions:
    websocket = options.websocket
    return websocket.authorization if websocket is not None else SimpleAuthorizationOptions()
