"""Which options may change while the server runs.

    for change in changes(running, wanted):
        log(change.text)

Each option declares whether a reload may change it. Blocks that are reloadable in part, and rules
that compare both sides, are here. A refusal names the option and both values, in the reference
server's words. Passwords, tokens and keys are never shown. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.config.check import all_users
from penstock.config.options.declare import Block, fields_of, options_of
from penstock.config.options.server import (
    SYSTEM_ACCOUNT,
    AuthorizationOptions,
    ClusterOptions,
    GatewayOptions,
    JetStreamOptions,
    LeafnodesOptions,
    MqttOptions,
    ServerOptions,
    TlsOptions,
    WebsocketOptions,
)
from penstock.config.options.values import changed
from penstock.errors import ConfigError
from penstock.text.quoting import quoted
from penstock.text.times import format_duration

_REFUSED: Final = "config reload not supported for"


@dataclass(frozen=True, slots=True)
class Change:
    """One option that a reload changes: its path, both values, and the line for the log."""

    option: str
    # They may be secrets, or hold some.
    old: Any = field(repr=False)
    new: Any = field(repr=False)
    text: str


def changes(old: ServerOptions, new: ServerOptions) -> list[Change]:
    """Return what differs; raise ConfigError if an option differs that may not.

    A port of -1 in the new options means the one that is in use.
    """
    found: list[Change] = []
    for one in fields_of(old):
        name = one.name
        before, after = getattr(old, name), getattr(new, name)
        special = _SPECIAL.get(name)
        if before == after:
            continue
        if special is not None:
            found += special(old, new)
        elif options_of(ServerOptions)[name].reloadable:
            found.append(_change(name, before, after))
        else:
            raise _refusal(
                options_of(ServerOptions)[name].go_name, ServerOptions, name, before, after
            )
    return found


def with_ports_kept(old: ServerOptions, new: ServerOptions) -> ServerOptions:
    """Return the new options, with ports of -1 replaced by those in use."""
    ports = ("port", "http_port", "https_port")
    kept: dict[str, Any] = {
        name: getattr(old, name)
        for name in ports
        # A listener that there was not is no port in use.
        if getattr(new, name) == -1 and getattr(old, name)
    }
    for name in ("cluster", "websocket", "leafnodes", "gateway", "mqtt"):
        before, after = getattr(old, name), getattr(new, name)
        if before is not None and after is not None and after.port == -1:
            kept[name] = changed(after, port=before.port)
    return changed(new, **kept) if kept else new


def _shown(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and name.endswith("_ns"):
        return format_duration(value)
    if isinstance(value, tuple):
        return "[" + " ".join(map(str, value)) + "]"
    return str(value)


def _refusal(what: str, kind: type[Block], name: str, old: Any, new: Any) -> ConfigError:
    """Say that an option may not change; values that are secret or hold others are not shown."""
    is_shown = not options_of(kind)[name].secret
    is_shown &= not any(isinstance(value, dict | Block) for value in (old, new))
    values = f": old={_shown(name, old)}, new={_shown(name, new)}" if is_shown else ""
    return ConfigError("", 0, 0, f"{_REFUSED} {what}{values}")


_TEXTS: Final = {
    "server_tags": "Reloaded: tags",
    "server_metadata": "Reloaded: metadata",
    "accounts": "Reloaded: accounts",
    "mappings": "Reloaded: accounts",
    "resolver_tls": "Reloaded: accounts",
    "resolver_preload": "Reloaded: accounts",
    "resolver_pinned_accounts": "Reloaded: accounts",
    "ocsp": "Reloaded: OCSP",
    "ocsp_cache": "Reloaded OCSP peer cache",
    "trusted_proxies": "Reloaded: proxies trusted keys",
}


def _change(name: str, old: Any, new: Any, text: str = "") -> Change:
    if not text:
        shown = f"Reloaded: {name.removesuffix('_ns')} = {_shown(name, new)}"
        text = _TEXTS.get(name, shown)
    return Change(name, old, new, text)


def _port(old: ServerOptions, new: ServerOptions) -> list[Change]:
    if new.port != -1:
        raise _refusal("Port", ServerOptions, "port", old.port, new.port)
    return []


def _no_auth_user(old: ServerOptions, new: ServerOptions) -> list[Change]:
    is_gone = not any(user.user == old.no_auth_user for user in all_users(new))
    if old.no_auth_user and not new.no_auth_user and is_gone:
        return []
    raise _refusal("NoAuthUser", ServerOptions, "no_auth_user", old.no_auth_user, new.no_auth_user)


def _system_account(old: ServerOptions, new: ServerOptions) -> list[Change]:
    if old.system_account != SYSTEM_ACCOUNT or new.system_account:
        before, after = old.system_account, new.system_account
        raise _refusal("SystemAccount", ServerOptions, "system_account", before, after)
    return []


def _resolver(old: ServerOptions, new: ServerOptions) -> list[Change]:
    if old.resolver is None or new.resolver is None:
        reason = "config reload does not support moving to or from an account resolver"
        raise ConfigError("", 0, 0, reason)
    return [_change("resolver", old.resolver, new.resolver, "Reloaded: accounts")]


def _fast_producers(old: ServerOptions, new: ServerOptions) -> list[Change]:
    negation = "not " if new.no_fast_producer_stall else ""
    text = f"Reloaded: fast producers will {negation}be stalled"
    name = "no_fast_producer_stall"
    return [_change(name, old.no_fast_producer_stall, new.no_fast_producer_stall, text)]


def _client_advertise(old: ServerOptions, new: ServerOptions) -> list[Change]:
    text = f"Reload: client_advertise = {new.client_advertise}"
    return [_change("client_advertise", old.client_advertise, new.client_advertise, text)]


_AUTHORIZATION_TEXTS: Final = {
    "user": "username", "password": "password", "token": "token", "users": "users",
}  # fmt: skip


def _authorization(old: ServerOptions, new: ServerOptions) -> list[Change]:
    before, after = old.authorization, new.authorization
    found = []
    for name in _different(AuthorizationOptions, before, after):
        values = getattr(before, name), getattr(after, name)
        path = f"authorization.{name}"
        if name in _AUTHORIZATION_TEXTS:
            text = f"Reloaded: authorization {_AUTHORIZATION_TEXTS[name]}"
            found.append(_change(path, *values, text))
        elif name == "timeout_s":
            text = f"Reloaded: authorization timeout = {after.timeout_s:g}"
            found.append(_change(path, *values, text))
        elif name == "auth_callout":
            raise _refusal("AuthCallout", AuthorizationOptions, name, *values)
        elif name == "proxy_required":
            raise _refusal("ProxyRequired", AuthorizationOptions, name, *values)
    return found


def _tls(old: ServerOptions, new: ServerOptions) -> list[Change]:
    state = "disabled" if new.tls is None else "enabled"
    found = [_change("tls", old.tls, new.tls, f"Reloaded: tls = {state}")]
    before, after = old.tls or TlsOptions(), new.tls or TlsOptions()
    if before.timeout_s != after.timeout_s:
        text = f"Reloaded: tls timeout = {after.timeout_s:g}"
        found.append(_change("tls.timeout_s", before.timeout_s, after.timeout_s, text))
    if before.pinned_certs != after.pinned_certs:
        text = f"Reloaded: {len(after.pinned_certs)} pinned_certs"
        found.append(_change("tls.pinned_certs", before.pinned_certs, after.pinned_certs, text))
    return found


def _different(kind: type[Block], old: Any, new: Any) -> list[str]:
    """Return the names of the options in which two blocks differ."""
    names = (one.name for one in fields_of(kind))
    return [name for name in names if getattr(old, name) != getattr(new, name)]


def _cluster(old: ServerOptions, new: ServerOptions) -> list[Change]:
    before, after = old.cluster or ClusterOptions(), new.cluster or ClusterOptions()
    if before.host != after.host:
        raise _refusal("cluster host", ClusterOptions, "host", before.host, after.host)
    if after.port not in (before.port, -1):
        raise _refusal("cluster port", ClusterOptions, "port", before.port, after.port)
    found = []
    if before.routes != after.routes:
        text = "Reloaded: cluster routes"
        found.append(_change("cluster.routes", before.routes, after.routes, text))
    if set(_different(ClusterOptions, before, after)) - {"routes", "port"}:
        found.append(_change("cluster", old.cluster, new.cluster, "Reloaded: cluster"))
    return found


def _partly(
    name: str, go_name: str, kind: type[Block], reloadable: frozenset[str]
) -> Callable[[ServerOptions, ServerOptions], list[Change]]:
    """Make the rule of a block of which only some options may change."""

    def compare(old: ServerOptions, new: ServerOptions) -> list[Change]:
        before: Any = getattr(old, name) or kind()
        after: Any = getattr(new, name) or kind()
        found = []
        for option in _different(kind, before, after):
            values = getattr(before, option), getattr(after, option)
            if option == "port" and after.port == -1:
                continue
            if option not in reloadable:
                raise _refusal(f"{go_name}: field {quoted(option)}", kind, option, *values)
            text = f"Reloaded: {go_name} {option.removesuffix('_ns')}"
            if not isinstance(values[1], Block | tuple | None):
                text += f" = {_shown(option, values[1])}"
            found.append(_change(f"{name}.{option}", *values, text))
        return found

    return compare


def _jetstream(old: ServerOptions, new: ServerOptions) -> list[Change]:
    before = old.jetstream or JetStreamOptions(enabled=False)
    after = new.jetstream or JetStreamOptions(enabled=False)
    found = []
    for name in _different(JetStreamOptions, before, after):
        values = getattr(before, name), getattr(after, name)
        info = options_of(JetStreamOptions)[name]
        if name == "enabled":
            found.append(_change("jetstream.enabled", *values, "Reloaded: JetStream"))
        elif not before.enabled or not after.enabled:
            # Nothing runs that these would change, or nothing will.
            continue
        elif name == "store_dir":
            what = "directory" if after.store_dir else "dir"
            raise ConfigError("", 0, 0, f"{_REFUSED} jetstream storage {what}")
        elif name in ("max_memory", "max_file"):
            found.append(_storage_limit(name, *values))
        elif info.reloadable:
            found.append(_change(f"jetstream.{name}", *values, f"Reloaded: JetStream {name}"))
        else:
            raise _refusal(info.go_name, JetStreamOptions, name, *values)
    return found


def _storage_limit(name: str, old: int, new: int) -> Change:
    if old == -1:
        reason = "jetstream dynamic max memory and store"
    elif new == -1:
        reason = "jetstream max memory and max store"
    elif new < old:
        reason = "decreasing jetstream max memory and store"
    else:
        key = options_of(JetStreamOptions)[name].keys[0]
        text = f"Reloaded: JetStream {key} = {new}"
        return _change(f"jetstream.{name}", old, new, text)
    raise ConfigError("", 0, 0, f"{_REFUSED} {reason}")


_SPECIAL: Final[dict[str, Callable[[ServerOptions, ServerOptions], list[Change]]]] = {
    "port": _port,
    "no_auth_user": _no_auth_user,
    "system_account": _system_account,
    "resolver": _resolver,
    "no_fast_producer_stall": _fast_producers,
    "client_advertise": _client_advertise,
    "authorization": _authorization,
    "tls": _tls,
    "cluster": _cluster,
    "jetstream": _jetstream,
    "store_dir": lambda old, new: [],
    "websocket": _partly("websocket", "Websocket", WebsocketOptions, frozenset({"tls"})),
    "gateway": _partly("gateway", "Gateway", GatewayOptions, frozenset({"tls"})),
    "leafnodes": _partly(
        "leafnodes", "LeafNode", LeafnodesOptions, frozenset({"tls", "remotes", "compression"})
    ),
    "mqtt": _partly(
        "mqtt",
        "MQTT",
        MqttOptions,
        frozenset(
            {"tls", "ack_wait_ns", "max_ack_pending", "stream_replicas", "consumer_replicas",
             "consumer_memory_storage", "consumer_inactive_threshold_ns"}
        ),
    ),
}  # fmt: skip
