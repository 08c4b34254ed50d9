"""Users as a configuration declares them, with their secrets: read and checked.

The configuration's own classes are not imported: any object with the right fields will do.

Invariants: a user has a name and a password, or an nkey, never both. A user names its account and
holds no reference to it, so that either can be rebuilt alone. A secret never shows in a repr or an
error, and a comparison takes the same time wherever two secrets differ.

Verifying a bcrypt hash takes a tenth of a second or more, by design, with the interpreter's lock
released: `is_slow` says so beforehand.

Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from penstock.errors import UsageError
from penstock.limits import BCRYPT_COST_MAX, PASSWORD_BYTES_MAX
from penstock.protocol.nkeys import is_user_key
from penstock.security.accounts import GLOBAL_ACCOUNT
from penstock.security.permissions import PermissionOptions, Permissions

_BCRYPT = re.compile(r"\$2[abxy]\$(\d{2})\$")

# What bcrypt itself looks at; its library refuses longer ones instead of cutting them.
_BCRYPT_BYTES = 72

# "$2b$", two digits of cost, "$", 22 characters of salt; 31 characters of hash follow.
_BCRYPT_SALT_CHARACTERS = 29


def is_bcrypt(text: str) -> bool:
    """Return True if a configured secret is a bcrypt hash."""
    return _BCRYPT.match(text) is not None


def same_secret(one: bytes, other: bytes) -> bool:
    """Return True if two secrets are equal; the time says nothing of where they differ."""
    # A server without secrets starts without loading it: it loads all hash functions of OpenSSL.
    import hmac

    return hmac.compare_digest(one, other)


class Secret:
    """A configured password or token.

    Raises UsageError for a bcrypt hash whose cost is beyond BCRYPT_COST_MAX.
    """

    __slots__ = ("_bcrypt", "_text")

    def __init__(self, text: str) -> None:
        self._text = _encoded(text)
        self._bcrypt = b""
        if found := _BCRYPT.match(text):
            if int(found[1]) > BCRYPT_COST_MAX:
                raise UsageError(
                    f"a bcrypt cost of {found[1]} is too high, {BCRYPT_COST_MAX} is the most"
                )
            # The letter tells which bug its maker had; all are computed in the one right way.
            self._bcrypt = b"$2b" + self._text[3:]

    def __repr__(self) -> str:
        return "Secret(<hidden>)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return same_secret(self._text, other._text)

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def is_empty(self) -> bool:
        """Whether the secret is empty."""
        return not self._text

    @property
    def is_slow(self) -> bool:
        """Whether verifying takes long and belongs on another thread."""
        return bool(self._bcrypt)

    def verify(self, candidate: str) -> bool:
        """Return True if `candidate` is the password."""
        given = _encoded(candidate)
        if len(given) > PASSWORD_BYTES_MAX:
            return False
        if not self._bcrypt:
            return same_secret(self._text, given)
        # A server whose passwords are plain, or that has none, starts without loading it.
        import bcrypt

        try:
            computed = bcrypt.hashpw(given[:_BCRYPT_BYTES], self._bcrypt[:_BCRYPT_SALT_CHARACTERS])
        except ValueError:
            # Not a hash after all, or bytes that the library will not take.
            return False
        return same_secret(computed, self._bcrypt)

    def verify_itself(self) -> bool:
        """Verify its own text, as for `no_auth_user`.

        A hash is not its own password, so this fails for one: so it does in the reference server.
        """
        return not self._bcrypt


def _encoded(text: str) -> bytes:
    # JSON can carry halves of surrogate pairs; they must neither raise nor equal anything.
    return text.encode("utf-8", "surrogatepass")


CONNECTION_TYPES = frozenset(
    {"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"}
)
"""The kinds of connection that a user can be confined to."""


class UserOptions(Protocol):
    """A user as a configuration states it; what is absent is empty or None."""

    @property
    def user(self) -> str | None:
        """Its name."""
        ...

    @property
    def password(self) -> str | None:
        """Its password, plain or as a bcrypt hash."""
        ...

    @property
    def nkey(self) -> str | None:
        """The public nkey."""
        ...

    @property
    def permissions(self) -> PermissionOptions | None:
        """What it may; None for everything."""
        ...

    @property
    def allowed_connection_types(self) -> Iterable[str]:
        """The kinds of connection it may use; none for all."""
        ...


class User(msgspec.Struct, frozen=True):
    """One user. `name` is empty for an nkey user; without `connection_types` any will do."""

    name: str
    account: str
    password: Secret
    nkey: str = ""
    permissions: Permissions | None = None
    connection_types: frozenset[str] = frozenset()

    @classmethod
    def from_options(
        cls, options: UserOptions, *, account: str, default_permissions: Permissions | None = None
    ) -> User:
        """Build a user of the configuration; raise UsageError in the reference's words."""
        nkey, name = options.nkey or "", options.user or ""
        if not nkey and not name:
            raise UsageError("User entry requires a user")
        if nkey and not is_user_key(nkey):
            raise UsageError("Not a valid public nkey for a user")
        if nkey and (name or options.password):
            raise UsageError("Nkey users do not take usernames or passwords")
        return cls(
            name=name,
            account=account,
            password=Secret(options.password or ""),
            nkey=nkey,
            permissions=_permissions(options, name, nkey) or default_permissions,
            connection_types=connection_types(options.allowed_connection_types),
        )

    @property
    def id(self) -> str:
        """The name or nkey that the user is looked up by."""
        return self.nkey or self.name

    def may_connect_by(self, connection_type: str) -> bool:
        """Return True if the user may use this kind of connection."""
        return not self.connection_types or connection_type in self.connection_types


