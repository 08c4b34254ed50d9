"""The running server as the source of monitoring's facts, and the ports of the monitoring pages.

`ServerSource` makes facts of the live objects when a page asks for them; it changes nothing. Facts
of connections and accounts are made in `penstock.monitor`, those of JetStream in `jetstream.facts`.

Thread: the event loop's.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config.options.values import changed, join_host_port
from penstock.errors import UsageError
from penstock.monitor.connz import open_facts, subscription_facts
from penstock.monitor.facts import (
    AccountFacts,
    ClaimFacts,
    ConnectionFacts,
    Counters,
    Counts,
    JetStreamFacts,
    ServerFacts,
    SharedFacts,
    SublistFacts,
    SubscriptionFacts,
    TurnFacts,
)
from penstock.server.version import GIT_COMMIT, GO_VERSION, NATS_VERSION

if TYPE_CHECKING:
    from penstock.monitor.http import HttpServer
    from penstock.server.server import Server

FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}
"""The reference server's feature flags with their defaults."""

CPU_WINDOW_S = 1.0
"""The share of a processor is measured over at least this long."""


class ServerSource:
    """The facts of one server; see the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cpu_percent = 0.0
        self._cpu_seen_s = (server.clock.monotonic_ns() / 1e9, time.process_time())

    def now_ns(self) -> int:
        """Return the time in Unix nanoseconds."""
        return self._server.clock.now_ns()

    def server(self) -> ServerFacts:
        """Return the identity, addresses and limits of the server."""
        server, options = self._server, self._server.options
        tls, system = options.tls, server.identities.accounts.system_account
        host, port = server.advertised
        return ServerFacts(
            id=server.server_id,
            name=server.name,
            version=NATS_VERSION,
            git_commit=GIT_COMMIT,
            go=GO_VERSION,
            host=host,
            port=port,
            auth_required=server.identities.asks_for_credentials,
            tls_required=tls is not None and not options.allow_non_tls,
            tls_verify=tls is not None and (tls.verify or tls.verify_and_map),
            max_connections=options.max_connections,
            max_subscriptions=options.max_subscriptions,
            ping_interval_ns=options.ping_interval_ns,
            ping_max=options.ping_max,
            http_host=options.http_host,
            http_port=options.http_port,
            http_base_path=options.http_base_path,
            https_port=options.https_port,
            auth_timeout_s=options.authorization.timeout_s,
            tls_timeout_s=tls.timeout_s if tls is not None else 2.0,
            max_control_line=options.max_control_line,
            max_payload=options.max_payload,
            max_pending=options.max_pending,
            write_deadline_ns=options.write_deadline_ns,
            write_timeout=options.write_timeout if options.write_timeout != "default" else "",
            start_ns=server.start_ns,
            config_load_ns=server.config_load_ns,
            config_digest=server.config_digest,
            tags=options.server_tags,
            metadata=options.server_metadata,
            feature_flags=FEATURE_FLAGS | options.feature_flags,
            system_account=system.name if system is not None else "",
            certificate_end_ns=server.tls.certificate_end_ns if server.tls is not None else 0,
            websocket=server.websockets.facts(),
            has_jetstream=server.jetstream is not None,
            domain=server.jetstream.domain if server.jetstream is not None else "",
            operators=_operators(options.operators),
        )

    def counters(self) -> Counters:
        """Return the counters."""
        server, hub = self._server, self._server.hub
        accounts = list(server.identities.accounts)
        return Counters(
            connections=len(server.clients.connections),
            total_connections=server.clients.total_connections,
            received=Counts(hub.in_msgs, hub.in_bytes),
            sent=Counts(hub.out_msgs, hub.out_bytes),
            slow_receivers=server.clients.slow_receivers,
            stale_connections=server.clients.stale_connections,
            stalled_clients=server.clients.stalls,
            subscriptions=sum(account.sublist.count for account in accounts),
            active_accounts=sum(account.client_count > 0 for account in accounts),
            memory_bytes=_memory_bytes(),
            cpu_percent=self._measured_cpu(),
            cpu_seconds=time.process_time(),
            cores=len(os.sched_getaffinity(0)),
            turns=TurnFacts(server.turns.turns, server.turns.long_turns, server.turns.longest_ns),
        )

    def _measured_cpu(self) -> float:
        now_s, used_s = self._server.clock.monotonic_ns() / 1e9, time.process_time()
        before_s, before_used_s = self._cpu_seen_s
        if now_s - before_s >= CPU_WINDOW_S:
            self._cpu_percent = round((used_s - before_used_s) / (now_s - before_s) * 100, 1)
            self._cpu_seen_s = (now_s, used_s)
        return self._cpu_percent

    def open_connections(self) -> Iterable[ConnectionFacts]:
        """Return the open connections."""
        return [open_facts(each) for each in self._server.clients.all()]

    def closed_connections(self) -> Iterable[ConnectionFacts]:
        """Return the connections that closed last, the oldest first."""
        return self._server.clients.closed

    def accounts(self) -> Sequence[AccountFacts]:
        """Return all accounts."""
        return [self.account(each) for each in self._server.identities.accounts]

    def account(self, account: Any) -> AccountFacts:
        """Return the facts of one account."""
        traffic, service = account.traffic(), self._server.jetstream
        return AccountFacts(
            name=account.name,
            is_system=account.is_system,
            client_count=account.client_count,
            leafnode_count=account.leafnode_count,
            received=Counts(traffic.in_msgs, traffic.in_bytes),
            sent=Counts(traffic.out_msgs, traffic.out_bytes),
            slow_receivers=account.slow_receivers,
            subscription_count=account.sublist.count,
            update_ns=self._server.config_load_ns,
            services=self._server.system.offered_to(account),
            sublist=lambda: _sublist(account, traffic.in_msgs),
            tag=account.name_tag,
            has_jetstream=service is not None and account.name in service.accounts,
            claims=lambda: self._claims(account.name),
            shared=lambda: self._shared(account.name),
        )

    def _shared(self, name: str) -> SharedFacts:
        identities = self._server.identities
        options = identities.declared.get(name)
        if options is None:
            return SharedFacts()
        from penstock.monitor.account_facts import shared_facts

        known = identities.jwt_accounts.known(name) if identities.jwt_accounts is not None else None
        return shared_facts(options, known.claims if known is not None else None)

    def _claims(self, name: str) -> ClaimFacts | None:
        claimed = self._server.identities.jwt_accounts
        account = claimed.known(name) if claimed is not None else None
        if account is None:
            return None
        # A server without operators starts without loading what is about them.
        from penstock.monitor.account_facts import claim_facts

        return claim_facts(account, self.now_ns() // 10**9)

    def jetstream(self) -> JetStreamFacts | None:
        """Return the facts of JetStream, or None if it is off."""
        service = self._server.jetstream
        if service is None:
            return None
        # A server without JetStream starts without loading what only that needs.
        from penstock.server.jetstream.facts import jetstream_facts

        return jetstream_facts(service, self._tag_of)

    def _tag_of(self, name: str) -> str:
        found = self._server.identities.accounts.find(name)
        return found.name_tag if found is not None else ""

    def subscriptions(self, account: str) -> Iterator[SubscriptionFacts]:
        """Yield the subscriptions of an account."""
        found = self._server.identities.accounts.find(account)
        if found is not None:
            for each in found.sublist.subscriptions():
                yield subscription_facts(each, found)


def _sublist(account: Any, matches: int) -> SublistFacts:
    inserts, removes, cached, fanout_max, fanout_total = account.sublist.statistics()
    return SublistFacts(
        account.sublist.count, cached, inserts, removes, matches, fanout_max, fanout_total
    )


def _operators(tokens: tuple[str, ...]) -> tuple[tuple[str, dict[str, Any]], ...]:
    if not tokens:
        return ()
    # A server without operators starts without loading what is about them.
    from penstock.protocol.jwt import decode_token

    return tuple((each, decode_token(each).claims) for each in tokens)


def _memory_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Monitoring:
    """The monitoring ports of one server: none, plain, encrypted or both."""

    def __init__(self, server: Server, source: ServerSource) -> None:
        self._server = server
        self._source = source
        self._ports: list[HttpServer] = []
        self.requests: dict[str, int] = {}

    async def start(self) -> None:
        """Listen on the configured ports; raise OSError or UsageError."""
        options = self._server.options
        if not options.http_port and not options.https_port:
            return
        if options.http_port and options.https_port:
            ports = f"HTTP ({options.http_port}) and HTTPs ({options.https_port}) ports"
            raise UsageError(f"Can't start monitoring: can't specify both {ports}")
        if options.https_port and self._server.tls is None:
            raise UsageError("Can't start monitoring: TLS cert and key required for HTTPS")
        # A server without monitoring starts without loading what only monitoring needs.
        from penstock.monitor.http import HttpServer
        from penstock.monitor.pages import Pages

        pages = Pages(self._source, options.http_base_path)
        self.requests = pages.requests
        for name, port in (("http", options.http_port), ("https", options.https_port)):
            if not port:
                continue
            terms = self._server.tls if name == "https" else None
            opened = HttpServer(pages, self._server.log, clock=self._server.clock)
            try:
                listening = self._server.sockets.take(options.http_host, port)
                await opened.start(listening, terms.context if terms else None)
            except OSError:
                await self.stop()
                raise
            self._ports.append(opened)
            # A port of -1 is replaced by the port that was bound.
            self._server.options = changed(self._server.options, **{f"{name}_port": opened.port})
            where = join_host_port(options.http_host, opened.port)
            self._server.log("INF", f"Starting {name} monitor on {where}")

    async def stop(self) -> None:
        """Stop listening."""
        for opened in self._ports:
            await opened.stop()
        self._ports.clear()
