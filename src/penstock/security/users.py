"""Users as a configuration declares them.

What always holds: a user has a name and a password or is known by an nkey, never both; the account
is named, not held, so that accounts can be rebuilt under users and the other way round.

Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from penstock.errors import UsageError
from penstock.protocol.nkeys import is_user_key
from penstock.security.passwords import Secret
from penstock.security.permissions import PermissionOptions, Permissions

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
        """Build from what a configuration states; raises UsageError in the reference's words."""
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
        """Give what the user is looked up by."""
        return self.nkey or self.name

    def may_connect_by(self, connection_type: str) -> bool:
        """Tell whether the user may use this kind of connection."""
        return not self.connection_types or connection_type in self.connection_types


def connection_types(names: Iterable[str]) -> frozenset[str]:
    """Read names of kinds of connection, in any case; raises UsageError for an unknown one."""
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
