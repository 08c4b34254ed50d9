"""Options of who may connect, and what each user may publish and subscribe to.

A list of subjects that is None is not configured: without `allow`, everything is allowed. Only
permission to answer requests makes an empty `allow`, which allows nothing.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec

from penstock.config.language.parser import ConfigMap, Value
from penstock.config.options.declare import Block, Key, Reader, option, options_block
from penstock.config.options.values import (
    Notes,
    array,
    boolean,
    changed,
    integer,
    mapping,
    read_fields,
    seconds,
    text,
    texts,
)
from penstock.errors import ConfigError
from penstock.protocol.nkeys import Prefix, is_public_key
from penstock.subjects import is_valid_subject
from penstock.text.quoting import quoted
from penstock.text.times import MINUTE_NS, parse_duration

RESPONSES_MAX_DEFAULT: Final = 1
RESPONSES_EXPIRE_NS_DEFAULT: Final = 2 * MINUTE_NS

CONNECTION_TYPES: Final = (
    "STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS",
)  # fmt: skip
"""How a user may connect."""


class ResponsesOptions(msgspec.Struct, frozen=True):
    """The right to answer: how often, and for how long after the request; below 0: any."""

    max: int = RESPONSES_MAX_DEFAULT
    expires_ns: int = RESPONSES_EXPIRE_NS_DEFAULT


def is_subject(subject: str) -> bool:
    """Return True if this is a valid subject to subscribe to."""
    return is_valid_subject(subject.encode("utf-8", "surrogateescape"))


def subjects(value: Value, *, with_queues: bool) -> tuple[str, ...]:
    """Read one subject or several; `with_queues` lets them be followed by a queue's name."""
    if isinstance(value.value, str):
        found = [value.value]
    else:
        found = []
        expected = "Expected subject permissions to be a subject, or array of subjects, got"
        for one in array(value, f"{expected} {value.type_name}"):
            if not isinstance(one.value, str):
                raise one.error("Subject in permissions array cannot be cast to string")
            found.append(one.value)
    for subject in found:
        if reason := _wrong_subject(subject, with_queues):
            raise value.error(reason)
    return tuple(found)


def _wrong_subject(subject: str, with_queues: bool) -> str:
    if is_subject(subject):
        return ""
    words = subject.split()
    if not with_queues or len(words) != 2:
        return f"subject {quoted(subject)} is not a valid subject"
    if not is_subject(words[0]):
        return f"subject {quoted(words[0])} is not a valid subject"
    return "" if is_subject(words[1]) else f"queue {quoted(words[1])} is not a valid queue"


def _allow_and_deny(allow_field: str, deny_field: str, *, with_queues: bool) -> Reader:
    def read(value: Value, key: Key, notes: Notes) -> dict[str, Any]:
        # An empty list counts as none given, so that `allow: []` allows everything: surprising,
        # but what every file written for the reference server means.
        if not isinstance(value.value, dict):
            return {allow_field: subjects(value, with_queues=with_queues) or None}
        found = {}
        for name, one in value.value.items():
            field = {"allow": allow_field, "deny": deny_field}.get(name.lower())
            if field is not None:
                found[field] = subjects(one, with_queues=with_queues) or None
            elif not one.is_variable:
                only = "only 'allow' or 'deny' are permitted"
                reason = f"Unknown field name {quoted(name)} parsing subject permissions, {only}"
                raise one.error(reason)
        return found

    return read


def _responses(value: Value, key: Key, notes: Notes) -> ResponsesOptions | None:
    if isinstance(value.value, bool):
        return ResponsesOptions() if value.value else None
    reason = "error parsing response permissions, expected a boolean or a map"
    found = ResponsesOptions()
    count, expires_ns = found.max, found.expires_ns
    for name, one in mapping(value, reason).items():
        match name.lower():
            case "max" | "max_msgs" | "max_messages" | "max_responses":
                count = integer(one, Key(name, "max"), notes) or count
            case "expires" | "expiration" | "ttl":
                expires_ns = _expires(one) or expires_ns
            case _:
                if not one.is_variable:
                    raise one.error(f"Unknown field {quoted(name)} parsing permissions")
    return ResponsesOptions(count, expires_ns)


def _expires(value: Value) -> int:
    if not isinstance(value.value, str):
        raise value.error("error parsing expires, not a duration string")
    try:
        return parse_duration(value.value)
    except ValueError as error:
        raise value.error(f"error parsing expires: {error}") from None


_publish = _allow_and_deny("publish_allow", "publish_deny", with_queues=False)
_subscribe = _allow_and_deny("subscribe_allow", "subscribe_deny", with_queues=True)


