"""Authenticates a client by the credentials of its CONNECT, against the configured users.

The order is the reference server's: an nkey if there are nkey users; then users by name, or by
certificate if the listener maps certificates; then the single token or user of the `authorization`
block. A client without credentials is `no_auth_user`, if there is one.

Invariants: an authenticator never changes; a reload builds a new one. A refused client is not told
why. Secrets are compared in constant time, and an unknown name takes as long as a known one.
Nothing that a client sends raises.

Any thread. An answer may take as long as a bcrypt hash (`is_slow`); the event loop should not wait
for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.protocol.nkeys import is_signed
from penstock.security.accounts import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from penstock.security.distinguished_names import DistinguishedName, find_name
from penstock.security.identifiers import RandomBytes, UniqueIds
from penstock.security.permissions import Permissions
from penstock.security.users import (
    AccountOptions,
    AuthorizationOptions,
    Secret,
    SimpleCredentials,
    User,
    check_users,
    configured_users,
    same_secret,
    simple_credentials,
)

if TYPE_CHECKING:
    # Reading certificates takes a library that a server without TLS need not load.
    # Nor does one without operators load what is about tokens.
    from penstock.security.jwt.authenticator import Grant
    from penstock.security.tls import PeerCertificate

HIDDEN = "[REDACTED]"
"""What stands for a token wherever a user's name is shown."""


class ConnectFields(Protocol):
    """The credentials of a CONNECT; what is absent is empty."""

    @property
    def user(self) -> str:
        """Its name."""
        ...

    @property
    def password(self) -> str:
        """Its password, plain or as a bcrypt hash."""
        ...

    @property
    def auth_token(self) -> str:
        """The token."""
        ...

    @property
    def nkey(self) -> str:
        """The public nkey."""
        ...

    @property
    def sig(self) -> str:
        """The signature of the nonce."""
        ...


class IdentityKind(Enum):
    """By what a client was known."""

    ANYONE = "anyone"
    USER = "user"
    NKEY = "nkey"
    TOKEN = "token"
    CERTIFICATE = "certificate"
    TOKEN_USER = "jwt"


class Identity(msgspec.Struct, frozen=True):
    """Who a client turned out to be. Without `permissions` it may do everything.

    `grant` is what a JWT gave to it, where one did.
    """

    user: str
    account: str
    kind: IdentityKind
    permissions: Permissions | None = None
    grant: Grant | None = None

    @property
    def label(self) -> str:
        """The user as log lines show it; "" for an anonymous one."""
        if self.kind is IdentityKind.TOKEN:
            return "token"
        if not self.user:
            return ""
        return f"{'nkey' if self.kind is IdentityKind.NKEY else 'user'}:{self.user}"


