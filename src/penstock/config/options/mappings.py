"""Subject mappings as configured: the destinations that a subject may be mapped to. Pure.

Only the text is checked here. Routing maps subjects; it is passed the source and its destinations
as plain text.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from penstock.config.language.parser import Value
from penstock.config.options.authorization import is_subject
from penstock.config.options.declare import Key
from penstock.config.options.values import Notes, decimal, mapping, text
from penstock.errors import ConfigError
from penstock.text.quoting import quoted

_INVALID: Final = "invalid mapping destination"
_INT32_MAX: Final = 2**31 - 1
_FUNCTION: Final = re.compile(r"\{\{\s*(\w+)\s*\((.*)\)\s*\}\}")
_TWO_NUMBERS: Final = frozenset(
    {"splitfromleft", "splitfromright", "slicefromleft", "slicefromright", "left", "right"}
)


class MappingDestination(msgspec.Struct, frozen=True):
    """Where a share of the messages goes: of 100, and only in the named cluster if there is one."""

    subject: str
    weight: int = 100
    cluster: str = ""


Mappings = dict[str, tuple[MappingDestination, ...]]


def mappings(value: Value, key: Key, notes: Notes) -> Mappings:
    """Read a map of source subjects and their destinations."""
    expected = f"expected a map for {quoted(key.spelled)}, got {value.type_name}"
    found: Mappings = {}
    for source, entry in mapping(value, expected).items():
        try:
            if not is_subject(source):
                raise value.error(f"Subject {quoted(source)} is not a valid subject")
            found[source] = _destinations(source, entry, notes)
        except ConfigError as error:
            notes.errors.append(error)
    return found


def _destinations(source: str, entry: Value, notes: Notes) -> tuple[MappingDestination, ...]:
    inner = entry.value
    if isinstance(inner, str):
        try:
            _check_destination(source, inner)
        except ValueError as error:
            reason = f"Error adding mapping for {quoted(source)} to {quoted(inner)} : {error}"
            raise entry.error(reason) from None
        return (MappingDestination(inner),)
    found = [_destination(one, notes) for one in (inner if isinstance(inner, list) else [entry])]
    try:
        _check_weights(found)
        for one in found:
            _check_destination(source, one.subject)
    except ValueError as error:
        raise entry.error(f"Error adding mapping for {quoted(source)} : {error}") from None
    return tuple(found)


def _destination(entry: Value, notes: Notes) -> MappingDestination:
    subject, cluster, weight = "", "", None
    expected = "Expected an entry for the mapping destination"
    for name, one in mapping(entry, expected).items():
        match name.lower():
            case "dest" | "destination":
                subject = text(one, Key(name, "destination"), notes)
            case "weight":
                weight = _weight(one)
            case "cluster":
                cluster = text(one, Key(name, "cluster"), notes)
            case _:
                raise one.error(f"Unknown field {quoted(name)} for mapping destination")
    if weight is None:
        raise entry.error(f"Missing weight for mapping destination {quoted(subject)}")
    return MappingDestination(subject, weight, cluster)


def _weight(value: Value) -> int:
    inner = value.value
    if isinstance(inner, str):
        digits = inner.removesuffix("%")
        try:
            inner = decimal(digits)
        except ValueError:
            reason = f"Invalid weight {quoted(digits)} for mapping destination"
            raise value.error(reason) from None
    if isinstance(inner, bool) or not isinstance(inner, int):
        raise value.error(f"Unknown entry type for weight of {value.type_name}")
    if not 0 <= inner <= 100:
        raise value.error(f"Invalid weight {inner} for mapping destination")
    return inner


def _check_weights(found: list[MappingDestination]) -> None:
    seen: set[str] = set()
    totals: dict[str, int] = {}
    for one in found:
        if one.subject in seen:
            raise ValueError(f"duplicate entry for {quoted(one.subject)}")
        seen.add(one.subject)
        totals[one.cluster] = totals.get(one.cluster, 0) + one.weight
        if totals[one.cluster] > 100:
            raise ValueError("total weight needs to be <= 100")


def _check_destination(source: str, destination: str) -> None:
    """Raise ValueError if a source cannot be mapped to this."""
    if not destination:
        return
    tokens = destination.split(".")
    if "*" in tokens or not is_subject(destination):
        raise ValueError("invalid subject")
    source_tokens = source.split(".")
    if (source_tokens[-1] == ">") != (tokens[-1] == ">"):
        raise ValueError("invalid subject")
    wildcards = source_tokens.count("*")
    has_wildcards = wildcards > 0 or source_tokens[-1] == ">"
    for token in tokens:
        for index in _wildcards_used(token, has_source_wildcards=has_wildcards):
            if index > wildcards:
                raise ValueError(f"{_INVALID}: wildcard index out of range in {token}")


def _wildcards_used(token: str, *, has_source_wildcards: bool) -> list[int]:
    """Return the numbers of the wildcards that a token of a destination refers to."""
    if len(token) > 1 and token.startswith("$"):
        try:
            return [decimal(token[1:])]
        except ValueError:
            return []
    if not (len(token) > 4 and token.startswith("{{") and token.endswith("}}")):
        return []
    function = _FUNCTION.fullmatch(token)
    if function is None:
        raise ValueError(f"{_INVALID}: unknown function in {token}")
    name = function[1].lower()
    arguments = [argument.strip(" ") for argument in function[2].split(",")]
    used = _function_wildcards(name, arguments, token)
    # A partition of a subject without wildcards is one of the whole subject.
    return [] if name == "partition" and not has_source_wildcards else used


def _function_wildcards(name: str, arguments: list[str], token: str) -> list[int]:
    if name == "wildcard":
        _check_count(arguments, 1, 1, token)
        return [_number(arguments[0], token)]
    if name == "random":
        _check_count(arguments, 1, 1, token)
        _number(arguments[0], token)
        return []
    if name == "partition":
        _number(arguments[0], token)
        return [_number(argument, token) for argument in arguments[1:]]
    if name == "split":
        _check_count(arguments, 2, 2, token)
        if " " in arguments[1]:
            raise ValueError(f"{_INVALID}: function argument is invalid in {token}")
        return [_number(arguments[0], token)]
    if name in _TWO_NUMBERS:
        _check_count(arguments, 2, 2, token)
        _number(arguments[1], token)
        return [_number(arguments[0], token)]
    raise ValueError(f"{_INVALID}: unknown function in {token}")


def _check_count(arguments: list[str], low: int, high: int, token: str) -> None:
    if len(arguments) < low or not arguments[0]:
        raise ValueError(f"{_INVALID}: not enough arguments passed to the function in {token}")
    if len(arguments) > high:
        raise ValueError(f"{_INVALID}: too many arguments passed to the function in {token}")


def _number(argument: str, token: str) -> int:
    try:
        number = decimal(argument)
    except ValueError:
        number = _INT32_MAX + 1
    if number > _INT32_MAX:
        raise ValueError(
            f"{_INVALID}: function argument is invalid or in the wrong format in {token}"
        )
    return number
