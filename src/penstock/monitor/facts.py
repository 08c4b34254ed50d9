"""What monitoring knows about a running server and its JetStream, as plain data.

Pages read a `Source`, which the server implements over its live objects. Invariant: no fact holds a
secret; a user's name is no secret, a password, token or nonce is. Documents (states, consumers and
configurations) are as the API answers them. What costs something to find out is a function, called
only where a page shows it.

One thread: the event loop's; facts are made for each request and are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from penstock.protocol.pipeline_reports import FlowReport

Document = dict[str, Any]


class HistogramFacts(msgspec.Struct, frozen=True):
    """How often which values came; `counts` has one more than `bounds`, for what is above all."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    total: float = 0.0


class StreamFacts(msgspec.Struct, frozen=True):
    """One stream that is served. `failure` is why it takes no more messages, "" where it does."""

    name: str
    created: str
    messages: int
    bytes: int
    consumer_count: int
    volatile_messages: int
    """Stored, and not durable yet."""
    damage_count: int
    lost_messages: int
    failure: str
    state: Callable[[], Document]
    config: Callable[[], Document]
    mirror: Callable[[], Document | None]
    sources: Callable[[], list[Document]]
    consumers: Callable[[], Sequence[Document]]
    offline_consumers: Mapping[str, str] = {}
    """Consumers that cannot be served, with reasons."""


class JetStreamAccountFacts(msgspec.Struct, frozen=True):
    """One account that has JetStream; `offline` are streams that cannot be served, with reasons."""

    name: str
    memory_bytes: int
    storage_bytes: int
    memory_bytes_max: int
    """-1: no bound of its own."""
    storage_bytes_max: int
    api_total: int
    api_errors: int
    streams: Sequence[StreamFacts]
    offline: Mapping[str, str]
    tag: str = ""
    """What people call it, where its name is a key."""


class FlowFacts(msgspec.Struct, frozen=True):
    """A flow of a pipeline, and its last report."""

    account: str
    pipeline: str
    flow: str
    age_ns: int
    """Time since that report came."""
    report: FlowReport


class JetStreamFacts(msgspec.Struct, frozen=True):
    """JetStream of one server."""

    memory_bytes_max: int
    storage_bytes_max: int
    store_dir: str
    sync_interval_ns: int
    sync_always: bool
    domain: str
    unique_tag: str
    strict: bool
    limits: Document
    api_level: int
    memory_bytes_reserved: int
    storage_bytes_reserved: int
    leader: str
    accounts: Sequence[JetStreamAccountFacts]
    commit_messages: HistogramFacts
    commit_seconds: HistogramFacts
    flows: Sequence[FlowFacts]
    """Of pipelines that reported lately."""
    reports_ignored: int


class Counts(msgspec.Struct, frozen=True):
    """Messages and bytes in one direction."""

    msgs: int = 0
    bytes: int = 0


class SubscriptionFacts(msgspec.Struct, frozen=True):
    """One subscription. `cid` is the connection's, or that of a part of the server."""

    account: str
    subject: str
    queue: str
    sid: str
    delivered: int
    max_messages: int
    cid: int
    # What people call the account.
    account_tag: str = ""


class ConnectionFacts(msgspec.Struct, frozen=True):
    """One connection, open or closed (`stop_ns` and `reason` are set then)."""

    cid: int
    type: str
    ip: str
    port: int
    start_ns: int
    last_activity_ns: int
    rtt_ns: int
    pending_bytes: int
    stalls: int
    received: Counts
    sent: Counts
    name: str
    lang: str
    version: str
    tls_version: str
    tls_cipher: str
    tls_first: bool
    user: str
    account: str
    subscription_count: int
    subscriptions: Callable[[], Sequence[SubscriptionFacts]]
    stop_ns: int = 0
    reason: str = ""
    # Of a client that came with a JWT, which is left out where it is all that is asked for.
    jwt: str = ""
    issuer_key: str = ""
    tags: tuple[str, ...] = ()
    # What people call the account.
    account_tag: str = ""


class SublistFacts(msgspec.Struct, frozen=True):
    """How the subscriptions of one account, or of all, are doing."""

    count: int = 0
    cached: int = 0
    inserts: int = 0
    removes: int = 0
    matches: int = 0
    fanout_max: int = 0
    fanout_total: int = 0

    def __add__(self, other: SublistFacts) -> SublistFacts:
        return SublistFacts(
            self.count + other.count,
            self.cached + other.cached,
            self.inserts + other.inserts,
            self.removes + other.removes,
            self.matches + other.matches,
            max(self.fanout_max, other.fanout_max),
            self.fanout_total + other.fanout_total,
        )


class ExportFacts(msgspec.Struct, frozen=True):
    """What an account offers: a stream or a service, and how that answers."""

    kind: str
    subject: str
    response: str = ""
    accounts: tuple[str, ...] = ()
    needs_token: bool = False
    # When activations were revoked, in Unix seconds.
    revocations: Mapping[str, int] = msgspec.field(default_factory=dict)


