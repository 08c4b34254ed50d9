"""Options of trust: operators, resolvers of accounts, proxies, OCSP responders.

A JWT must be signed by the issuer that it names. Whether that issuer is trusted is checked by
`security`. A file is read only if an operator is named by its path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from penstock.config.language.parser import Value, read_text
from penstock.config.options.declare import Block, Key, option, options_block
from penstock.config.options.values import (
    Notes,
    array,
    boolean,
    duration_text,
    integer,
    mapping,
    parse_url,
    read_fields,
    text,
    texts,
)
from penstock.errors import ConfigError, FormatError
from penstock.limits import JWT_FILE_BYTES_MAX
from penstock.protocol.nkeys import Prefix, is_public_key
from penstock.text.quoting import quoted

_MEMORY: Final = re.compile(r"(MEM|MEMORY)\s*", re.IGNORECASE)
_URL: Final = re.compile(r'URL(?:\(\s*"?([^\s"]*)"?\s*\))?\s*', re.IGNORECASE)


def _is_of_kind(token: str, kind: str) -> bool:
    # Few servers have JWTs in their configuration; the others start without loading it.
    from penstock.protocol.jwt import decode_token

    try:
        return decode_token(token).kind == kind
    except FormatError:
        return False


def operators(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
    """Read operator JWTs, given as they are or as files that hold one."""
    from penstock.config.operators import read_operator
    from penstock.protocol.jwt import JWT_START, find_token

    entries = value.value if isinstance(value.value, list) else [value]
    found = []
    for entry in entries:
        if not isinstance(entry.value, str):
            what = "unsupported type" if entry is value else "where string is expected"
            raise value.error(f"error parsing operators: {what} {entry.type_name}")
        token = entry.value
        try:
            if not token.startswith(JWT_START):
                token = find_token(read_text(token, JWT_FILE_BYTES_MAX))
            read_operator(token)
        except (ConfigError, FormatError) as error:
            raise value.error(f"error parsing operator JWT: {error.reason}") from None
        found.append(token)
    return tuple(found)


def trusted_keys(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
    """Read public keys of operators."""
    found = texts(value, Key(key.spelled, "trusted"), notes)
    for name in found:
        if not is_public_key(name, Prefix.OPERATOR):
            required = "required to be a valid public operator nkey"
            raise value.error(f"trust key {quoted(name)} {required}")
    return found


def preloads(value: Value, key: Key, notes: Notes) -> dict[str, str]:
    """Read account JWTs by public key."""
    expected = "preload should be a map of account_public_key:account_jwt"
    found = {}
    for name, entry in mapping(value, expected).items():
        if not isinstance(entry.value, str):
            raise entry.error("preload map value should be a string JWT")
        if not _is_of_kind(entry.value, "account"):
            raise entry.error("invalid account JWT")
        found[name] = entry.value
    return found


@options_block(frozen=True)
class ResolverOptions(Block):
    """Where account JWTs come from."""

    # What is not known here is left alone, as the reference server does.
    unknown_text: ClassVar[str] = ""

    # fmt: off
    kind: str = option("memory", keys=("type",), read=text, doc="memory, url, full or cache.")
    url: str = option("", doc="Where to ask, of kind url.")
    directory: str = option("", keys=("dir",), read=text, doc="Folder, of kinds full and cache.")
    allow_delete: bool = option(
        False, keys=("allow_delete",), read=boolean, doc="Accounts may be deleted.",
    )
    hard_delete: bool | None = option(
        None, keys=("hard_delete",), read=boolean, doc="Deleted ones are not kept aside.",
    )
    limit: int = option(0, keys=("limit",), read=integer, doc="Accounts to keep; 0: all.")
    ttl_ns: int = option(0, keys=("ttl",), read=duration_text, doc="How long to keep them.")
    interval_ns: int = option(
        0, keys=("interval",), read=duration_text, doc="How often to ask other servers.",
    )
    timeout_ns: int = option(
        0, keys=("timeout",), read=duration_text, doc="How long to wait for an account.",
    )
    # fmt: on


def resolver(value: Value, key: Key, notes: Notes) -> ResolverOptions:
    """Read where account JWTs come from: MEM, URL(…), or a map."""
    inner = value.value
    if isinstance(inner, str):
        if _MEMORY.search(inner):
            return ResolverOptions()
        url = _URL.search(inner)
        if url is not None:
            return _url_resolver(value, url[1] or "")
    elif isinstance(inner, dict):
        known = {name: one for name, one in inner.items() if name in _resolver_keys()}
        found = ResolverOptions(**read_fields(ResolverOptions, known, notes))
        return _directory_resolver(value, found)
    else:
        raise value.error(f"error parsing operator resolver, wrong type {value.type_name}")
    raise value.error(_RESOLVER_EXPECTED)


_RESOLVER_EXPECTED: Final = (
    'error parsing account resolver, should be MEM or  URL("url") or a map containing dir and type '
    "state=[FULL|CACHE])"
)


def _resolver_keys() -> frozenset[str]:
    return frozenset(
        {"type", "dir", "allow_delete", "hard_delete", "limit", "ttl", "interval", "timeout"}
    )


def _url_resolver(value: Value, url: str) -> ResolverOptions:
    try:
        parse_url(url)
    except ValueError:
        raise value.error(f"error parsing account resolver url [{quoted(url)}]") from None
    return ResolverOptions(kind="url", url=url)


def _directory_resolver(value: Value, found: ResolverOptions) -> ResolverOptions:
    kind = found.kind.upper()
    if kind in ("MEM", "MEMORY"):
        return ResolverOptions()
    if kind not in ("FULL", "CACHE"):
        raise value.error(_RESOLVER_EXPECTED)
    if not found.directory:
        raise value.error("dir has no value and needs to point to a directory")
    if Path(found.directory).exists() and not Path(found.directory).is_dir():
        raise value.error("dir needs to point to an accessible directory")
    if kind == "CACHE" and found.interval_ns:
        raise value.error("CACHE does not accept sync")
    if kind == "CACHE" and found.allow_delete:
        raise value.error("CACHE does not accept allow_delete")
    if kind == "CACHE" and found.hard_delete is not None:
        raise value.error("CACHE does not accept hard_delete")
    if kind == "FULL" and found.ttl_ns:
        raise value.error("FULL does not accept ttl")
    if kind == "FULL" and found.hard_delete is not None and not found.allow_delete:
        raise value.error("hard_delete has no effect without delete")
    return found


def trusted_proxies(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
    """Read the public keys of proxies that may speak for clients."""
    found: list[str] = []
    expected = f"expected proxies to be a map/struct, got {value.type_name}"
    for name, trusted in mapping(value, expected).items():
        if name.lower() == "trusted":
            found.extend(_proxy_keys(trusted, notes))
        elif not trusted.is_variable:
            raise trusted.error(f"unknown field {quoted(name)}")
    return tuple(found)


def _proxy_keys(trusted: Value, notes: Notes) -> list[str]:
    found = []
    what = "expected proxies' trusted"
    for entry in array(trusted, f"{what} field to be an array, got {trusted.type_name}"):
        expected = f"{what} entry to be a map/struct, got {entry.type_name}"
        for name, one in mapping(entry, expected).items():
            if name.lower() in ("key", "public_key"):
                proxy = text(one, Key(name, "key"), notes)
                if not is_public_key(proxy, *Prefix):
                    raise one.error(f"invalid proxy key {quoted(proxy)}")
                found.append(proxy)
            elif not one.is_variable:
                raise one.error(f"unknown field {quoted(name)}")
    return found


class OcspOptions(msgspec.Struct, frozen=True):
    """When the server proves that its certificate was not revoked, and whom it asks."""

    mode: str = "auto"
    urls: tuple[str, ...] = ()


def ocsp(value: Value, key: Key, notes: Notes) -> OcspOptions:
    """Read a boolean or a map of mode and urls."""
    if isinstance(value.value, bool):
        return OcspOptions("auto" if value.value else "never")
    prefix = "error parsing ocsp config:"
    mode = "auto"
    urls: tuple[str, ...] = ()
    for name, one in mapping(value, f"{prefix} unsupported type {value.type_name}").items():
        match name:
            case "mode":
                mode = text(one, key, notes).lower()
                if mode not in ("always", "must", "never", "auto"):
                    raise one.error(f"{prefix} unsupported ocsp mode {quoted(mode)}")
            case "url" | "urls":
                urls = texts(one, key, notes)
            case _:
                raise one.error(f"{prefix} unsupported field {quoted(name)}")
    return OcspOptions(mode, urls)


def ocsp_cache(value: Value, key: Key, notes: Notes) -> bool:
    """Read a boolean or a map whose type is local or none."""
    if isinstance(value.value, bool):
        return value.value
    entries = mapping(value, f"error parsing tags: unsupported type {value.type_name}")
    kind = entries.get("type")
    return kind is None or text(kind, key, notes).lower() != "none"
