"""Options of accounts: their users, their limits, their mappings. Pure."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from penstock.config.declaring import Block, Key, option, options_block
from penstock.config.mappings import Mappings, mappings
from penstock.config.options_jetstream import AccountJetStreamOptions, account_jetstream
from penstock.config.options_permissions import (
    PermissionsOptions,
    UserOptions,
    is_subject,
    permissions,
    users,
    with_default_permissions,
)
from penstock.config.options_sharing import ExportOptions, ImportOptions, each, export, import_
from penstock.config.parser import Value
from penstock.config.public_keys import KeyKind, is_public_key
from penstock.config.quoting import quoted
from penstock.config.reading import (
    Notes,
    changed,
    decimal,
    integer,
    mapping,
    read_fields,
    text,
)
from penstock.errors import ConfigError
from penstock.subjects import is_literal

GLOBAL_ACCOUNT: Final = "$G"
"""The account of clients that no other account claims; it cannot be configured."""


def _account_nkey(value: Value, key: Key, notes: Notes) -> str:
    inner = value.value
    if not isinstance(inner, str) or not is_public_key(inner, KeyKind.ACCOUNT):
        raise value.error(f"Not a valid public nkey for an account: {quoted(str(inner))}")
    return inner


@options_block(frozen=True)
class AccountLimitsOptions(Block):
    """Bounds of an account; -1: none."""

    unknown_text: ClassVar[str] = "Unknown field {} parsing account limits"

    # fmt: off
    max_connections: int = option(
        -1, keys=("max_connections", "max_conn"), read=integer, doc="Clients at a time.",
    )
    max_subscriptions: int = option(
        -1, keys=("max_subscriptions", "max_subs"), read=integer, doc="Subscriptions at a time.",
    )
    max_payload: int = option(
        -1, keys=("max_payload", "max_pay"), read=integer, doc="Bytes of a message.",
    )
    max_leafnodes: int = option(
        -1, keys=("max_leafnodes", "max_leafs"), read=integer, doc="Leaf nodes at a time.",
    )
    # fmt: on


def _account_limits(value: Value, key: Key, notes: Notes) -> AccountLimitsOptions:
    expected = "Expected account limits to be a map/struct, got"
    entries = mapping(value, f"{expected} {value.type_name}")
    return AccountLimitsOptions(**read_fields(AccountLimitsOptions, entries, notes))


class TraceOptions(msgspec.Struct, frozen=True):
    """Where traces of an account's messages go, and of how many in 100."""

    destination: str = ""
    sampling: int = 100


def _trace(value: Value, key: Key, notes: Notes) -> TraceOptions:
    if isinstance(value.value, str):
        return TraceOptions(_trace_destination(value, key))
    what = f"account message trace {quoted(key.spelled)}"
    destination, sampling = "", 100
    expected = f"Expected {what} to be a string or a map/struct, got {value.type_name}"
    for name, one in mapping(value, expected).items():
        match name.lower():
            case "dest":
                destination = _trace_destination(one, Key(name, "dest"))
            case "sampling":
                sampling = _trace_sampling(one, name)
            case _:
                if not one.is_variable:
                    parsing = f"parsing account message trace map/struct {quoted(key.spelled)}"
                    raise one.error(f"Unknown field {quoted(name)} {parsing}")
    if not destination:
        reason = "Trace destination sampling ignored since no destination was set"
        notes.warnings.append(str(value.error(reason)))
    return TraceOptions(destination, sampling)


def _trace_destination(value: Value, key: Key) -> str:
    inner = value.value
    if not isinstance(inner, str):
        reason = f"Field {quoted(key.spelled)} should be a string, got {value.type_name}"
        raise value.error(reason)
    if not is_subject(inner) or not is_literal(inner.encode("utf-8", "surrogateescape")):
        raise value.error(f"Trace destination {quoted(inner)} is not valid")
    return inner


def _trace_sampling(value: Value, name: str) -> int:
    inner = value.value
    if isinstance(inner, str):
        try:
            inner = decimal(inner.removesuffix("%"))
        except ValueError:
            reason = f"Invalid trace destination sampling value {quoted(str(inner))}"
            raise value.error(reason) from None
    if isinstance(inner, bool) or not isinstance(inner, int):
        what = f"Trace destination sampling field {quoted(name)}"
        raise value.error(f"{what} should be an integer or a percentage, got {value.type_name}")
    if not 1 <= inner <= 100:
        what = "Ttrace destination sampling value"
        raise value.error(f"{what} {inner} is invalid, needs to be [1..100]")
    return inner


@options_block(frozen=True)
class AccountOptions(Block):
    """A subject space of its own, and who is in it."""

    # fmt: off
    users: tuple[UserOptions, ...] = option((), keys=("users",), read=users, doc="Who is in it.")
    nkey: str = option("", keys=("nkey",), read=_account_nkey, doc="Public key of the account.")
    limits: AccountLimitsOptions = option(
        AccountLimitsOptions(), keys=("limits",), read=_account_limits, doc="Its bounds.",
    )
    mappings: Mappings = option(
        {}, keys=("mappings", "maps"), read=mappings, doc="Subjects that are published as others.",
    )
    default_permissions: PermissionsOptions | None = option(
        None, keys=("default_permissions",), read=permissions,
        doc="What users may do who have no permissions of their own.",
    )
    jetstream: AccountJetStreamOptions | None = option(
        None, keys=("jetstream",), read=account_jetstream, doc="What it may take of JetStream.",
    )
    exports: tuple[ExportOptions, ...] = option(
        (), keys=("exports",), read=each("Exports", export), doc="What it offers to others.",
    )
    imports: tuple[ImportOptions, ...] = option(
        (), keys=("imports",), read=each("Imports", import_), doc="What it takes from others.",
    )
    msg_trace: TraceOptions | None = option(
        None, keys=("msg_trace", "trace_dest"), read=_trace, doc="Where message traces go.",
    )
    # fmt: on


def accounts(value: Value, key: Key, notes: Notes) -> dict[str, AccountOptions]:
    """Read accounts: a map of them, or an array of mere names."""
    if isinstance(value.value, list):
        return _named_accounts(value.value, key, notes)
    found = {}
    expected = f"expected a map for {quoted(key.spelled)}, got {value.type_name}"
    for name, entry in mapping(value, expected).items():
        if entry.is_variable:
            continue
        try:
            _check_name(name, entry)
            entries = mapping(entry, "Expected map entries for accounts")
            account = AccountOptions(**read_fields(AccountOptions, entries, notes))
        except ConfigError as error:
            notes.errors.append(error)
            continue
        complete = with_default_permissions(account.users, account.default_permissions)
        found[name] = changed(account, users=complete)
    return found


def _named_accounts(entries: list[Value], key: Key, notes: Notes) -> dict[str, AccountOptions]:
    found: dict[str, AccountOptions] = {}
    for entry in entries:
        name = text(entry, key, notes)
        _check_name(name, entry)
        if name in found:
            raise entry.error(f"Duplicate Account Entry: {name}")
        found[name] = AccountOptions()
    return found


def _check_name(name: str, value: Value) -> None:
    if name == GLOBAL_ACCOUNT:
        raise value.error(f"{quoted(name)} is a Reserved Account")
