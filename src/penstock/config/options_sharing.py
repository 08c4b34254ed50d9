"""Options of what accounts offer to one another and take from one another. Pure.

Each is read for itself; whether an import has its export is seen when all accounts are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec

from penstock.config.declaring import Block, Key, Reader, option, options_block
from penstock.config.durations import parse_duration
from penstock.config.parser import Value
from penstock.config.quoting import quoted
from penstock.config.reading import (
    Notes,
    array,
    boolean,
    decimal,
    integer,
    mapping,
    read_fields,
    text,
)
from penstock.errors import ConfigError

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
