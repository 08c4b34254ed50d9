"""Options of connections between servers: clusters and gateways. Pure."""

from __future__ import annotations

from typing import ClassVar, Final

from penstock.config.language.parser import Value
from penstock.config.options.authorization import (
    AuthorizationOptions,
    PermissionsOptions,
    permissions,
    server_authorization,
)
from penstock.config.options.declare import Block, Key, Reader, option, options_block
from penstock.config.options.tls import TlsOptions, tls_block
from penstock.config.options.values import (
    Notes,
    array,
    boolean,
    changed,
    duration,
    duration_text,
    integer,
    listen,
    mapping,
    one_of,
    parse_url,
    read_fields,
    text,
    texts,
)
from penstock.text.quoting import quoted
from penstock.text.times import SECOND_NS, format_duration

ROUTE_PING_INTERVAL_NS_MAX: Final = 30 * SECOND_NS
"""The reference server's bound."""

write_timeout = one_of(
    "default", "close", "retry", reason="write_timeout must be 'default', 'close' or 'retry'"
)


def name_without_spaces(what: str) -> Reader:
    """Make a reader of a name of something."""

    def read(value: Value, key: Key, notes: Notes) -> str:
        name = text(value, key, notes)
        if " " in name:
            raise value.error(f"{what} name cannot contain spaces")
        return name

    return read


