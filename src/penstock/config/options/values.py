"""Readers: each makes the value of an option from a configured value. URLs of servers too.

A reader takes a value, the key that it stands under and the notes. It returns the option's value,
or raises ConfigError with the value's location. A fault that can be tolerated becomes a warning in
the notes. A message about a value's type never quotes the value: it may be a secret.

URLs of routes, remotes and flags come as `nats://user:password@host:port`, with other schemes, and
bare as `host:port`.

Pure: opens nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from penstock.config.language.parser import ConfigMap, Value
from penstock.config.options.declare import (
    Block,
    Key,
    OptionInfo,
    Reader,
    fields_by_key,
    fields_of,
    options_of,
)
from penstock.errors import ConfigError
from penstock.text.quoting import quoted
from penstock.text.times import SECOND_NS, parse_duration

BlockType = TypeVar("BlockType", bound=Block)


class Notes(msgspec.Struct):
    """What was found wrong so far, in the order of the file."""

    errors: list[ConfigError] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)

    def warn(self, value: Value, key: Key, reason: str) -> None:
        """Note a use of a key that works and should not."""
        text = f"invalid use of field {quoted(key.name)}: {reason}"
        self.warnings.append(str(value.error(text)))


def _expected(what: str, value: Value, key: Key) -> ConfigError:
    return value.error(f"expected {what} for {quoted(key.spelled)}, got {value.type_name}")


def text(value: Value, key: Key, notes: Notes) -> str:
    """Read a string."""
    if not isinstance(value.value, str):
        raise _expected("a string", value, key)
    return value.value


def boolean(value: Value, key: Key, notes: Notes) -> bool:
    """Read a boolean."""
    if not isinstance(value.value, bool):
        raise _expected("a boolean", value, key)
    return value.value


def integer(value: Value, key: Key, notes: Notes) -> int:
    """Read an integer."""
    if isinstance(value.value, bool) or not isinstance(value.value, int):
        raise _expected("an integer", value, key)
    return value.value


def integer_within(low: int, high: int, reason: str) -> Reader:
    """Make a reader of integers from `low` to `high`; `reason` may name the {key} and {value}."""

    def read(value: Value, key: Key, notes: Notes) -> int:
        number = integer(value, key, notes)
        if not low <= number <= high:
            raise value.error(reason.format(key=key.spelled, value=number))
        return number

    return read


def duration(value: Value, key: Key, notes: Notes) -> int:
    """Read a duration into nanoseconds; a plain integer means seconds and is warned of."""
    if isinstance(value.value, int) and not isinstance(value.value, bool):
        notes.warn(value, key, f"{key.name} should be converted to a duration")
        return value.value * SECOND_NS
    return duration_text(value, key, notes)


def duration_text(value: Value, key: Key, notes: Notes) -> int:
    """Read a duration, which must be written as one, into nanoseconds."""
    try:
        return parse_duration(text(value, key, notes))
    except ValueError as error:
        raise value.error(f"error parsing {key.name}: {error}") from None


def seconds(block: str) -> Reader:
    """Make a reader of seconds, given as a number or as a duration, for a named block."""

    def read(value: Value, key: Key, notes: Notes) -> float:
        inner = value.value
        prefix = f"error parsing {block} config, {key.name!r}"
        if isinstance(inner, str):
            try:
                return parse_duration(inner) / SECOND_NS
            except ValueError as error:
                raise value.error(f"{prefix} {error}") from None
        if isinstance(inner, bool) or not isinstance(inner, int | float):
            raise value.error(f"{prefix} wrong type")
        return float(inner)

    return read


def storage_size(value: Value, key: Key, notes: Notes) -> int:
    """Read a size in bytes: a number, or a string that ends in K, M, G or T (of 1024)."""
    inner = value.value
    if isinstance(inner, int) and not isinstance(inner, bool):
        return inner
    if not isinstance(inner, str):
        raise value.error(f"{key.name} must be int64 or string")
    if not inner:
        return 0
    power = "KMGT".find(inner[-1]) + 1
    try:
        number = int(inner[:-1])
    except ValueError:
        reason = f"strconv.ParseInt: parsing {quoted(inner[:-1])}: invalid syntax"
        raise value.error(f"{key.name} {reason}") from None
    if not power:
        raise value.error(f"{key.name} sizes defined as strings must end in K, M, G, T")
    return number * int(1024**power)


def texts(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
    """Read a string or an array of strings."""
    if isinstance(value.value, str):
        return (value.value,)
    name = key.name.replace("_", " ")
    found = []
    for one in array(value, f"error parsing {name}: unsupported type {value.type_name}"):
        if not isinstance(one.value, str):
            raise one.error(f"error parsing {name}: unsupported type in array {one.type_name}")
        found.append(one.value)
    return tuple(found)


def text_map(value: Value, key: Key, notes: Notes) -> dict[str, str]:
    """Read a map whose values are all strings."""
    entries = mapping(value, f"error parsing {key.name}: unsupported type {value.type_name}")
    return {name: text(entry, Key(name, name), notes) for name, entry in entries.items()}


def boolean_map(value: Value, key: Key, notes: Notes) -> dict[str, bool]:
    """Read a map whose values are all booleans."""
    entries = mapping(value, f"error parsing {key.name}: unsupported type {value.type_name}")
    return {name: boolean(entry, Key(name, name), notes) for name, entry in entries.items()}


def one_of(*allowed: str, reason: str) -> Reader:
    """Make a reader of one of some words, written in small letters."""

    def read(value: Value, key: Key, notes: Notes) -> str:
        word = text(value, key, notes)
        if word not in allowed:
            raise value.error(reason)
        return word

    return read


def listen(host_field: str, port_field: str) -> Reader:
    """Make a reader of "host:port" or a port alone, which sets two fields."""

    def read(value: Value, key: Key, notes: Notes) -> dict[str, Any]:
        inner = value.value
        if isinstance(inner, int) and not isinstance(inner, bool):
            return {host_field: "", port_field: inner}
        if not isinstance(inner, str):
            raise value.error(f"expected port or host:port, got {value.type_name}")
        split = split_host_port(inner)
        if split is None:
            raise value.error(f"could not parse address string {quoted(inner)}")
        try:
            return {host_field: split[0], port_field: decimal(split[1])}
        except ValueError:
            raise value.error(f"could not parse port {quoted(split[1])}") from None

    return read


def decimal(digits: str) -> int:
    """Read an integer as strictly as Go does; raise ValueError."""
    body = digits[1:] if digits[:1] in ("-", "+") else digits
    if not (body.isascii() and body.isdecimal()):
        raise ValueError(digits)
    return int(digits)


def split_host_port(address: str) -> tuple[str, str] | None:
    """Part "host:port" and "[host]:port"; None if there is no telling them apart."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    return None if "[" in host or "]" in host else (host, port)


