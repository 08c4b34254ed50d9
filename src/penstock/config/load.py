"""A command line and the file that it names, made into options, with the file's digest.

The file overrides the defaults, and flags override the file. An empty value (0, "") means the
default where an option says so. Everything that can be checked without opening a listener or a
store is checked. All faults of a file are reported at once, each with its location.

The digest, as `-t` prints it, is `sha256:` and 64 hexadecimal digits. It is taken of the values, so
comments, order and spelling do not change it. Values are written as Go's encoding/json writes them,
byte for byte, so that both servers print the same digest of a file.

Reads files. Reads no clock, and no environment but the one that is passed. Called before the server
starts and for each reload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock.config.check import check_options
from penstock.config.check_imports import wrong_sharing
from penstock.config.flags import Action, FlagResult, FlagValue, parse_flags
from penstock.config.language.parser import ConfigMap, Value, parse_file, parse_text
from penstock.config.options.declare import options_of
from penstock.config.options.server import (
    AuthorizationOptions,
    ClusterOptions,
    JetStreamOptions,
    ServerOptions,
    TlsOptions,
    UserOptions,
)
from penstock.config.options.tls import unreadable_file
from penstock.config.options.values import (
    Notes,
    changed,
    decimal,
    parse_url,
    read_fields,
    with_defaults,
)
from penstock.errors import ConfigError, InvalidConfiguration
from penstock.text.quoting import quoted

_ESCAPED = re.compile("[<>&\u2028\u2029\udc80-\udcff]")


def config_digest(values: ConfigMap) -> str:
    """Return the digest of a parsed configuration."""
    # Only a configuration file has a digest: hashing is not loaded without one.
    import hashlib

    text = _map_text(values) + "\n"
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _map_text(values: ConfigMap) -> str:
    # Go sorts keys by their bytes, which is by code point except for undecodable bytes.
    keys = sorted(values, key=lambda key: key.encode("utf-8", "surrogateescape"))
    return "{" + ",".join(f"{_string(key)}:{_text(values[key])}" for key in keys) + "}"


def _text(value: Value) -> str:
    inner = value.value
    match inner:
        case bool():
            return "true" if inner else "false"
        case int():
            return str(inner)
        case float():
            return _float(inner)
        case str():
            return _string(inner)
        case datetime():
            return f'"{inner:%Y-%m-%dT%H:%M:%SZ}"'
        case list():
            return "[" + ",".join(map(_text, inner)) + "]"
        case dict():
            return _map_text(inner)


def _string(text: str) -> str:
    return _ESCAPED.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    # A byte that was no UTF-8: Go writes the replacement character.
    return "\\ufffd" if code >= 0xDC80 else f"\\u{code:04x}"


def _float(number: float) -> str:
    """Write the shortest text that reads back the same, with an exponent where Go has one."""
    if number == 0:
        return "-0" if str(number).startswith("-") else "0"
    if 1e-6 <= abs(number) < 1e21:
        text = format(number, "f") if number.is_integer() else _plain(number)
        return text.removesuffix(".000000")
    mantissa, _, exponent = repr(number).partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"


def _plain(number: float) -> str:
    text = repr(number)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    digits = mantissa.replace("-", "").replace(".", "")
    sign = "-" if number < 0 else ""
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{digits}"


class Loaded(msgspec.Struct, frozen=True):
    """Options, what to warn of, and the digest of the file ("" without one)."""

    options: ServerOptions
    warnings: tuple[str, ...] = ()
    digest: str = ""


def load_options(
    arguments: Sequence[str], environ: Mapping[str, str]
) -> tuple[ServerOptions, list[str]]:
    """Return the options that a command line asks for, and warnings.

    Raises UsageError for a wrong command line and ConfigError for a wrong configuration.
    """
    loaded = load(parse_flags(arguments), environ)
    return loaded.options, list(loaded.warnings)


def load(flags: FlagResult, environ: Mapping[str, str]) -> Loaded:
    """Return the options that parsed flags and their file ask for; raise ConfigError."""
    return load_for_program(flags.values, environ, base=ServerOptions())


def load_for_program(
    values: Mapping[str, FlagValue],
    environ: Mapping[str, str],
    *,
    base: ServerOptions,
    text: str = "",
) -> Loaded:
    """Return the options of a server inside another program; raise ConfigError.

    `values` are as flags give them, `config_file` among them, and count over the file's; `text`
    stands for a file. `base` is what holds where none of them says anything.
    """
    loaded = Loaded(base)
    if file := str(values.get("config_file", "")):
        loaded = _load_file(file, environ, base)
    elif text:
        loaded = _load_values(parse_text(text, environ), Notes(), base)
    options = settled(with_flags(loaded.options, values))
    check_options(options)
    return Loaded(options, loaded.warnings, loaded.digest)


def check_config(flags: FlagResult, environ: Mapping[str, str]) -> str:
    """Check a configuration file for `-t`: give the sentence that says it is valid.

    Here a warning is a fault too. Raises ConfigError.
    """
    assert flags.action is Action.CHECK
    file = flags.config_file
    if not file:
        reason = "must specify [-c, --config] option to check configuration file syntax"
        raise ConfigError("", 0, 0, reason)
    loaded = _load_file(file, environ, ServerOptions())
    if loaded.warnings:
        raise InvalidConfiguration((), loaded.warnings)
    return f"configuration file {file} is valid ({loaded.digest})"


def _load_file(file: str, environ: Mapping[str, str], base: ServerOptions) -> Loaded:
    values = parse_file(file, environ)
    notes = Notes()
    if not values:
        notes.warnings.append(f"{file}: config has no values or is empty")
    return _load_values(values, notes, base)


def _load_values(values: ConfigMap, notes: Notes, base: ServerOptions) -> Loaded:
    options = read_options(values, notes, base)
    if notes.errors:
        raise InvalidConfiguration(tuple(notes.errors), tuple(notes.warnings))
    return Loaded(options, tuple(notes.warnings), config_digest(values))


def read_options(values: ConfigMap, notes: Notes, base: ServerOptions) -> ServerOptions:
    """Put a parsed file over options; what is wrong goes into the notes."""
    options = changed(base, **read_fields(ServerOptions, values, notes))
    _check_users(values, options, notes)
    _check_store_dir(values, options, notes)
    _check_callout(options, notes)
    if not notes.errors and (place := _find(values, "accounts")) is not None:
        has_system_account = not options.no_system_account
        reasons = wrong_sharing(options.accounts, has_system_account=has_system_account)
        notes.errors.extend(place.error(reason) for reason in reasons)
    return options


def _find(values: ConfigMap, *keys: str) -> Value | None:
    """Find an entry under one of its names, in any case."""
    return next((value for name, value in values.items() if name.lower() in keys), None)


def _check_users(values: ConfigMap, options: ServerOptions, notes: Notes) -> None:
    known = options.authorization
    seen: set[str] = set()
    for place, users in _users_by_place(values, options):
        is_of_account = users is not known.users
        if users and is_of_account and known.user:
            notes.errors.append(place.error("Can not have a single user/pass and accounts"))
        elif users and is_of_account and known.token:
            notes.errors.append(place.error("Can not have a token and accounts"))
        for user in users:
            name = user.user or user.nkey
            if name in seen:
                kind = "user" if user.user else "nkey"
                notes.errors.append(place.error(f"Duplicate {kind} {quoted(name)} detected"))
            seen.add(name)


def _users_by_place(
    values: ConfigMap, options: ServerOptions
) -> Iterator[tuple[Value, tuple[UserOptions, ...]]]:
    """Return the users of each block that has some, with the location to report."""
    place = _find(values, "authorization")
    if place is not None:
        yield place, options.authorization.users
    accounts = _find(values, "accounts")
    if accounts is None or not isinstance(accounts.value, dict):
        return
    for name, account in options.accounts.items():
        entries = accounts.value[name].value
        users = _find(entries, "users") if isinstance(entries, dict) else None
        if users is not None:
            yield users, account.users


def _check_store_dir(values: ConfigMap, options: ServerOptions, notes: Notes) -> None:
    place = _find(values, "store_dir", "storedir")
    in_block = options.jetstream is not None and options.jetstream.store_dir
    if place is not None and options.store_dir and in_block:
        notes.errors.append(place.error("Duplicate 'store_dir' configuration"))


def _check_callout(options: ServerOptions, notes: Notes) -> None:
    callout = options.authorization.auth_callout
    for name in callout.allowed_accounts if callout is not None else ():
        if name not in options.accounts:
            where = "not found in configured accounts"
            reason = f"auth_callout allowed account {quoted(name)} {where}"
            notes.errors.append(ConfigError("", 0, 0, reason))


def with_flags(options: ServerOptions, values: Mapping[str, FlagValue]) -> ServerOptions:
    """Put what flags say over options; raise ConfigError."""
    by_block: dict[str, dict[str, Any]] = {}
    for target, value in values.items():
        block, dot, name = target.rpartition(".")
        if dot or target in _OWN_FIELDS:
            by_block.setdefault(block, {})[name] = value
    options = changed(options, **by_block.get("", {}))
    options = _with_log_levels(options, values)
    if "jetstream" in by_block:
        # A folder alone does not turn streams on.
        base = options.jetstream or JetStreamOptions(enabled=False)
        options = changed(options, jetstream=changed(base, **by_block["jetstream"]))
    if "authorization" in by_block:
        merged = changed(options.authorization, **by_block["authorization"])
        options = changed(options, authorization=merged)
    options = _with_tls(options, values, by_block.get("tls", {}))
    return _with_cluster(options, values, by_block.get("cluster", {}))


_OWN_FIELDS = frozenset(options_of(ServerOptions)) - {"tls"}


def _with_log_levels(options: ServerOptions, values: Mapping[str, FlagValue]) -> ServerOptions:
    for name, fields in (
        ("DV", ("debug", "trace")),
        ("DVV", ("debug", "trace", "trace_verbose")),
        ("VV", ("trace", "trace_verbose")),
    ):
        if name in values:
            options = changed(options, **dict.fromkeys(fields, bool(values[name])))
    return options


def _with_tls(
    options: ServerOptions, values: Mapping[str, FlagValue], fields: dict[str, Any]
) -> ServerOptions:
    if values.get("tls") is False:
        return changed(options, tls=None)
    if not fields and "tls" not in values:
        return options
    if not fields.get("cert_file"):
        raise ConfigError("", 0, 0, "TLS Server certificate must be present and valid")
    if not fields.get("key_file"):
        raise ConfigError("", 0, 0, "TLS Server private key must be present and valid")
    # Certificates, authorities and whether to verify come from the flags alone.
    plain = {"ca_file": "", "verify": False, "certs": (), "cipher_suites": ()}
    tls = changed(options.tls or TlsOptions(), **(plain | fields))
    if reason := unreadable_file(tls):
        raise ConfigError("", 0, 0, reason)
    return changed(options, tls=tls)


def _with_cluster(
    options: ServerOptions, values: Mapping[str, FlagValue], fields: dict[str, Any]
) -> ServerOptions:
    routes = fields.pop("routes", None)
    if routes is not None:
        fields["routes"] = (
            tuple(route.strip() for route in str(routes).split(",")) if routes else ()
        )
    if "cluster_listen" in values:
        fields |= _cluster_address(str(values["cluster_listen"]))
    if not fields:
        return options
    merged = changed(options.cluster or ClusterOptions(), **fields)
    if merged.routes and routes and not merged.port and options.cluster is None:
        reason = "solicited routes require cluster capabilities, e.g. --cluster"
        raise ConfigError("", 0, 0, reason)
    for route in merged.routes:
        try:
            parse_url(route)
        except ValueError:
            raise ConfigError("", 0, 0, f"error parsing route url [{quoted(route)}]") from None
    return changed(options, cluster=merged)


def _cluster_address(url: str) -> dict[str, Any]:
    if not url:
        # The way to turn a cluster off that the file has.
        return {"port": 0}
    is_any_port = url.endswith(":-1")
    try:
        address = parse_url(url.removesuffix(":-1") + ":0" if is_any_port else url)
    except ValueError as error:
        raise ConfigError("", 0, 0, f"parse {quoted(url)}: {error}") from None
    if not address.port:
        raise ConfigError("", 0, 0, "missing port in address")
    if address.user and address.password is None:
        raise ConfigError("", 0, 0, "expected cluster password to be set")
    # What the file says of a user does not hold for an address of the command line.
    known = AuthorizationOptions(user=address.user, password=address.password or "")
    port = -1 if is_any_port else decimal(address.port)
    return {"host": address.host, "port": port, "authorization": known}


def settled(options: ServerOptions) -> ServerOptions:
    """Return options with defaults filled in, and with what follows from other options."""
    options = with_defaults(options)
    if options.operators:
        # Most servers have none, and start without loading what is about them.
        from penstock.config.operators import with_operator

        options = with_operator(options)
    blocks: dict[str, Any] = {
        name: with_defaults(block)
        for name in ("websocket", "cluster", "leafnodes", "gateway", "mqtt", "jetstream", "tls")
        if (block := getattr(options, name)) is not None
    }
    authorization = options.authorization
    if not authorization.timeout_s:
        timeout_s = 2.0 if options.tls is None else options.tls.timeout_s + 1.0
        blocks["authorization"] = changed(authorization, timeout_s=timeout_s)
    if options.store_dir:
        jetstream = blocks.get("jetstream") or JetStreamOptions(enabled=False)
        store_dir = jetstream.store_dir or options.store_dir
        blocks["jetstream"] = changed(jetstream, store_dir=store_dir)
    if not options.http_host:
        blocks["http_host"] = options.host
    return changed(options, **blocks)