@options_block(frozen=True)
class PermissionsOptions(Block):
    """What a user may publish and subscribe to."""

    unknown_text: ClassVar[str] = "Unknown field {} parsing permissions"
    # On routes what is imported is what would be published here, and the other way round.
    shared_keys: ClassVar[dict[str, Reader]] = {
        **dict.fromkeys(("publish", "pub", "import"), _publish),
        **dict.fromkeys(("subscribe", "sub", "export"), _subscribe),
    }

    # fmt: off
    publish_allow: tuple[str, ...] | None = option(
        None, doc="Subjects that may be published to; all if none is given."
    )
    publish_deny: tuple[str, ...] | None = option(
        None, doc="Subjects that may not be published to, even if allowed."
    )
    subscribe_allow: tuple[str, ...] | None = option(
        None, doc="Subjects that may be subscribed to, as `subject` or `subject queue`."
    )
    subscribe_deny: tuple[str, ...] | None = option(
        None, doc="Subjects that are not delivered, even if allowed."
    )
    responses: ResponsesOptions | None = option(
        None, keys=("allow_responses", "publish_allow_responses"), read=_responses,
        doc="The right to publish to the reply subjects of requests that were received.",
    )
    # fmt: on


def permissions(value: Value, key: Key, notes: Notes) -> PermissionsOptions:
    """Read permissions; the right to answer takes away the right to publish anything."""
    expected = "Expected permissions to be a map/struct, got"
    entries = mapping(value, f"{expected} {value.type_name}")
    found = PermissionsOptions(**read_fields(PermissionsOptions, entries, notes))
    if found.responses is not None and found.publish_allow is None:
        return changed(found, publish_allow=())
    return found


def _connection_types(value: Value, key: Key, notes: Notes) -> frozenset[str]:
    found = texts(value, Key(key.spelled, "allowed_connection_types"), notes)
    for name in found:
        if name.upper() not in CONNECTION_TYPES:
            raise value.error(f"invalid connection types {quoted(name.upper())}")
    return frozenset(name.upper() for name in found)


@options_block(frozen=True)
class UserOptions(Block):
    """One user: a name and a password, or a public nkey."""

    # fmt: off
    user: str = option("", keys=("user", "username"), read=text, doc="Name of the user.")
    password: str = option(
        "", keys=("password", "pass"), read=text, secret=True, doc="Password, plain or bcrypt."
    )
    nkey: str = option("", keys=("nkey",), read=text, doc="Public nkey, instead of a name.")
    permissions: PermissionsOptions | None = option(
        None, keys=("permissions", "permission", "authorization"), read=permissions,
        doc="What the user may do; everything if not given.",
    )
    allowed_connection_types: frozenset[str] = option(
        frozenset(), keys=("allowed_connection_types", "connection_types", "clients"),
        read=_connection_types, doc="How the user may connect; any way if not given.",
    )
    proxy_required: bool = option(
        False, keys=("proxy_required",), read=boolean, doc="Only through a trusted proxy."
    )
    # fmt: on


def users(value: Value, key: Key, notes: Notes) -> tuple[UserOptions, ...]:
    """Read an array of users."""
    found = []
    for entry in array(value, f"Expected users field to be an array, got {value.type_name}"):
        expected = "Expected user entry to be a map/struct, got"
        try:
            found.append(_user(entry, mapping(entry, f"{expected} {entry.type_name}"), notes))
        except ConfigError as error:
            notes.errors.append(error)
    return tuple(found)


def _user(entry: Value, entries: ConfigMap, notes: Notes) -> UserOptions:
    user = UserOptions(**read_fields(UserOptions, entries, notes))
    # The reported location is that of the last key of the user.
    last = next(reversed(entries.values()), entry)
    if not user.nkey and not user.user:
        raise last.error("User entry requires a user")
    if user.nkey and not is_public_key(user.nkey, Prefix.USER):
        raise last.error("Not a valid public nkey for a user")
    if user.nkey and (user.user or user.password):
        raise last.error("Nkey users do not take usernames or passwords")
    return user


def with_default_permissions(
    found: tuple[UserOptions, ...], default: PermissionsOptions | None
) -> tuple[UserOptions, ...]:
    """Return the users, with the default permissions for those that have none."""
    if default is None:
        return found
    return tuple(
        user if user.permissions is not None else changed(user, permissions=default)
        for user in found
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


def _nkey_of(kind: Prefix, expected: str) -> Callable[[Value, Key, Notes], str]:
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
        read=_nkey_of(Prefix.ACCOUNT, "user to be a valid public account nkey"),
    )
    account: str = option("$G", keys=("account", "acc"), read=text, doc="Account of the service.")
    auth_users: tuple[str, ...] = option(
        (), keys=("auth_users", "users"), read=_texts_of("auth_users"),
        doc="Users that connect without being asked for, the service among them.",
    )
    xkey: str = option(
        "", keys=("xkey", "key"), read=_nkey_of(Prefix.CURVE, "xkey to be a valid public xkey"),
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