def mapping(value: Value, reason: str) -> ConfigMap:
    """Return a map's entries, or raise ConfigError with this reason."""
    if not isinstance(value.value, dict):
        raise value.error(reason)
    return value.value


def array(value: Value, reason: str) -> list[Value]:
    """Return an array's values, or raise ConfigError with this reason."""
    if not isinstance(value.value, list):
        raise value.error(reason)
    return value.value


def block(kind: type[BlockType], what: str) -> Callable[[Value, Key, Notes], BlockType]:
    """Make a reader of a map of options; `what` names it where it is no map."""

    def read(value: Value, key: Key, notes: Notes) -> BlockType:
        entries = mapping(value, f"Expected {what} to be a map, got {value.type_name}")
        return kind(**read_fields(kind, entries, notes))

    return read


def read_fields(kind: type[Block], entries: ConfigMap, notes: Notes) -> dict[str, Any]:
    """Read a block's entries into arguments of its class; what is wrong goes into the notes."""
    found: dict[str, Any] = {}
    names = fields_by_key(kind)
    infos = options_of(kind)
    for spelled, value in entries.items():
        lowered = spelled.lower()
        name = names.get(lowered, "")
        shared = kind.shared_keys.get(lowered)
        try:
            if shared is not None:
                found |= shared(value, Key(spelled, lowered), notes)
            elif name:
                found[name] = _read_option(infos[name], spelled, value, notes)
            elif not (value.is_variable and kind.ignores_variables):
                notes.errors.append(value.error(kind.unknown_text.format(quoted(spelled))))
        except ConfigError as error:
            notes.errors.append(error)
    return found


def _read_option(info: OptionInfo, spelled: str, value: Value, notes: Notes) -> Any:
    assert info.read is not None, f"{info.keys[0]} has no reader"
    return info.read(value, Key(spelled, info.keys[0]), notes)


def with_defaults(options: BlockType) -> BlockType:
    """Return the options with defaults where an empty value (0, "") means the default."""
    known = options_of(type(options))
    changes = {
        one.name: one.default
        for one in fields_of(options)
        if known[one.name].zero_is_default and not getattr(options, one.name)
    }
    return changed(options, **changes) if changes else options


def changed(options: BlockType, **changes: Any) -> BlockType:
    """Return a copy of a block with some options changed."""
    copy: Any = options
    made: BlockType = dataclasses.replace(copy, **changes)
    return made


class ServerUrl(msgspec.Struct, frozen=True):
    """One address taken apart; `password` is None if there is none, which "" is not."""

    scheme: str
    host: str
    port: str
    user: str = ""
    password: str | None = None

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"ServerUrl({self.scheme!r}, {self.host!r}, {self.port!r}, {self.user!r})"


def parse_url(url: str) -> ServerUrl:
    """Take an address apart; raise ValueError if it is none."""
    text = url.strip()
    if any(character < " " or character == "\x7f" for character in text):
        raise ValueError("invalid control character in URL")
    if "://" not in text:
        text = f"nats://{text}"
    split: SplitResult = urlsplit(text)
    user_info, at, address = split.netloc.rpartition("@")
    if " " in split.netloc:
        raise ValueError("invalid character in host name")
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, ""
    elif not (port.isdecimal() or not port):
        raise ValueError(f'invalid port ":{port}" after host')
    user, has_password, password = user_info.partition(":")
    return ServerUrl(
        split.scheme,
        host.removeprefix("[").removesuffix("]"),
        port,
        unquote(user) if at else "",
        unquote(password) if has_password else None,
    )


def advertised(text: str, host: str, port: int) -> tuple[str, int]:
    """Return the address to advertise: the configured one, or the server's own without one.

    Raises ValueError.
    """
    if not text:
        return host, port
    split = split_host_port(text) or split_host_port(f"{text}:{port}")
    if split is None:
        raise ValueError(f"address {text}: too many colons in address")
    said = decimal(split[1].strip())
    return split[0].strip(), port if said in (0, -1) else said


def join_host_port(host: str, port: int) -> str:
    """Write an address; one of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
