"""Options of who may publish and subscribe to what, and of users.

A list of subjects that is None is not configured: with no `allow` everything is allowed. Only the
right to answer makes an empty `allow`, which allows nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from penstock.config.declaring import Block, Key, Reader, option, options_block
from penstock.config.durations import MINUTE_NS, parse_duration
from penstock.config.parser import ConfigMap, Value
from penstock.config.public_keys import KeyKind, is_public_key
from penstock.config.quoting import quoted
from penstock.config.reading import (
    Notes,
    array,
    boolean,
    changed,
    integer,
    mapping,
    read_fields,
    text,
    texts,
)
from penstock.errors import ConfigError
from penstock.subjects import is_valid_subject

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
    """Tell whether this may be subscribed to."""
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
    # The place told is that of the last thing said about the user.
    last = next(reversed(entries.values()), entry)
    if not user.nkey and not user.user:
        raise last.error("User entry requires a user")
    if user.nkey and not is_public_key(user.nkey, KeyKind.USER):
        raise last.error("Not a valid public nkey for a user")
    if user.nkey and (user.user or user.password):
        raise last.error("Nkey users do not take usernames or passwords")
    return user


def with_default_permissions(
    found: tuple[UserOptions, ...], default: PermissionsOptions | None
) -> tuple[UserOptions, ...]:
    """Give users without permissions of their own the default ones."""
    if default is None:
        return found
    return tuple(
        user if user.permissions is not None else changed(user, permissions=default)
        for user in found
    )
