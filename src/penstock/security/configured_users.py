"""The users of a configuration, read and checked.

The configuration's own classes are not known here: anything with the right fields will do.

Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from penstock.errors import UsageError
from penstock.security.accounts import GLOBAL_ACCOUNT
from penstock.security.passwords import Secret
from penstock.security.permissions import PermissionOptions, Permissions
from penstock.security.users import User, UserOptions


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
    """The one user or the one token of a block; nobody's where both are empty."""

    user: str = ""
    password: Secret = msgspec.field(default_factory=lambda: Secret(""))
    token: Secret = msgspec.field(default_factory=lambda: Secret(""))

    @property
    def exist(self) -> bool:
        """Tell whether there is a user or a token."""
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
    """Read all users, of the `authorization` block and of the accounts; raises UsageError."""
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
