"""The page of the server itself: what it was told and what it has counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.monitor.facts import Counters, ServerFacts, Source, WebsocketFacts
from penstock.monitor.jsz import varz_part
from penstock.monitor.rendering import age, number, timestamp, without_empty


def varz(source: Source, requests: Mapping[str, int]) -> dict[str, Any]:
    """Give the page; `requests` is how often each page was asked for."""
    server, counters, now_ns = source.server(), source.counters(), source.now_ns()
    fields = {
        **_settings(server, varz_part(source.jetstream())),
        "start": timestamp(server.start_ns),
        "now": timestamp(now_ns),
        "uptime": age(now_ns - server.start_ns),
        **_counted(counters),
        "http_req_stats": dict(sorted(requests.items())),
        "config_load_time": timestamp(server.config_load_ns),
        "config_digest": server.config_digest,
        "tags": list(server.tags),
        "metadata": dict(sorted(server.metadata.items())),
        "feature_flags": dict(sorted(server.feature_flags.items())),
        "trusted_operators_jwt": [token for token, _ in server.operators],
        "trusted_operators_claim": [claims for _, claims in server.operators],
        "system_account": server.system_account,
        "slow_consumer_stats": by_kind(counters.slow_receivers),
        "stale_connection_stats": by_kind(counters.stale_connections),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }
    return without_empty(
        fields,
        "auth_required", "tls_required", "tls_verify", "max_subscriptions", "write_timeout",
        "tags", "metadata", "feature_flags", "system_account", "tls_cert_not_after",
        "trusted_operators_jwt", "trusted_operators_claim",
    )  # fmt: skip


def by_kind(clients: int) -> dict[str, int]:
    """Spread a count over the kinds of connection; there are only clients here."""
    return {"clients": clients, "routes": 0, "gateways": 0, "leafs": 0}


def _settings(server: ServerFacts, jetstream: dict[str, Any]) -> dict[str, Any]:
    return {
        "server_id": server.id,
        "server_name": server.name,
        "version": server.version,
        "proto": 1,
        "git_commit": server.git_commit,
        "go": server.go,
        "host": server.host,
        "port": server.port,
        "auth_required": server.auth_required,
        "tls_required": server.tls_required,
        "tls_verify": server.tls_verify,
        "max_connections": server.max_connections,
        "max_subscriptions": server.max_subscriptions,
        "ping_interval": server.ping_interval_ns,
        "ping_max": server.ping_max,
        "http_host": server.http_host,
        "http_port": server.http_port,
        "http_base_path": server.http_base_path,
        "https_port": server.https_port,
        "auth_timeout": number(server.auth_timeout_s),
        "max_control_line": server.max_control_line,
        "max_payload": server.max_payload,
        "max_pending": server.max_pending,
        "cluster": {},
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": _websocket(server.websocket) if server.websocket is not None else {},
        "jetstream": jetstream,
        "tls_timeout": number(server.tls_timeout_s),
        "tls_cert_not_after": _end_of(server.certificate_end_ns),
        "write_deadline": server.write_deadline_ns,
        "write_timeout": server.write_timeout,
    }


def _websocket(listener: WebsocketFacts) -> dict[str, Any]:
    fields = {
        "host": listener.host,
        "port": listener.port,
        "advertise": listener.advertise,
        "no_auth_user": listener.no_auth_user,
        "jwt_cookie": listener.jwt_cookie,
        "handshake_timeout": listener.handshake_timeout_ns,
        "auth_timeout": number(listener.auth_timeout_s),
        "no_tls": listener.no_tls,
        "tls_map": listener.maps_certificates,
        "tls_pinned_certs": list(listener.pinned_keys),
        "same_origin": listener.same_origin,
        "allowed_origins": list(listener.allowed_origins),
        "compression": listener.compression,
        "tls_cert_not_after": _end_of(listener.certificate_end_ns),
    }
    return without_empty(fields, *fields)


def _end_of(certificate_end_ns: int) -> str:
    return timestamp(certificate_end_ns) if certificate_end_ns else ""


def _counted(counters: Counters) -> dict[str, Any]:
    received, sent = counters.received, counters.sent
    return {
        "mem": counters.memory_bytes,
        "cores": counters.cores,
        "gomaxprocs": counters.cores,
        "cpu": number(counters.cpu_percent),
        "connections": counters.connections,
        "total_connections": counters.total_connections,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
        "in_msgs": received.msgs,
        "in_bytes": received.bytes,
        "in_client_msgs": received.msgs,
        "in_client_bytes": received.bytes,
        "out_msgs": sent.msgs,
        "out_bytes": sent.bytes,
        "out_client_msgs": sent.msgs,
        "out_client_bytes": sent.bytes,
        "slow_consumers": counters.slow_receivers,
        "stale_connections": counters.stale_connections,
        "stalled_clients": counters.stalled_clients,
        "subscriptions": counters.subscriptions,
    }
