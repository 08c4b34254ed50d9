"""Checks that need several options at once, made before anything is opened.

Each key of a file is checked as it is read. Here are the rules that need several options, flags
included. The first rule that is broken is reported, in the reference server's words.

Options of parts that this server does not have are here too. An option that only adds something is
ignored with a warning. An option that decides who may connect is refused: a server that cannot
check it must not admit all clients.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from penstock.config.options.authorization import is_subject
from penstock.config.options.server import (
    GLOBAL_ACCOUNT,
    SYSTEM_ACCOUNT,
    ServerOptions,
    UserOptions,
)
from penstock.errors import ConfigError, UsageError
from penstock.limits import PAYLOAD_BYTES_MAX
from penstock.protocol.nkeys import Prefix, is_public_key
from penstock.text.quoting import quoted
from penstock.text.times import format_duration

_FORBIDDEN_HEADERS: Final = frozenset(
    {"host", "content-length", "connection", "upgrade", "nats-no-masking"}
)
_COMPRESSION_MODES: Final = frozenset(
    {"", "off", "false", "disabled", "accept", "on", "enabled", "true", "s2_fast", "s2_better",
     "s2_best", "s2_uncompressed", "s2_auto", "auto", "fast", "better", "best", "not supported"}
)  # fmt: skip


def check_options(options: ServerOptions) -> None:
    """Raise ConfigError with the first rule that the options break."""
    for check in _CHECKS:
        reason = check(options)
        if reason:
            raise ConfigError("", 0, 0, reason)


def all_users(options: ServerOptions) -> tuple[UserOptions, ...]:
    """Return every user, those of accounts included."""
    accounts = (user for account in options.accounts.values() for user in account.users)
    return (*options.authorization.users, *accounts)


def _server(options: ServerOptions) -> str:
    grace_ns, duration_ns = options.lame_duck_grace_ns, options.lame_duck_duration_ns
    if grace_ns >= duration_ns > 0:
        grace, duration = format_duration(grace_ns), format_duration(duration_ns)
        should = f"should be strictly lower than lame duck duration ({duration})"
        return f"lame duck grace period ({grace}) {should}"
    if options.max_payload > options.max_pending:
        pending = options.max_pending
        return f"max_payload ({options.max_payload}) cannot be higher than max_pending ({pending})"
    if options.max_payload > PAYLOAD_BYTES_MAX:
        return f"max_payload ({options.max_payload}) cannot be higher than {PAYLOAD_BYTES_MAX}"
    if " " in options.server_name:
        return "server name cannot contain spaces"
    return ""


def _trust(options: ServerOptions) -> str:
    if not options.operators:
        needed = "default sentinel requires operators and accounts"
        return needed if options.default_sentinel else ""
    # Most servers have none, and start without loading what is about them.
    from penstock.config.operators import wrong_operators

    return wrong_operators(options)


def _leafnodes(options: ServerOptions) -> str:
    leafnodes = options.leafnodes
    if leafnodes is None or options.operators:
        return ""
    known = {"", GLOBAL_ACCOUNT, *options.accounts}
    if not options.system_account and not options.no_system_account:
        known.add(SYSTEM_ACCOUNT)
    users = leafnodes.authorization.users
    named = [(leafnodes.authorization.account, "authorization")]
    named += [(user.account, "authorization") for user in users]
    named += [(remote.account, "remote") for remote in leafnodes.remotes]
    for account, where in named:
        if account not in known:
            return f"cannot find local account {quoted(account)} specified in leafnode {where}"
    for compression in (leafnodes.compression, *(one.compression for one in leafnodes.remotes)):
        if reason := _compression(compression.mode):
            return reason
    for remote in leafnodes.remotes:
        if len({urlsplit(url).scheme in ("ws", "wss") for url in remote.urls}) > 1:
            mixed = "cannot have a mix of websocket and non-websocket urls"
            return f"remote leaf node configuration {mixed}"
    return ""


def _compression(mode: str) -> str:
    if mode.lower() in _COMPRESSION_MODES:
        return ""
    return f"unsupported compression mode {quoted(mode)}"


def _no_auth_user(options: ServerOptions, name: str) -> str:
    if not name:
        return ""
    if options.operators:
        return "no_auth_user not compatible with Trusted Operator"
    users = all_users(options)
    if not users:
        return f'no_auth_user: "{name}" present, but users/nkeys are not defined'
    if any(name in (user.user, user.nkey) for user in users):
        return ""
    where = "authorization block or account configuration"
    return f'no_auth_user: "{name}" not present as user or nkey in {where}'


def _authorization(options: ServerOptions) -> str:
    return _no_auth_user(options, options.no_auth_user)


def _gateway(options: ServerOptions) -> str:
    gateway = options.gateway
    if gateway is None or not (gateway.name or gateway.port):
        return ""
    if not gateway.name:
        return "gateway has no name"
    if not gateway.port:
        hint = "(select -1 for random port)"
        return f"gateway {quoted(gateway.name)} has no port specified {hint}"
    for number, remote in enumerate(gateway.gateways):
        if not remote.name:
            return f"gateway in the list {number} has no name"
        if not remote.urls:
            return f"gateway {quoted(remote.name)} has no URL"
    return ""


def _cluster(options: ServerOptions) -> str:
    cluster = options.cluster
    if cluster is None:
        return ""
    if " " in cluster.name:
        return "cluster name cannot contain spaces"
    if reason := _compression(cluster.compression.mode):
        return reason
    gateway_name = options.gateway.name if options.gateway is not None else ""
    if gateway_name and cluster.name and gateway_name != cluster.name:
        return "cluster name conflicts between cluster and gateway definitions"
    pinned = cluster.pinned_accounts
    if pinned and cluster.pool_size < 0:
        return "pool_size cannot be negative if pinned accounts are specified"
    for name in pinned:
        if pinned.count(name) > 1:
            shown = " ".join(map(quoted, pinned))
            return f"found duplicate account name {quoted(name)} in pinned accounts list [{shown}]"
    return ""


def _mqtt(options: ServerOptions) -> str:
    mqtt = options.mqtt
    if mqtt is None or not mqtt.port:
        return ""
    is_clustered = _is_clustered(options) or bool(options.gateway and options.gateway.port)
    if is_clustered and not options.server_name:
        return "mqtt requires server name to be explicitly set"
    if reason := _no_auth_user(options, mqtt.no_auth_user):
        return reason
    if all_users(options) and mqtt.authorization.user:
        return "mqtt authentication username not compatible with presence of users/nkeys"
    if all_users(options) and mqtt.authorization.token:
        return "mqtt authentication token not compatible with presence of users/nkeys"
    has_streams = options.jetstream is not None and options.jetstream.enabled
    has_leafnodes = options.leafnodes is not None and bool(
        options.leafnodes.port or options.leafnodes.remotes
    )
    if not (has_streams or is_clustered or has_leafnodes):
        return "mqtt requires JetStream to be enabled if running in standalone mode"
    return ""


def _is_clustered(options: ServerOptions) -> bool:
    return options.cluster is not None and options.cluster.port != 0


def _default_domains(options: ServerOptions) -> str:
    for account, domain in options.default_js_domain.items():
        name = quoted(account)
        known = options.accounts.get(account)
        if options.operators:
            if not is_public_key(account, Prefix.ACCOUNT):
                what = "which is not a valid public account nkey"
                return f"default_js_domain contains account name {name}, {what}"
        elif known is None and account != GLOBAL_ACCOUNT:
            what = f"`default_js_domain` references non existing account {name}"
            return f"in non operator mode, {what}"
        elif known is not None and known.jetstream is not None and domain:
            return f"default_js_domain contains account name {name} with enabled JetStream"
        if account == (options.system_account or SYSTEM_ACCOUNT):
            return f"system account {name} can not be in default_js_domain"
        if domain and not is_subject(f"$JS.{domain}.API.>"):
            what = f"with invalid domain name {quoted(domain)}"
            return f"default_js_domain contains account {name} {what}"
    return ""


def _jetstream(options: ServerOptions) -> str:
    jetstream = options.jetstream
    if jetstream is None:
        return ""
    api = f"$JS.{jetstream.domain}.API.>"
    if jetstream.domain and not is_subject(api):
        return f"invalid domain name: derived {quoted(api)} is not a valid subject"
    if set(jetstream.domain) & set(".*> \t\r\n\f"):
        return "invalid domain name: may not contain ., * or >"
    if not jetstream.enabled or options.cluster is None or not _is_clustered(options):
        return ""
    if not options.server_name:
        return "jetstream cluster requires `server_name` to be set"
    if not options.cluster.name:
        return "jetstream cluster requires `cluster.name` to be set"
    hint = jetstream.extension_hint.lower()
    if hint not in ("", "no_extend", "will_extend"):
        return f"expected 'no_extend' for string value, got '{hint}'"
    if jetstream.max_outstanding_catchup < 0:
        return "jetstream max catchup cannot be negative"
    return ""


def _websocket(options: ServerOptions) -> str:
    websocket = options.websocket
    if websocket is None or not websocket.port:
        return ""
    if websocket.tls is None and not websocket.no_tls:
        return "websocket requires TLS configuration"
    for origin in websocket.allowed_origins:
        if reason := _wrong_origin(origin):
            return reason
    if reason := _no_auth_user(options, websocket.no_auth_user):
        return reason
    if all_users(options):
        what = "not compatible with presence of users/nkeys"
        if websocket.authorization.user:
            return f"websocket authentication username {what}"
        if websocket.authorization.token:
            return f"websocket authentication token {what}"
    if websocket.jwt_cookie and not (options.operators or options.trusted_keys):
        needed = "trusted operators or trusted keys configuration is required"
        return f"{needed} for JWT authentication via cookie {quoted(websocket.jwt_cookie)}"
    return _wrong_headers(websocket.headers)


def _wrong_headers(headers: Mapping[str, str]) -> str:
    for header in headers:
        if header.lower() in _FORBIDDEN_HEADERS:
            return f"websocket: invalid header {quoted(header)} not allowed"
        if header.lower().startswith("sec-websocket-"):
            return (
                f'websocket: invalid header {quoted(header)}, "Sec-WebSocket-" prefix not allowed'
            )
    return ""


def _wrong_origin(origin: str) -> str:
    prefix = f"unable to parse allowed origin {quoted(origin)}:"
    try:
        split = urlsplit(origin)
        has_port = split.port is not None or ":" not in split.netloc.rpartition("]")[2]
    except ValueError as error:
        return f"unable to parse allowed origin: {error}"
    if split.scheme not in ("http", "https"):
        return f"{prefix} allowed origins must be absolute URLs with http or https scheme"
    return "" if split.netloc and has_port else f"{prefix} host is required"


_CHECKS: Final[tuple[Callable[[ServerOptions], str], ...]] = (
    _server, _trust, _leafnodes, _authorization, _gateway, _cluster, _mqtt, _default_domains,
    _jetstream, _websocket,
)  # fmt: skip


def check_available(options: ServerOptions) -> None:
    """Raise UsageError if an option that decides who may connect is not available."""
    needs_proxy = any(user.proxy_required for user in all_users(options))
    if needs_proxy or options.authorization.proxy_required:
        raise UsageError("proxy_required is not available yet")
    websocket = options.websocket
    for tls in (options.tls, None if websocket is None else websocket.tls):
        if tls is not None and tls.ocsp_peer:
            raise UsageError("ocsp_peer is not available yet")


def without_effect(options: ServerOptions) -> list[str]:
    """Name what was asked for and will not be there."""
    leafnodes = options.leafnodes
    exports = [export for account in options.accounts.values() for export in account.exports]
    asked_for = {
        "Cluster": options.cluster is not None and options.cluster.port != 0,
        "Gateway": options.gateway is not None and options.gateway.port != 0,
        "Leafnodes": leafnodes is not None and bool(leafnodes.port or leafnodes.remotes),
        "MQTT": options.mqtt is not None and options.mqtt.port != 0,
        "Auth callout": options.authorization.auth_callout is not None,
        "Service latency": any(export.latency is not None for export in exports),
        "OCSP": options.ocsp is not None and options.ocsp.mode != "never",
        "Profiling": options.prof_port != 0,
    }
    return [name for name, is_asked_for in asked_for.items() if is_asked_for]
