"""The pages of the server itself: /varz, /stacksz, /debug/vars, and profiles.

/varz shows the server's settings and what it has counted. Stacks name code and never values, so
nothing that a client sent is in them. Of the command line only the first word is shown: passwords
may stand in it.

One thread: the event loop's; it looks at the others without stopping them. Called by
`monitor.pages` and by the services of the system account.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.limits import STACKS_TASKS_MAX
from penstock.monitor.facts import Counters, ServerFacts, Source, TurnFacts, WebsocketFacts
from penstock.monitor.jsz import varz_part
from penstock.monitor.query import age, number, timestamp, without_empty
from penstock.text.quoting import quoted


def varz(source: Source, requests: Mapping[str, int]) -> dict[str, Any]:
    """Return the page; `requests` counts the requests of each page."""
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
        # The reference server has no event loop: this is ours.
        "event_loop": _event_loop(counters.turns),
    }
    return without_empty(
        fields,
        "auth_required", "tls_required", "tls_verify", "max_subscriptions", "write_timeout",
        "tags", "metadata", "feature_flags", "system_account", "tls_cert_not_after",
        "trusted_operators_jwt", "trusted_operators_claim",
    )  # fmt: skip


def by_kind(clients: int) -> dict[str, int]:
    """Return a count by kind of connection; there are only clients here."""
    return {"clients": clients, "routes": 0, "gateways": 0, "leafs": 0}


def _event_loop(turns: TurnFacts) -> dict[str, int]:
    return {
        "turns": turns.turns,
        "long_turns": turns.long_turns,
        "longest_turn": turns.longest_ns,
    }


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


def stacks() -> str:
    """Return the stack of each thread and of each task of the event loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {ident} [{names.get(ident, 'unknown')}]:\n{lines}")
    try:
        tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    except RuntimeError:
        tasks = []
    for task in tasks[:STACKS_TASKS_MAX]:
        lines = "".join(
            line for frame in task.get_stack() for line in traceback.format_stack(frame, limit=1)
        )
        parts.append(f"task {task.get_name()}:\n{lines}")
    return "\n".join(parts)


def variables(source: Source) -> dict[str, Any]:
    """Return what Go's expvar shows: the program, and its memory in bytes."""
    collections = sum(each["collections"] for each in gc.get_stats())
    in_use = source.counters().memory_bytes
    return {
        "cmdline": sys.argv[:1],
        "memstats": {"Alloc": in_use, "Sys": in_use, "NumGC": collections},
    }


class ProfilezOptions(msgspec.Struct, frozen=True):
    """The profile that is wanted."""

    name: str = ""


def profilez(options: ProfilezOptions) -> dict[str, Any]:
    """Return a profile in base64: there is only that of stacks, by Go's name for it."""
    if not options.name:
        return {"profile": None, "error": "Profile name not specified"}
    if options.name != "goroutine":
        return {"profile": None, "error": f"Profile {quoted(options.name)} not found"}
    return {"profile": base64.b64encode(stacks().encode("utf-8", "replace")).decode()}
