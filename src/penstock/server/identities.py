"""Accounts and users of a running server: who a client is, and which account it is in.

Builds the accounts and the authenticator from the options, joins both into `Rights`, and keeps
account membership. Rebuilt on reload; accounts that stay keep their subscriptions.

One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.clock import Clock
from penstock.config.options import AuthorizationOptions, ServerOptions
from penstock.config.options_transports import SimpleAuthorizationOptions
from penstock.config.reading import changed
from penstock.net.connection import Connection
from penstock.protocol.handshake import ConnectOptions
from penstock.routing.sublist import Sublist
from penstock.routing.transforms import SubjectMappings
from penstock.security.accounts import Account, AccountLimits, Accounts
from penstock.security.authenticator import Authenticator, Identity
from penstock.server.rights import Rights

GLOBAL_ACCOUNT = "$G"


class Identities:
    """The accounts and users of one server; see the module."""

    def __init__(
        self,
        options: ServerOptions,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._clock = clock
        self._random_bytes = random_bytes
        self.system_account_name = options.system_account or "$SYS"
        self.accounts: Accounts[Sublist, SubjectMappings] = Accounts(
            Sublist, system_name=None if options.no_system_account else self.system_account_name
        )
        self.apply(options)

    def apply(self, options: ServerOptions) -> None:
        """Take over users, accounts and mappings; raises UsageError for what cannot be."""
        tls, websocket = options.tls, options.websocket
        mapping = {
            "STANDARD": tls is not None and tls.verify_and_map,
            "WEBSOCKET": websocket is not None
            and websocket.port != 0
            and websocket.tls is not None
            and websocket.tls.verify_and_map,
        }
        self.authenticator = Authenticator.from_options(
            authorization=_stated(options.authorization),
            accounts=options.accounts,
            system_account=self.system_account_name,
            no_auth_user=options.no_auth_user or None,
            maps_certificates=mapping["STANDARD"],
            mapped_connection_types=frozenset(kind for kind, maps in mapping.items() if maps),
            random_bytes=self._random_bytes,
        )
        own = websocket.authorization if websocket is not None else SimpleAuthorizationOptions()
        self._websocket_authenticator = self.authenticator.for_listener(
            maps_certificates=mapping["WEBSOCKET"],
            user=own.user,
            password=own.password,
            token=own.token,
            no_auth_user=websocket.no_auth_user if websocket is not None else "",
        )
        self._timeout_s = options.authorization.timeout_s
        self._websocket_timeout_s = own.timeout_s or self._timeout_s
        # Asked for each CONNECT, and answered by looking at every user.
        self.is_slow = self.authenticator.is_slow or self._websocket_authenticator.is_slow
        wanted = {GLOBAL_ACCOUNT, self.system_account_name, *options.accounts}
        self.accounts.declare(GLOBAL_ACCOUNT, mappings=self._mappings(options.mappings))
        for name, account in options.accounts.items():
            limits = account.limits
            self.accounts.declare(
                name,
                limits=AccountLimits(
                    limits.max_connections,
                    limits.max_subscriptions,
                    limits.max_payload,
                    limits.max_leafnodes,
                ),
                mappings=self._mappings(account.mappings),
            )
        for name in [each.name for each in self.accounts if each.name not in wanted]:
            self.accounts.remove(name)

    def _mappings(self, declared: Any) -> SubjectMappings | None:
        return SubjectMappings(declared, random_below=self._random_below) if declared else None

    def _random_below(self, bound: int) -> int:
        return int.from_bytes(self._random_bytes(8), "little") % bound

    @property
    def asks_for_credentials(self) -> bool:
        """Tell whether INFO says that credentials are needed."""
        return self.authenticator.asks_for_credentials

    def _authenticator_of(self, connection: Connection) -> Authenticator:
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
        return self._rights(account, identity.user, identity.permissions)

    def anonymous(self, connection: Connection) -> Rights | None:
        """Give what a client may before it said who it is; None where it must say so first."""
        users = self._authenticator_of(connection)
        if not users.required:
            return self._rights(self.accounts.global_account, "", None)
        if not users.admits_without_credentials:
            return None
        nobody = ConnectOptions()
        return self.rights_of(users.authenticate(nobody, connection_type=_type_of(connection)))

    def _rights(
        self, account: Account[Sublist, SubjectMappings], user: str, permissions: Any
    ) -> Rights:
        return Rights(account, user=user, permissions=permissions, clock=self._clock)

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