class ImportFacts(msgspec.Struct, frozen=True):
    """What an account takes from another, and what it calls it."""

    kind: str
    account: str
    subject: str
    local_subject: str
    shares_client: bool = False


class SharedFacts(msgspec.Struct, frozen=True):
    """What an account shares, and its mappings: (subject, percent, cluster) by source."""

    exports: tuple[ExportFacts, ...] = ()
    imports: tuple[ImportFacts, ...] = ()
    mappings: Mapping[str, tuple[tuple[str, int, str], ...]] = msgspec.field(default_factory=dict)


class ClaimFacts(msgspec.Struct, frozen=True):
    """What an account's JWT says; `issues` are (description, blocking, only now)."""

    jwt: str
    issuer: str
    tags: tuple[str, ...]
    decoded: Mapping[str, Any]
    issues: tuple[tuple[str, bool, bool], ...]
    # When users were revoked, in Unix seconds.
    revocations: Mapping[str, int]
    is_expired: bool
    is_complete: bool


class AccountFacts(msgspec.Struct, frozen=True):
    """One account. `received` is what its members sent to the server, `sent` what they got."""

    name: str
    is_system: bool
    client_count: int
    leafnode_count: int
    received: Counts
    sent: Counts
    slow_receivers: int
    subscription_count: int
    update_ns: int
    # Subjects of the system account's services that members may ask, and what these stand for.
    services: tuple[tuple[str, str], ...]
    sublist: Callable[[], SublistFacts]
    # What people call it.
    tag: str = ""
    has_jetstream: bool = False
    claims: Callable[[], ClaimFacts | None] = lambda: None
    shared: Callable[[], SharedFacts] = SharedFacts


class WebsocketFacts(msgspec.Struct, frozen=True):
    """What the WebSocket listener was told."""

    host: str
    port: int
    advertise: str
    no_auth_user: str
    jwt_cookie: str
    handshake_timeout_ns: int
    auth_timeout_s: float
    no_tls: bool
    maps_certificates: bool
    pinned_keys: tuple[str, ...]
    same_origin: bool
    allowed_origins: tuple[str, ...]
    compression: bool
    certificate_end_ns: int


class ServerFacts(msgspec.Struct, frozen=True):
    """Who the server is and what it was told."""

    id: str
    name: str
    version: str
    git_commit: str
    go: str
    host: str
    port: int
    auth_required: bool
    tls_required: bool
    tls_verify: bool
    max_connections: int
    max_subscriptions: int
    ping_interval_ns: int
    ping_max: int
    http_host: str
    http_port: int
    http_base_path: str
    https_port: int
    auth_timeout_s: float
    tls_timeout_s: float
    max_control_line: int
    max_payload: int
    max_pending: int
    write_deadline_ns: int
    write_timeout: str
    start_ns: int
    config_load_ns: int
    config_digest: str
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    feature_flags: Mapping[str, bool]
    system_account: str
    certificate_end_ns: int
    websocket: WebsocketFacts | None
    has_jetstream: bool
    domain: str
    # The JWTs of trusted operators, and what they say.
    operators: tuple[tuple[str, Mapping[str, Any]], ...] = ()


class TurnFacts(msgspec.Struct, frozen=True):
    """How long the turns of the event loop were since the server started."""

    turns: int = 0
    long_turns: int = 0
    """Those that lasted longer than a turn may."""

    longest_ns: int = 0


class Counters(msgspec.Struct, frozen=True):
    """What the server has counted since it started, and how it is now."""

    connections: int
    total_connections: int
    received: Counts
    sent: Counts
    slow_receivers: int
    stale_connections: int
    stalled_clients: int
    subscriptions: int
    active_accounts: int
    memory_bytes: int
    cpu_percent: float
    cpu_seconds: float
    cores: int
    turns: TurnFacts = TurnFacts()


class Source(Protocol):
    """The running server, as far as monitoring looks at it."""

    def now_ns(self) -> int:
        """Return the time, in Unix nanoseconds."""
        ...

    def server(self) -> ServerFacts:
        """Return who the server is and how it is configured."""
        ...

    def counters(self) -> Counters:
        """Return what the server has counted."""
        ...

    def open_connections(self) -> Iterable[ConnectionFacts]:
        """Return the connections that are open."""
        ...

    def closed_connections(self) -> Iterable[ConnectionFacts]:
        """Return the connections that closed last, the oldest first."""
        ...

    def accounts(self) -> Sequence[AccountFacts]:
        """Return the accounts."""
        ...

    def subscriptions(self, account: str) -> Iterable[SubscriptionFacts]:
        """Return the subscriptions of an account."""
        ...

    def jetstream(self) -> JetStreamFacts | None:
        """Return what is known of JetStream; None where it is off."""
        ...