def connection_types(names: Iterable[str]) -> frozenset[str]:
    """Return names of connection types, in any case; raise UsageError for an unknown one."""
    given = tuple(names)
    for name in given:
        if name.upper() not in CONNECTION_TYPES:
            raise UsageError(f'unknown connection type "{name}"')
    return frozenset(name.upper() for name in given)


def _permissions(options: UserOptions, name: str, nkey: str) -> Permissions | None:
    if options.permissions is None:
        return None
    try:
        return Permissions.from_options(options.permissions)
    except UsageError as error:
        whose = f'nkey "{nkey}"' if nkey else f'user "{name}"'
        raise UsageError(f"invalid permissions for {whose}: {error}") from None


class AuthorizationOptions(Protocol):
    """The `authorization` block; what is absent is empty or None."""

    @property
    def user(self) -> str | None:
        """Its name."""
        ...

    @property
    def password(self) -> str | None:
        """Its password, plain or as a bcrypt hash."""
        ...

    @property
    def token(self) -> str | None:
        """The token, plain or as a bcrypt hash."""
        ...

    @property
    def users(self) -> Iterable[UserOptions]:
        """Its users."""
        ...

    @property
    def default_permissions(self) -> PermissionOptions | None:
        """For users without permissions of their own."""
        ...


class AccountOptions(Protocol):
    """The users of one account."""

    @property
    def users(self) -> Iterable[UserOptions]:
        """Its users."""
        ...

    @property
    def default_permissions(self) -> PermissionOptions | None:
        """For users without permissions of their own."""
        ...


class SimpleCredentials(msgspec.Struct, frozen=True):
    """The single user or token of a block; neither if both are empty."""

    user: str = ""
    password: Secret = msgspec.field(default_factory=lambda: Secret(""))
    token: Secret = msgspec.field(default_factory=lambda: Secret(""))

    @property
    def exist(self) -> bool:
        """Whether there is a user or a token."""
        return bool(self.user) or not self.token.is_empty


def simple_credentials(authorization: AuthorizationOptions | None) -> SimpleCredentials:
    """Read the one user or token of a block."""
    if authorization is None:
        return SimpleCredentials()
    return SimpleCredentials(
        authorization.user or "",
        Secret(authorization.password or ""),
        Secret(authorization.token or ""),
    )


def configured_users(
    authorization: AuthorizationOptions | None, accounts: Mapping[str, AccountOptions]
) -> list[User]:
    """Return all users, of the `authorization` block and of accounts; raise UsageError."""
    users: list[User] = []
    blocks: list[tuple[str, AuthorizationOptions | AccountOptions]] = list(accounts.items())
    if authorization is not None:
        blocks.insert(0, (GLOBAL_ACCOUNT, authorization))
    for account, block in blocks:
        stated = block.default_permissions
        default = None if stated is None else Permissions.from_options(stated)
        users += (
            User.from_options(each, account=account, default_permissions=default)
            for each in block.users
        )
    return users


def check_users(users: list[User], no_auth_user: str) -> None:
    """Refuse, with UsageError, a user that is there twice or a `no_auth_user` that is not."""
    seen: set[str] = set()
    for user in users:
        if user.id in seen:
            kind = "nkey" if user.nkey else "user"
            raise UsageError(f'Duplicate {kind} "{user.id}" detected')
        seen.add(user.id)
    if no_auth_user and not users:
        raise UsageError(f'no_auth_user: "{no_auth_user}" present, but users/nkeys are not defined')
    if no_auth_user and no_auth_user not in seen:
        raise UsageError(
            f'no_auth_user: "{no_auth_user}" not present as user or nkey in authorization block '
            "or account configuration"
        )
