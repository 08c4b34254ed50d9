"""Options of accounts: users, limits, mappings, and what they export and import.

Each is read by itself. Whether an import has its export is checked when all accounts are known.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec

from penstock.config.language.parser import Value
from penstock.config.options.authorization import (
    PermissionsOptions,
    UserOptions,
    is_subject,
    permissions,
    users,
    with_default_permissions,
)
from penstock.config.options.declare import Block, Key, Reader, option, options_block
from penstock.config.options.jetstream import AccountJetStreamOptions, account_jetstream
from penstock.config.options.mappings import Mappings, mappings
from penstock.config.options.values import (
    Notes,
    array,
    boolean,
    changed,
    decimal,
    integer,
    mapping,
    read_fields,
    text,
)
from penstock.errors import ConfigError
from penstock.protocol.nkeys import Prefix, is_public_key
from penstock.subjects import is_literal
from penstock.text.quoting import quoted
from penstock.text.times import parse_duration

_RESPONSE_TYPES: Final = {
    "single": "single", "singleton": "single", "stream": "stream", "chunk": "chunk",
    "chunked": "chunk",
}  # fmt: skip


class LatencyOptions(msgspec.Struct, frozen=True):
    """Where measurements of a service go, and of how many requests in 100; 0: as headers ask."""

    subject: str
    sampling: int = 100


def _response_type(value: Value, key: Key, notes: Notes) -> str:
    if not isinstance(value.value, str):
        raise value.error(f"Expected response type to be string, got {value.type_name}")
    found = _RESPONSE_TYPES.get(value.value.lower())
    if found is None:
        raise value.error(f"Unknown response type: {quoted(value.value)}")
    return found


def _threshold(value: Value, key: Key, notes: Notes) -> int:
    expected = "Expected response threshold to be a parseable time duration, got"
    if not isinstance(value.value, str):
        raise value.error(f"{expected} {value.type_name}")
    try:
        return parse_duration(value.value)
    except ValueError:
        raise value.error(f"{expected} {quoted(value.value)}") from None


def _latency(value: Value, key: Key, notes: Notes) -> LatencyOptions:
    if isinstance(value.value, str):
        return LatencyOptions(value.value)
    expected = "Expected latency entry to be a map/struct or string, got"
    entries = mapping(value, f"{expected} {value.type_name}")
    sampling = _sampling(entries["sampling"]) if "sampling" in entries else 100
    subject = entries.get("subject")
    if subject is None:
        raise value.error("Latency subject required, but missing")
    if not isinstance(subject.value, str):
        raise subject.error(f"Expected latency subject to be a string, got {subject.type_name}")
    return LatencyOptions(subject.value, sampling)


def _sampling(value: Value) -> int:
    inner = value.value
    if isinstance(inner, str):
        if inner.strip().lower() == "headers":
            return 0
        try:
            inner = decimal(inner.removesuffix("%"))
        except ValueError:
            reason = f"Failed to parse latency sample: {quoted(str(inner))}"
            raise value.error(reason) from None
    if isinstance(inner, bool) or not isinstance(inner, int):
        expected = "Expected latency sample to be a string or map/struct"
        raise value.error(f"{expected}, got {value.type_name}")
    if not 1 <= inner <= 100:
        raise value.error("bad sampling percentage, should be 1-100")
    return inner


def _exported(kind: str) -> Reader:
    def read(value: Value, key: Key, notes: Notes) -> dict[str, Any]:
        if not isinstance(value.value, str):
            raise value.error(f"Expected {kind} name to be string, got {value.type_name}")
        return {"kind": kind, "subject": value.value}

    return read


def _account_names(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
    entries = array(value, f"expected an array for {quoted(key.spelled)}, got {value.type_name}")
    return tuple(text(entry, key, notes) for entry in entries)


@options_block(frozen=True)
class ExportOptions(Block):
    """What an account offers to others: a stream of messages, or a service that answers."""

    shared_keys: ClassVar[dict[str, Reader]] = {
        "stream": _exported("stream"),
        "service": _exported("service"),
    }

    # fmt: off
    kind: str = option("", doc="stream or service.")
    subject: str = option("", doc="Subjects offered; may have wildcards.")
    accounts: tuple[str, ...] = option(
        (), keys=("accounts",), read=_account_names, doc="Who may import it; anybody if not given.",
    )
    response_type: str = option(
        "single", keys=("response_type", "response"), read=_response_type,
        doc="How a service answers: with one message (single), or several (stream, chunk).",
    )
    response_threshold_ns: int = option(
        0, keys=("response_threshold", "threshold", "response_max_time", "response_time"),
        read=_threshold, doc="How long an answer may take; 0: two minutes.",
    )
    latency: LatencyOptions | None = option(
        None, keys=("latency",), read=_latency, doc="Where to report how long answers took.",
    )
    account_token_position: int = option(
        0, keys=("account_token_position",), read=integer,
        doc="Which token of the subject must be the importer's name; 0: none.",
    )
    allow_trace: bool = option(
        False, keys=("allow_trace",), read=boolean, doc="Let message traces go on in this account.",
    )
    # fmt: on


@options_block(frozen=True)
class ImportOptions(Block):
    """What an account takes from another."""

    # fmt: off
    kind: str = option("", doc="stream or service.")
    account: str = option("", doc="Whose it is.")
    subject: str = option("", doc="What the other account calls it.")
    to: str = option("", keys=("to",), read=text, doc="What this account calls it.")
    prefix: str = option("", keys=("prefix",), read=text, doc="Put before a stream's subjects.")
    share: bool = option(False, keys=("share",), read=boolean, doc="Tell a service who asks.")
    allow_trace: bool = option(
        False, keys=("allow_trace",), read=boolean, doc="Let message traces go on.",
    )
    # fmt: on


def export(entry: Value, notes: Notes) -> ExportOptions | None:
    """Read one export; None if it offers nothing."""
    expected = "Export Items should be a map with type entry, got"
    entries = mapping(entry, f"{expected} {entry.type_name}")
    lowered = {name.lower(): one for name, one in entries.items()}
    if "stream" in lowered and "service" in lowered:
        offered = quoted(str(lowered["service"].value))
        raise lowered["service"].error(f"Detected service {offered} but already saw a stream")
    found = ExportOptions(**read_fields(ExportOptions, entries, notes))
    if found.kind == "stream":
        service_only = {
            "response": ("response", "response_type", "threshold", "response_threshold"),
            "latency": ("latency",),
            "allow_trace": ("allow_trace",),
        }
        for what, names in service_only.items():
            for name in names:
                if name in lowered:
                    raise lowered[name].error(f"Detected {what} directive on non-service")
    return found if found.kind else None


def import_(entry: Value, notes: Notes) -> ImportOptions | None:
    """Read one import; None if it takes nothing."""
    expected = "Import Items should be a map with type entry, got"
    entries = mapping(entry, f"{expected} {entry.type_name}")
    lowered = {name.lower(): one for name, one in entries.items()}
    kinds = [kind for kind in ("stream", "service") if kind in lowered]
    if len(kinds) > 1:
        raise lowered["service"].error("Detected service but already saw a stream")
    rest = {name: one for name, one in entries.items() if name.lower() not in kinds}
    fields = read_fields(ImportOptions, rest, notes)
    if not kinds:
        return None
    if kinds == ["service"] and "allow_trace" in lowered:
        raise lowered["allow_trace"].error("Detected allow_trace directive on a non-stream")
    if kinds == ["stream"] and fields.get("prefix") and fields.get("to"):
        reason = "Stream import can not have a 'prefix' and a 'to' property"
        raise lowered["to"].error(reason)
    account, subject = _account_and_subject(lowered[kinds[0]], kinds[0], notes)
    return ImportOptions(kind=kinds[0], account=account, subject=subject, **fields)


def _account_and_subject(value: Value, kind: str, notes: Notes) -> tuple[str, str]:
    expected = f"{kind.capitalize()} entry should be an account map, got {value.type_name}"
    found = {"account": "", "subject": ""}
    for name, one in mapping(value, expected).items():
        if name.lower() in found:
            found[name.lower()] = text(one, Key(name, name.lower()), notes)
        elif not one.is_variable:
            notes.errors.append(one.error(f"unknown field {quoted(name)}"))
    if not all(found.values()):
        raise value.error("Expect an account name and a subject")
    return found["account"], found["subject"]


def each(what: str, read: Callable[[Value, Notes], Any]) -> Reader:
    """Make a reader of an array of such things."""

    def read_all(value: Value, key: Key, notes: Notes) -> tuple[Any, ...]:
        found = []
        for entry in array(value, f"{what} should be an array, got {value.type_name}"):
            try:
                found.append(read(entry, notes))
            except ConfigError as error:
                notes.errors.append(error)
        return tuple(one for one in found if one is not None)

    return read_all


GLOBAL_ACCOUNT: Final = "$G"
"""The account of clients that no other account claims; it cannot be configured."""


def _account_nkey(value: Value, key: Key, notes: Notes) -> str:
    inner = value.value
    if not isinstance(inner, str) or not is_public_key(inner, Prefix.ACCOUNT):
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
