"""Every option of the server, declared once.

`ServerOptions()` has the defaults: clients on port 4222 of all interfaces, nothing else. The
configuration file and the flags override it (`penstock.config.load`). Options are frozen; a reload
makes new ones and compares. Names end in their unit if they have one. Passwords and keys never show
in a repr.

The blocks are declared in the other modules of this package and are all named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from penstock.config.language.parser import Value
from penstock.config.options.accounts import (
    GLOBAL_ACCOUNT,
    AccountLimitsOptions,
    AccountOptions,
    ExportOptions,
    ImportOptions,
    LatencyOptions,
    accounts,
)
from penstock.config.options.authorization import (
    AuthCalloutOptions,
    AuthorizationOptions,
    PermissionsOptions,
    ResponsesOptions,
    UserOptions,
    authorization,
)
from penstock.config.options.clusters import (
    ClusterOptions,
    GatewayOptions,
    cluster,
    name_without_spaces,
    write_timeout,
)
from penstock.config.options.declare import Block, Key, Reader, option, options_block
from penstock.config.options.jetstream import (
    AccountJetStreamOptions,
    JetStreamLimitsOptions,
    JetStreamOptions,
    jetstream,
)
from penstock.config.options.leafnodes import LeafnodesOptions, LeafRemoteOptions
from penstock.config.options.mappings import MappingDestination, Mappings, mappings
from penstock.config.options.tls import TlsOptions, tls_block
from penstock.config.options.transports import MqttOptions, WebsocketOptions
from penstock.config.options.trust import (
    OcspOptions,
    ResolverOptions,
    ocsp,
    ocsp_cache,
    operators,
    preloads,
    resolver,
    trusted_keys,
    trusted_proxies,
)
from penstock.config.options.values import (
    Notes,
    block,
    boolean,
    boolean_map,
    duration,
    duration_text,
    integer,
    integer_within,
    listen,
    text,
    text_map,
    texts,
)
from penstock.limits import MIB
from penstock.text.times import MINUTE_NS, SECOND_NS, format_duration

__all__ = [
    "GLOBAL_ACCOUNT", "SYSTEM_ACCOUNT", "AccountJetStreamOptions", "AccountLimitsOptions",
    "AccountOptions", "AuthCalloutOptions", "AuthorizationOptions", "ClusterOptions",
    "ExportOptions", "GatewayOptions", "ImportOptions", "JetStreamLimitsOptions",
    "JetStreamOptions", "LatencyOptions", "LeafRemoteOptions", "LeafnodesOptions",
    "MappingDestination", "Mappings", "MqttOptions", "OcspOptions", "PermissionsOptions",
    "ResolverOptions", "ResponsesOptions", "ServerOptions", "TlsOptions", "UserOptions",
    "WebsocketOptions",
]  # fmt: skip

SYSTEM_ACCOUNT: Final = "$SYS"
"""The account of the server's own events and services, unless another one is named."""

LAME_DUCK_NS_MIN: Final = 30 * SECOND_NS

_INT32_MAX: Final = 2**31 - 1
_int32 = integer_within(-(2**63), _INT32_MAX, "{key} value is too big")


def _max_connections(value: Value, key: Key, notes: Notes) -> int:
    return integer(value, key, notes) or -1


def _max_sub_tokens(value: Value, key: Key, notes: Notes) -> int:
    number = integer(value, key, notes)
    if number > 0xFF:
        raise value.error(f"{key.spelled} value is too big")
    if number <= 0:
        raise value.error(f"{key.spelled} value can not be negative")
    return number


def _lame_duck_duration(value: Value, key: Key, notes: Notes) -> int:
    found_ns = duration_text(value, key, notes)
    if found_ns < LAME_DUCK_NS_MIN:
        shown = format_duration(found_ns)
        raise value.error(f"invalid lame_duck_duration of {shown}, minimum is 30 seconds")
    return found_ns


def _lame_duck_grace(value: Value, key: Key, notes: Notes) -> int:
    found_ns = duration_text(value, key, notes)
    if found_ns < 0:
        raise value.error("invalid lame_duck_grace_period, needs to be positive")
    return found_ns