def urls(kind: str) -> Reader:
    """Make a reader of a URL or an array of them."""

    def read(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
        if isinstance(value.value, str):
            entries = [value]
        else:
            expected = f"expected an array for {quoted(key.spelled)}, got {value.type_name}"
            entries = array(value, expected)
        found: dict[str, None] = {}
        for entry in entries:
            url = text(entry, key, notes)
            if url in found:
                notes.warn(entry, Key(url, url), f"Duplicate {kind} entry detected")
            try:
                parse_url(url)
            except ValueError:
                reason = f"error parsing {kind} url [{quoted(url.strip())}]"
                raise entry.error(reason) from None
            found[url] = None
        return tuple(url.strip() for url in found)

    return read


@options_block(frozen=True)
class CompressionOptions(Block):
    """How what goes to another server is packed; rtt_thresholds_ns are for the mode s2_auto."""

    # fmt: off
    mode: str = option("", keys=("mode",), read=text, doc="off, accept, s2_fast, s2_better, …")
    rtt_thresholds_ns: tuple[int, ...] = option(
        (), keys=("rtt_thresholds", "thresholds", "rtts", "rtt"),
        read=lambda value, key, notes: tuple(
            duration_text(one, key, notes) for one in array(value, "expected an array of durations")
        ),
        doc="Round-trip times from which packing gets better and slower.",
    )
    # fmt: on


def compression(mode_for_on: str) -> Reader:
    """Make a reader of a mode, a boolean, or a map."""

    def read(value: Value, key: Key, notes: Notes) -> CompressionOptions:
        if isinstance(value.value, str):
            return CompressionOptions(value.value)
        if isinstance(value.value, bool):
            return CompressionOptions(mode_for_on if value.value else "off")
        field = f"field {quoted(key.spelled)}"
        expected = f"{field} should be a boolean or a structure, got {value.type_name}"
        entries = mapping(value, expected)
        return CompressionOptions(**read_fields(CompressionOptions, entries, notes))

    return read


def _route_ping_interval(value: Value, key: Key, notes: Notes) -> int:
    interval_ns = duration(value, key, notes)
    if interval_ns > ROUTE_PING_INTERVAL_NS_MAX:
        longest = format_duration(ROUTE_PING_INTERVAL_NS_MAX)
        reason = f"Cluster 'ping_interval' will reset to {longest} which is the max for routes"
        notes.warnings.append(str(value.error(reason)))
    return interval_ns


def _cluster_permissions(value: Value, key: Key, notes: Notes) -> PermissionsOptions:
    found = permissions(value, key, notes)
    if found.responses is not None:
        raise value.error("Cluster permissions do not support dynamic responses")
    for names, what in (
        (found.subscribe_allow, "cluster export allow"),
        (found.subscribe_deny, "cluster export deny"),
    ):
        for name in names or ():
            if " " in name:
                raise value.error(f"{what}: subject {quoted(name)} is not a valid subject")
    return found


@options_block(frozen=True)
class ClusterOptions(Block):
    """Servers that serve the same clients together."""

    shared_keys: ClassVar[dict[str, Reader]] = {"listen": listen("host", "port")}

    # fmt: off
    name: str = option(
        "", keys=("name",), flags=("--cluster_name",), placeholder="name",
        read=name_without_spaces("cluster"), doc="Name of the cluster; made up if not given.",
    )
    host: str = option(
        "0.0.0.0", keys=("host", "net"), read=text, zero_is_default=True,
        doc="Address that other servers connect to.",
    )
    port: int = option(
        0, keys=("port",), read=integer, doc="Port for other servers; 0: none, -1: any free one.",
    )
    authorization: AuthorizationOptions = option(
        AuthorizationOptions(), keys=("authorization",), read=server_authorization("Cluster"),
        doc="What other servers must know.",
    )
    routes: tuple[str, ...] = option(
        (), keys=("routes",), flags=("--routes",), placeholder="url,url", read=urls("route"),
        secret=True,
        doc="Servers of the cluster to connect to.",
    )
    tls: TlsOptions | None = option(
        None, keys=("tls",), read=tls_block(of_servers=True), doc="TLS between the servers.",
    )
    advertise: str = option(
        "", keys=("cluster_advertise", "advertise"), flags=("--cluster_advertise",),
        placeholder="host:port", read=text, doc="Address that other servers are told.",
    )
    no_advertise: bool = option(
        False, keys=("no_advertise",), flags=("--no_advertise",), read=boolean,
        doc="Do not tell clients of the other servers.",
    )
    connect_retries: int = option(
        0, keys=("connect_retries",), flags=("--connect_retries",), placeholder="number",
        read=integer, doc="Attempts to reach a server that another one told of.",
    )
    connect_backoff: bool = option(
        False, keys=("connect_backoff",), read=boolean, doc="Wait longer after each attempt.",
    )
    permissions: PermissionsOptions | None = option(
        None, keys=("permissions",), read=_cluster_permissions,
        doc="Subjects that cross routes: import as publish, export as subscribe.",
    )
    pool_size: int = option(
        3, keys=("pool_size",), read=integer, zero_is_default=True,
        doc="Routes to each server; -1: one, as old servers have it.",
    )
    pinned_accounts: tuple[str, ...] = option(
        (), keys=("accounts",), read=texts, doc="Accounts with a route of their own.",
    )
    compression: CompressionOptions = option(
        CompressionOptions("accept"), keys=("compression",), read=compression("s2_fast"),
        doc="How what goes over routes is packed.",
    )
    ping_interval_ns: int = option(
        0, keys=("ping_interval",), read=_route_ping_interval,
        doc="How often a route is pinged; 0: as clients are, at most every 30 s.",
    )
    ping_max: int = option(0, keys=("ping_max",), read=integer, doc="Pings without an answer.")
    write_deadline_ns: int = option(
        0, keys=("write_deadline",), read=duration, doc="How long a write may take.",
    )
    write_timeout: str = option(
        "default", keys=("write_timeout",), read=write_timeout,
        doc="What then: default, close or retry.",
    )
    # fmt: on


def cluster(value: Value, key: Key, notes: Notes) -> ClusterOptions:
    """Read the cluster's options."""
    expected = "Expected map to define cluster, got"
    entries = mapping(value, f"{expected} {value.type_name}")
    found = ClusterOptions(**read_fields(ClusterOptions, entries, notes))
    old_place = found.authorization.default_permissions
    if old_place is None:
        return found
    where = next(one for name, one in entries.items() if name.lower() == "authorization")
    reason = 'setting "permissions" within cluster authorization block is deprecated'
    notes.warn(where, Key("authorization", "authorization"), reason)
    return found if found.permissions is not None else changed(found, permissions=old_place)


@options_block(frozen=True)
class RemoteGatewayOptions(Block):
    """Another cluster."""

    # fmt: off
    name: str = option("", keys=("name",), read=text, doc="Its name.")
    urls: tuple[str, ...] = option(
        (), keys=("urls", "url"), read=urls("gateway"), secret=True, doc="Where it is.",
    )
    tls: TlsOptions | None = option(
        None, keys=("tls",), read=tls_block(of_servers=True), doc="TLS to it.",
    )
    # fmt: on


def _gateways(value: Value, key: Key, notes: Notes) -> tuple[RemoteGatewayOptions, ...]:
    expected = "Expected gateway entry to be a map/struct, got"
    return tuple(
        RemoteGatewayOptions(
            **read_fields(RemoteGatewayOptions, mapping(one, f"{expected} {one.type_name}"), notes)
        )
        for one in array(value, f"Expected gateways field to be an array, got {value.type_name}")
    )


@options_block(frozen=True)
class GatewayOptions(Block):
    """Clusters joined to one system."""

    shared_keys: ClassVar[dict[str, Reader]] = {"listen": listen("host", "port")}

    # fmt: off
    name: str = option(
        "", keys=("name",), read=name_without_spaces("gateway"), doc="Name of this cluster.",
    )
    host: str = option(
        "0.0.0.0", keys=("host", "net"), read=text, zero_is_default=True,
        doc="Address to listen on.",
    )
    port: int = option(0, keys=("port",), read=integer, doc="Port; 0: none, -1: any free one.")
    authorization: AuthorizationOptions = option(
        AuthorizationOptions(), keys=("authorization",), read=server_authorization("Gateway"),
        doc="What other clusters must know.",
    )
    tls: TlsOptions | None = option(
        None, keys=("tls",), read=tls_block(of_servers=True), doc="TLS between the clusters.",
    )
    advertise: str = option("", keys=("advertise",), read=text, doc="Address that is told.")
    connect_retries: int = option(
        0, keys=("connect_retries",), read=integer, doc="Attempts to reach a cluster.",
    )
    connect_backoff: bool = option(
        False, keys=("connect_backoff",), read=boolean, doc="Wait longer after each attempt.",
    )
    reject_unknown: bool = option(
        False, keys=("reject_unknown_cluster", "reject_unknown"), read=boolean,
        doc="Only the clusters named here.",
    )
    gateways: tuple[RemoteGatewayOptions, ...] = option(
        (), keys=("gateways",), read=_gateways, doc="The other clusters.",
    )
    write_deadline_ns: int = option(
        0, keys=("write_deadline",), read=duration, doc="How long a write may take.",
    )
    write_timeout: str = option(
        "default", keys=("write_timeout",), read=write_timeout, doc="What then.",
    )
    # fmt: on