class Authenticator:
    """The users of one server, as one listener sees them; see the module.

    `mapped_connection_types` are the kinds of connection whose listener maps certificates, on any
    listener: a user without a password who may come that way is known by certificate only.
    """

    def __init__(
        self,
        *,
        users: Iterable[User] = (),
        simple: SimpleCredentials | None = None,
        no_auth_user: str = "",
        is_no_auth_implied: bool = False,
        maps_certificates: bool = False,
        mapped_connection_types: frozenset[str] = frozenset(),
        decoy_key: bytes,
    ) -> None:
        self._all = tuple(users)
        self._users = {user.name: user for user in self._all if not user.nkey}
        self._nkeys = {user.nkey: user for user in self._all if user.nkey}
        self._simple = simple or SimpleCredentials()
        self._no_auth_user = no_auth_user
        self._is_no_auth_implied = is_no_auth_implied
        self._maps_certificates = maps_certificates
        self._mapped_connection_types = mapped_connection_types
        self._decoy_key = decoy_key
        self._decoys = tuple(user.password for user in self._users.values())
        self._names: tuple[tuple[User, DistinguishedName], ...] = tuple(
            (user, name)
            for user in self._users.values()
            if (name := find_name(user.name)) is not None
        )

    @classmethod
    def from_options(
        cls,
        *,
        authorization: AuthorizationOptions | None = None,
        accounts: Mapping[str, AccountOptions] | None = None,
        system_account: str = SYSTEM_ACCOUNT,
        no_auth_user: str | None = None,
        maps_certificates: bool = False,
        mapped_connection_types: frozenset[str] = frozenset(),
        random_bytes: RandomBytes,
    ) -> Authenticator:
        """Build from what a configuration states.

        Raises UsageError, in the reference server's words where it has them, for users that cannot
        be: twice the same, no name, a bad nkey, bad permissions, an unknown `no_auth_user`.
        """
        users = configured_users(authorization, accounts or {})
        implied = (
            authorization is None
            and not no_auth_user
            and (accounts or {}).keys() - {GLOBAL_ACCOUNT} == {system_account}
        )
        if implied:
            # Only the system account has users: other clients need not authenticate.
            no_auth_user = f"nats-{UniqueIds(random_bytes).next()[-8:]}"
            users.append(User(no_auth_user, GLOBAL_ACCOUNT, Secret(no_auth_user)))
        check_users(users, no_auth_user or "")
        return cls(
            users=users,
            simple=simple_credentials(authorization),
            no_auth_user=no_auth_user or "",
            is_no_auth_implied=implied,
            maps_certificates=maps_certificates,
            mapped_connection_types=mapped_connection_types,
            decoy_key=random_bytes(32),
        )

    def for_listener(
        self,
        *,
        maps_certificates: bool,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        no_auth_user: str | None = None,
    ) -> Authenticator:
        """Return the same users for another listener, such as the WebSocket one.

        Its own user, token or `no_auth_user`, if there is any, stands instead of all of these.
        """
        own = bool(user or token or no_auth_user)
        if no_auth_user:
            check_users(list(self._all), no_auth_user)
        simple = SimpleCredentials(user or "", Secret(password or ""), Secret(token or ""))
        return Authenticator(
            users=self._all,
            simple=simple if own else self._simple,
            no_auth_user=(no_auth_user or "") if own else self._no_auth_user,
            is_no_auth_implied=self._is_no_auth_implied and not own,
            maps_certificates=maps_certificates,
            mapped_connection_types=self._mapped_connection_types,
            decoy_key=self._decoy_key,
        )

    @property
    def required(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self._all) or self._simple.exist

    @property
    def asks_for_credentials(self) -> bool:
        """Whether INFO says so: not if there is a `no_auth_user`."""
        return self.required and (not self._no_auth_user or self._is_no_auth_implied)

    @property
    def admits_without_credentials(self) -> bool:
        """Whether a client without credentials is admitted, as `no_auth_user`."""
        return bool(self._no_auth_user)

    @property
    def needs_nonce(self) -> bool:
        """Whether INFO must carry a nonce to sign."""
        return bool(self._nkeys)

    @property
    def is_slow(self) -> bool:
        """Whether an answer may take long because a secret is a bcrypt hash."""
        secrets = (*self._decoys, self._simple.password, self._simple.token)
        return any(secret.is_slow for secret in secrets)

    @property
    def has_plain_passwords(self) -> bool:
        """Whether the configuration has a plaintext password, which deserves a warning."""
        plain = (
            not user.password.is_slow and not self._is_certificate_only(user)
            for user in self._users.values()
            if not (self._is_no_auth_implied and user.name == self._no_auth_user)
        )
        simple = self._simple.password
        return any(plain) or not (simple.is_empty or simple.is_slow)

    def has_user(self, connect: ConnectFields) -> bool:
        """Return True if the user or nkey that a client names exists."""
        return connect.nkey in self._nkeys or connect.user in self._users

    def authenticate(
        self,
        connect: ConnectFields,
        *,
        nonce: str = "",
        peer_certificate: PeerCertificate | None = None,
        connection_type: str = "STANDARD",
    ) -> Identity | None:
        """Return the identity of a connecting client, or None if it is refused."""
        if not self.required:
            return _anyone(connect)
        nkey = self._claimed_nkey(connect)
        if nkey:
            return self._by_nkey(nkey, connect.sig, nonce, connection_type)
        if self._users and self._maps_certificates:
            return self._by_certificate(peer_certificate, connect.password, connection_type)
        if self._users and connect.user:
            return self._by_password(connect.user, connect.password, connection_type)
        if not (connect.user or connect.password or connect.auth_token):
            user = self._users.get(self._no_auth_user)
            if user is not None:
                is_fine = user.password.verify_itself() and user.may_connect_by(connection_type)
                return _identity(user, IdentityKind.USER) if is_fine else None
        return self._bysimple_credentials(connect)

    def _claimed_nkey(self, connect: ConnectFields) -> str:
        if not self._nkeys:
            return ""
        given = connect.user or connect.password or connect.auth_token or connect.nkey
        if not given and self._no_auth_user in self._nkeys:
            return self._no_auth_user
        return connect.nkey

    def _by_nkey(
        self, nkey: str, signature: str, nonce: str, connection_type: str
    ) -> Identity | None:
        # The signature is looked at first, so that it is for unknown keys too.
        signed = nkey == self._no_auth_user or (
            bool(nonce) and is_signed(nkey, nonce.encode(), signature)
        )
        user = self._nkeys.get(nkey)
        if not signed or user is None or not user.may_connect_by(connection_type):
            return None
        return _identity(user, IdentityKind.NKEY)

    def _by_password(self, name: str, password: str, connection_type: str) -> Identity | None:
        user = self._users.get(name)
        secret = self._decoy(name) if user is None else user.password
        verified = secret.verify(password)
        if user is None or not verified or not user.may_connect_by(connection_type):
            return None
        if name != self._no_auth_user and self._is_certificate_only(user):
            return None
        return _identity(user, IdentityKind.USER)

    def _decoy(self, name: str) -> Secret:
        """Return a secret to verify for a name that does not exist, the same for each name."""
        # Few servers are asked for a name that does not exist, and hashing takes long to load.
        import hashlib

        text = name.encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.blake2b(text, key=self._decoy_key).digest()[:8], "little")
        return self._decoys[number % len(self._decoys)]

    def _is_certificate_only(self, user: User) -> bool:
        return user.password.is_empty and any(
            user.may_connect_by(each) for each in self._mapped_connection_types
        )

    def _by_certificate(
        self, certificate: PeerCertificate | None, password: str, connection_type: str
    ) -> Identity | None:
        if certificate is None:
            return None
        user = self._mapped_user(certificate, connection_type)
        # A password in the configuration is asked for besides the certificate.
        if user is None or not user.password.verify(password):
            return None
        return _identity(user, IdentityKind.CERTIFICATE)

    def _mapped_user(self, certificate: PeerCertificate, connection_type: str) -> User | None:
        return (
            self._first_named(certificate.alternative_names(), connection_type)
            or self._distinguished(certificate.subject, connection_type)
            or self._first_named(certificate.subject_texts(), connection_type)
        )

    def _first_named(self, names: Iterable[str], connection_type: str) -> User | None:
        for name in names:
            user = self._users.get(name)
            if user is not None and user.may_connect_by(connection_type):
                return user
        return None

    def _distinguished(
        self, subject: DistinguishedName | None, connection_type: str
    ) -> User | None:
        if subject is None:
            return None
        open_to = [each for each in self._names if each[0].may_connect_by(connection_type)]
        exact = (user for user, name in open_to if name.equals(subject))
        reordered = (user for user, name in open_to if name.equals_in_any_order(subject))
        return next(exact, None) or next(reordered, None)

    def _bysimple_credentials(self, connect: ConnectFields) -> Identity | None:
        simple = self._simple
        if not simple.token.is_empty:
            verified = simple.token.verify(connect.auth_token)
            return Identity(HIDDEN, GLOBAL_ACCOUNT, IdentityKind.TOKEN) if verified else None
        if not simple.user:
            return None
        is_named = same_secret(
            simple.user.encode("utf-8", "surrogatepass"),
            connect.user.encode("utf-8", "surrogatepass"),
        )
        verified = simple.password.verify(connect.password)
        if not (is_named and verified):
            return None
        return Identity(simple.user, GLOBAL_ACCOUNT, IdentityKind.USER)


def _identity(user: User, kind: IdentityKind) -> Identity:
    return Identity(user.id, user.account, kind, user.permissions)


def _anyone(connect: ConnectFields) -> Identity:
    """Return the identity of a client where none must authenticate, by its own name."""
    hidden = HIDDEN if connect.auth_token else ""
    return Identity(connect.nkey or connect.user or hidden, GLOBAL_ACCOUNT, IdentityKind.ANYONE)
