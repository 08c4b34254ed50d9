"""Options of who may connect: one user, a token, or many users. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from penstock.config.declaring import Block, Key, option, options_block
from penstock.config.options_permissions import (
    PermissionsOptions,
    UserOptions,
    permissions,
    users,
    with_default_permissions,
)
from penstock.config.parser import Value
from penstock.config.public_keys import KeyKind, is_public_key
from penstock.config.quoting import quoted
from penstock.config.reading import (
    Notes,
    array,
    boolean,
    changed,
    mapping,
    read_fields,
    seconds,
    text,
)

_TIMEOUT_HIGH_S: Final = 60.0


def _timeout(value: Value, key: Key, notes: Notes) -> float:
    timeout_s: float = seconds("authorization")(value, key, notes)
    if timeout_s > _TIMEOUT_HIGH_S:
        hint = "possibly caused by unquoted duration; use '1m' instead of 1m, for example"
        high = f"timeout of {value.value} ({timeout_s:f} seconds) is high"
        notes.warn(value, key, f"{high}, consider keeping it under 60 seconds. {hint}")
    return timeout_s


def _texts_of(what: str) -> Callable[[Value, Key, Notes], tuple[str, ...]]:
    def read(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
        entries = array(value, f"Expected {what} field to be an array, got {value.type_name}")
        return tuple(text(entry, key, notes) for entry in entries)

    return read


def _nkey_of(kind: KeyKind, expected: str) -> Callable[[Value, Key, Notes], str]:
    def read(value: Value, key: Key, notes: Notes) -> str:
        found = text(value, key, notes)
        if not is_public_key(found, kind):
            raise value.error(f"Expected callout {expected}, got {quoted(found)}")
        return found

    return read


@options_block(frozen=True)
class AuthCalloutOptions(Block):
    """A service that decides who may connect."""

    unknown_text: ClassVar[str] = "Unknown field {} parsing authorization callout"

    # fmt: off
    issuer: str = option(
        "", keys=("issuer",), doc="Public key of the account that signs the answers.",
        read=_nkey_of(KeyKind.ACCOUNT, "user to be a valid public account nkey"),
    )
    account: str = option("$G", keys=("account", "acc"), read=text, doc="Account of the service.")
    auth_users: tuple[str, ...] = option(
        (), keys=("auth_users", "users"), read=_texts_of("auth_users"),
        doc="Users that connect without being asked for, the service among them.",
    )
    xkey: str = option(
        "", keys=("xkey", "key"), read=_nkey_of(KeyKind.CURVE, "xkey to be a valid public xkey"),
        doc="Public curve key that requests are encrypted for.",
    )
    allowed_accounts: tuple[str, ...] = option(
        (), keys=("allowed_accounts",), read=_texts_of("allowed accounts"),
        doc="Accounts that the service may put users into.",
    )
    # fmt: on


def _auth_callout(value: Value, key: Key, notes: Notes) -> AuthCalloutOptions:
    expected = "Expected authorization callout to be a map/struct, got"
    entries = mapping(value, f"{expected} {value.type_name}")
    errors_before = len(notes.errors)
    found = AuthCalloutOptions(**read_fields(AuthCalloutOptions, entries, notes))
    last = next(reversed(entries.values()), value)
    if len(notes.errors) == errors_before:
        if not found.issuer:
            raise last.error("Authorization callouts require an issuer to be specified")
        if not found.auth_users:
            reason = "Authorization callouts require authorized users to be specified"
            raise last.error(reason)
    return found


@options_block(frozen=True)
class AuthorizationOptions(Block):
    """Who may connect where no account says otherwise."""

    # fmt: off
    user: str = option(
        "", keys=("user", "username"), flags=("--user",), placeholder="user", read=text,
        doc="The one user that may connect.",
    )
    password: str = option(
        "", keys=("password", "pass"), flags=("--pass",), placeholder="password", read=text,
        secret=True, doc="The password of that user, plain or bcrypt.",
    )
    token: str = option(
        "", keys=("token",), flags=("--auth",), placeholder="token", read=text, secret=True,
        doc="A token that all clients must know, plain or bcrypt.",
    )
    timeout_s: float = option(
        0.0, keys=("timeout",), read=_timeout,
        doc="Seconds that a client has to say who it is; 2, or with TLS one more than the "
        "handshake has.",
    )
    users: tuple[UserOptions, ...] = option((), keys=("users",), read=users, doc="Many users.")
    default_permissions: PermissionsOptions | None = option(
        None, keys=("default_permissions", "default_permission", "permissions"), read=permissions,
        doc="What users may do who have no permissions of their own.",
    )
    auth_callout: AuthCalloutOptions | None = option(
        None, keys=("auth_callout", "auth_hook"), read=_auth_callout,
        doc="A service that decides who may connect.",
    )
    proxy_required: bool = option(
        False, keys=("proxy_required",), read=boolean, doc="Only through a trusted proxy.",
    )
    # fmt: on


def authorization(value: Value, key: Key, notes: Notes) -> AuthorizationOptions:
    """Read who may connect to the server as a client."""
    found, has_users = _read(value, key, notes)
    if (found.user or found.password) and found.token:
        raise value.error("Cannot have a user/pass and token")
    if has_users and found.user:
        raise value.error("Can not have a single user/pass and a users array")
    if has_users and found.token:
        raise value.error("Can not have a token and a users array")
    return found


def server_authorization(what: str) -> Callable[[Value, Key, Notes], AuthorizationOptions]:
    """Make a reader of how other servers prove themselves: one user, nothing else."""

    def read(value: Value, key: Key, notes: Notes) -> AuthorizationOptions:
        found, has_users = _read(value, key, notes)
        if has_users:
            raise value.error(f"{what} authorization does not allow multiple users")
        if found.token:
            raise value.error(f"{what} authorization does not support tokens")
        if found.auth_callout is not None:
            raise value.error(f"{what} authorization does not support callouts")
        return found

    return read


def _read(value: Value, key: Key, notes: Notes) -> tuple[AuthorizationOptions, bool]:
    expected = f"expected a map for {quoted(key.spelled)}, got {value.type_name}"
    entries = mapping(value, expected)
    fields: dict[str, Any] = read_fields(AuthorizationOptions, entries, notes)
    found = AuthorizationOptions(**fields)
    complete = with_default_permissions(found.users, found.default_permissions)
    return changed(found, users=complete), "users" in fields