def _system_account(value: Value, key: Key, notes: Notes) -> str:
    if not isinstance(value.value, str):
        raise value.error("system account name must be a string")
    return value.value


def _tracing(*fields: str) -> Reader:
    def read(value: Value, key: Key, notes: Notes) -> dict[str, bool]:
        return dict.fromkeys((*fields, "trace"), boolean(value, key, notes))

    return read


@options_block(frozen=True)
class ServerOptions(Block):
    """All options of a server."""

    shared_keys: ClassVar[Mapping[str, Reader]] = {
        "listen": listen("host", "port"),
        "http": listen("http_host", "http_port"),
        "https": listen("http_host", "https_port"),
        "trace_verbose": _tracing("trace_verbose"),
        "trace_headers": _tracing("trace_headers"),
    }

    # fmt: off
    # Where and as whom.
    host: str = option(
        "0.0.0.0", keys=("host", "net"), flags=("-a", "--addr", "--net"), placeholder="host",
        read=text, zero_is_default=True, go_name="Host", doc="Address that clients connect to.",
    )
    port: int = option(
        4222, keys=("port",), flags=("-p", "--port"), placeholder="port", read=integer,
        zero_is_default=True, go_name="Port", doc="Port for clients; -1: any free one.",
    )
    server_name: str = option(
        "", keys=("server_name",), flags=("-n", "--name", "--server_name"), placeholder="name",
        read=name_without_spaces("server"), go_name="ServerName",
        doc="Name of the server; its identity if not given.",
    )
    client_advertise: str = option(
        "", keys=("client_advertise",), flags=("--client_advertise",), placeholder="host:port",
        read=text, reloadable=True, go_name="ClientAdvertise",
        doc="Address that clients of other servers are told.",
    )
    http_host: str = option(
        "", go_name="HTTPHost",
        doc="Address of the monitoring pages; that of clients if not given.",
    )
    http_port: int = option(
        0, keys=("http_port", "monitor_port"), flags=("-m", "--http_port"), placeholder="port",
        read=integer, go_name="HTTPPort",
        doc="Port of the monitoring pages; 0: none, -1: any free one.",
    )
    https_port: int = option(
        0, keys=("https_port",), flags=("-ms", "--https_port"), placeholder="port", read=integer,
        go_name="HTTPSPort", doc="Port of the monitoring pages over TLS; 0: none, -1: any.",
    )
    http_base_path: str = option(
        "", keys=("http_base_path",), read=text, go_name="HTTPBasePath",
        doc="What the paths of the monitoring pages start with.",
    )
    server_tags: tuple[str, ...] = option(
        (), keys=("server_tags",), read=texts, reloadable=True, go_name="Tags",
        doc="Tags that placement of streams goes by.",
    )
    server_metadata: dict[str, str] = option(
        {}, keys=("server_metadata",), read=text_map, reloadable=True, go_name="Metadata",
        doc="What else to tell about the server.",
    )
    feature_flags: dict[str, bool] = option(
        {}, keys=("feature_flags",), read=boolean_map, go_name="FeatureFlags",
        doc="Features to turn on or off before their time.",
    )

    # Bounds.
    max_payload: int = option(
        1 * MIB, keys=("max_payload",), read=_int32, reloadable=True, zero_is_default=True,
        go_name="MaxPayload", doc="Bytes of the largest message, headers included.",
    )
    max_control_line: int = option(
        4096, keys=("max_control_line",), read=_int32, reloadable=True, zero_is_default=True,
        go_name="MaxControlLine", doc="Bytes of the longest protocol line.",
    )
    max_pending: int = option(
        64 * MIB, keys=("max_pending",), read=integer, zero_is_default=True, go_name="MaxPending",
        doc="Bytes that may wait for a client before it is cut off as too slow.",
    )
    max_connections: int = option(
        64 * 1024, keys=("max_connections", "max_conn"), read=_max_connections, reloadable=True,
        zero_is_default=True, go_name="MaxConn", doc="Clients at a time; 0 or -1: any number.",
    )
    max_subscriptions: int = option(
        0, keys=("max_subscriptions", "max_subs"), read=integer, go_name="MaxSubs",
        doc="Subscriptions of a client; 0: any number.",
    )
    max_sub_tokens: int = option(
        0, keys=("max_sub_tokens", "max_subscription_tokens"), read=_max_sub_tokens,
        go_name="MaxSubTokens", doc="Tokens of a subject subscribed to; 0: any number.",
    )
    max_traced_msg_len: int = option(
        0, keys=("max_traced_msg_len",), flags=("--max_traced_msg_len",), placeholder="bytes",
        read=integer, reloadable=True, go_name="MaxTracedMsgLen",
        doc="Bytes of a message that a trace shows; 0: all.",
    )
    max_closed_clients: int = option(
        10_000, keys=("max_closed_clients",), read=integer, zero_is_default=True,
        go_name="MaxClosedClients", doc="Closed connections that the monitoring pages remember.",
    )
    ping_interval_ns: int = option(
        2 * MINUTE_NS, keys=("ping_interval",), read=duration, reloadable=True,
        zero_is_default=True, go_name="PingInterval", doc="How often a silent client is pinged.",
    )
    ping_max: int = option(
        2, keys=("ping_max",), read=integer, reloadable=True, zero_is_default=True,
        go_name="MaxPingsOut", doc="Pings without an answer before a client is given up.",
    )
    write_deadline_ns: int = option(
        10 * SECOND_NS, keys=("write_deadline",), read=duration, reloadable=True,
        zero_is_default=True, go_name="WriteDeadline",
        doc="How long a write to a client may take before it is cut off as too slow.",
    )
    write_timeout: str = option(
        "default", keys=("write_timeout",), read=write_timeout, go_name="WriteTimeout",
        doc="What happens then: default, close or retry.",
    )
    lame_duck_duration_ns: int = option(
        2 * MINUTE_NS, keys=("lame_duck_duration",), read=_lame_duck_duration,
        zero_is_default=True, go_name="LameDuckDuration",
        doc="Over how long clients are let go before the server ends.",
    )
    lame_duck_grace_ns: int = option(
        10 * SECOND_NS, keys=("lame_duck_grace_period",), read=_lame_duck_grace,
        zero_is_default=True, go_name="LameDuckGracePeriod",
        doc="How long clients are left alone after they were told.",
    )
    no_header_support: bool = option(
        False, keys=("no_header_support",), read=boolean, go_name="NoHeaderSupport",
        doc="Do without message headers.",
    )
    no_fast_producer_stall: bool = option(
        False, keys=("no_fast_producer_stall",), read=boolean, reloadable=True,
        go_name="NoFastProducerStall",
        doc="Drop for slow clients at once, and never slow down who publishes.",
    )
    disable_sublist_cache: bool = option(
        False, keys=("disable_sublist_cache", "no_sublist_cache"), read=boolean,
        go_name="NoSublistCache", doc="Accepted for the sake of old files; the cache stays.",
    )
    proxy_protocol: bool = option(
        False, keys=("proxy_protocol",), read=boolean, go_name="ProxyProtocol",
        doc="Expect the PROXY protocol from a load balancer.",
    )

    # Who may connect.
    authorization: AuthorizationOptions = option(
        AuthorizationOptions(), keys=("authorization",), read=authorization, reloadable=True,
        go_name="Authorization", doc="Who may connect where no account says otherwise.",
    )
    accounts: dict[str, AccountOptions] = option(
        {}, keys=("accounts",), read=accounts, reloadable=True, go_name="Accounts",
        doc="Subject spaces that are apart, and their users.",
    )
    mappings: Mappings = option(
        {}, keys=("mappings", "maps"), read=mappings, reloadable=True, go_name="Accounts",
        doc="Subjects of the global account that are published as others.",
    )
    no_auth_user: str = option(
        "", keys=("no_auth_user",), read=text, go_name="NoAuthUser",
        doc="The user of clients that do not say who they are.",
    )
    default_sentinel: str = option(
        "", keys=("default_sentinel",), read=text, reloadable=True, go_name="DefaultSentinel",
        doc="The JWT of clients that do not say who they are.",
    )
    system_account: str = option(
        "", keys=("system_account", "system"), read=_system_account, go_name="SystemAccount",
        doc="Account of the server's own events; $SYS if not given.",
    )
    no_system_account: bool = option(
        False, keys=("no_system_account", "no_system", "no_sys_acc"), read=boolean,
        go_name="NoSystemAccount", doc="Do without a system account.",
    )
    trusted_proxies: tuple[str, ...] = option(
        (), keys=("proxies",), read=trusted_proxies, reloadable=True, go_name="Proxies",
        doc="Public keys of proxies that may speak for clients.",
    )
    operators: tuple[str, ...] = option(
        (), read=operators, go_name="TrustedOperators",
        keys=("operator", "operators", "roots", "root", "root_operators", "root_operator"),
        doc="JWTs of the operators whose accounts are served, or files with them.",
    )
    trusted_keys: tuple[str, ...] = option(
        (), keys=("trusted_keys", "trusted"), read=trusted_keys, go_name="TrustedKeys",
        doc="Public keys of the operators whose accounts are served.",
    )
    resolver: ResolverOptions | None = option(
        None, keys=("resolver", "account_resolver", "accounts_resolver"), read=resolver,
        reloadable=True, go_name="AccountResolver", doc="Where account JWTs come from.",
    )
    resolver_tls: TlsOptions | None = option(
        None, keys=("resolver_tls",), read=tls_block(), reloadable=True,
        go_name="AccountResolverTLSConfig", doc="TLS to a resolver at a URL.",
    )
    resolver_preload: dict[str, str] = option(
        {}, keys=("resolver_preload",), read=preloads, reloadable=True, secret=True,
        go_name="resolverPreloads", doc="Account JWTs by public key.",
    )
    resolver_pinned_accounts: tuple[str, ...] = option(
        (), keys=("resolver_pinned_accounts",), read=texts, reloadable=True,
        go_name="resolverPinnedAccounts", doc="Accounts that are served whatever a resolver says.",
    )

    # TLS.
    tls: TlsOptions | None = option(
        None, keys=("tls",), read=tls_block(), reloadable=True, go_name="TLSConfig",
        doc="TLS for clients.",
    )
    allow_non_tls: bool = option(
        False, keys=("allow_non_tls",), read=boolean, go_name="AllowNonTLS",
        doc="Let clients choose whether to use TLS.",
    )
    ocsp: OcspOptions | None = option(
        None, keys=("ocsp",), read=ocsp, reloadable=True, go_name="OCSPConfig",
        doc="Proof for clients that the certificate was not revoked.",
    )
    ocsp_cache: bool = option(
        True, keys=("ocsp_cache",), read=ocsp_cache, reloadable=True, go_name="OCSPCacheConfig",
        doc="Remember what responders said of peers' certificates.",
    )

    # What else is served.
    websocket: WebsocketOptions | None = option(
        None, keys=("websocket", "ws"), read=block(WebsocketOptions, "websocket"),
        go_name="Websocket", doc="A listener for WebSocket clients.",
    )
    jetstream: JetStreamOptions | None = option(
        None, keys=("jetstream",), read=jetstream, reloadable=True, go_name="JetStream",
        doc="Streams.",
    )
    store_dir: str = option(
        "", keys=("store_dir", "storedir"), read=text, go_name="StoreDir",
        doc="Folder of the streams, if not given in `jetstream`.",
    )
    default_js_domain: dict[str, str] = option(
        {}, keys=("default_js_domain",), read=text_map, go_name="JsAccDefaultDomain",
        doc="Domains of accounts that have none of their own.",
    )
    cluster: ClusterOptions | None = option(
        None, keys=("cluster",), read=cluster, reloadable=True, go_name="Cluster",
        doc="Other servers that serve the same clients.",
    )
    leafnodes: LeafnodesOptions | None = option(
        None, keys=("leafnodes", "leaf"), read=block(LeafnodesOptions, "leafnodes"),
        reloadable=True, go_name="LeafNode", doc="Servers at the edge.",
    )
    gateway: GatewayOptions | None = option(
        None, keys=("gateway",), read=block(GatewayOptions, "gateway"), go_name="Gateway",
        doc="Other clusters.",
    )
    mqtt: MqttOptions | None = option(
        None, keys=("mqtt",), read=block(MqttOptions, "mqtt"), reloadable=True, go_name="MQTT",
        doc="A listener for MQTT clients.",
    )
    connect_error_reports: int = option(
        3600, keys=("connect_error_reports",), read=integer, reloadable=True,
        zero_is_default=True, go_name="ConnectErrorReports",
        doc="Of how many failed attempts to connect one is logged.",
    )
    reconnect_error_reports: int = option(
        1, keys=("reconnect_error_reports",), read=integer, reloadable=True, zero_is_default=True,
        go_name="ReconnectErrorReports",
        doc="Of how many failed attempts to connect again one is logged.",
    )

    # The process.
    log_file: str = option(
        "", keys=("log_file", "logfile"), flags=("-l", "--log"), placeholder="file", read=text,
        reloadable=True, go_name="LogFile", doc="File of the log; standard error if not given.",
    )
    logtime: bool = option(
        True, keys=("logtime",), flags=("-T", "--logtime"), read=boolean, reloadable=True,
        go_name="Logtime", doc="Start log lines with the time.",
    )
    logtime_utc: bool = option(
        False, keys=("logtime_utc",), flags=("--logtime_utc",), read=boolean, reloadable=True,
        go_name="LogtimeUTC", doc="Give that time in UTC.",
    )
    debug: bool = option(
        False, keys=("debug",), flags=("-D", "--debug"), read=boolean, reloadable=True,
        go_name="Debug", doc="Log what helps to find faults.",
    )
    trace: bool = option(
        False, keys=("trace",), flags=("-V", "--trace"), read=boolean, reloadable=True,
        go_name="Trace", doc="Log the protocol as it is spoken.",
    )
    trace_verbose: bool = option(
        False, reloadable=True, go_name="TraceVerbose",
        doc="Trace the system account too.",
    )
    trace_headers: bool = option(
        False, reloadable=True, go_name="TraceHeaders", doc="Trace headers, not payloads.",
    )
    syslog: bool = option(
        False, keys=("syslog",), flags=("-s", "--syslog"), read=boolean, reloadable=True,
        go_name="Syslog", doc="Log to the system's log.",
    )
    remote_syslog: str = option(
        "", keys=("remote_syslog",), flags=("-r", "--remote_syslog"), placeholder="url",
        read=text, reloadable=True, go_name="RemoteSyslog",
        doc="Log to the system's log of another machine, as udp://host:port.",
    )
    log_size_limit: int = option(
        0, keys=("log_size_limit", "logfile_size_limit"), flags=("--log_size_limit",),
        placeholder="bytes", read=integer, go_name="LogSizeLimit",
        doc="Bytes after which the log goes on in a new file; 0: never.",
    )
    log_max_files: int = option(
        0, keys=("log_max_num", "logfile_max_num"), read=integer, go_name="LogMaxFiles",
        doc="Log files to keep; 0: all.",
    )
    pid_file: str = option(
        "", keys=("pid_file", "pidfile"), flags=("-P", "--pid"), placeholder="file", read=text,
        reloadable=True, go_name="PidFile", doc="File for the number of the process.",
    )
    ports_file_dir: str = option(
        "", keys=("ports_file_dir",), flags=("--ports_file_dir",), placeholder="dir", read=text,
        reloadable=True, go_name="PortsFileDir", doc="Folder for a file with the ports in use.",
    )
    prof_port: int = option(
        0, keys=("prof_port",), flags=("--profile",), placeholder="port", read=integer,
        go_name="ProfPort", doc="Port for profiling; 0: none.",
    )
    prof_block_rate: int = option(
        0, keys=("prof_block_rate",), read=integer, reloadable=True, go_name="ProfBlockRate",
        doc="Accepted for the sake of old files.",
    )
    # fmt: on

    @property
    def system_account_name(self) -> str:
        """The account of the server's own events, "" if there is none."""
        if self.system_account:
            return self.system_account
        return "" if self.no_system_account else SYSTEM_ACCOUNT
