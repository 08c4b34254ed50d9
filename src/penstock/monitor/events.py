"""What the server publishes in its system account, as plain data: advisories, statistics, answers.

Every message but a few carries a block about the server that sent it, with a running number and the
time. No secret of a client is in any of them. Pure, but for the numbers that `Envelope` counts.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from penstock.monitor.accountz import account_stat
from penstock.monitor.facts import AccountFacts, ConnectionFacts, Counts, Source
from penstock.monitor.jsz import varz_part
from penstock.monitor.query import number, timestamp, without_empty
from penstock.monitor.varz import by_kind

JETSTREAM_FLAGS = 0b111
"""What the reference server says that it can where it has JetStream: streams, binary snapshots,
groups outside of the system account."""

_ADVISORY = "io.nats.server.advisory.v1."


class Envelope:
    """Builds the messages of one server."""

    def __init__(self, source: Source, random_bytes: Callable[[int], bytes]) -> None:
        self._source = source
        self._random_bytes = random_bytes
        self._sequence = 0

    def server(self) -> dict[str, Any]:
        """Return the block about the server, with the next number."""
        self._sequence += 1
        server = self._source.server()
        return without_empty(
            {
                "name": server.name,
                "host": server.host,
                "id": server.id,
                "domain": server.domain,
                "ver": server.version,
                "tags": list(server.tags),
                "metadata": dict(sorted(server.metadata.items())),
                "feature_flags": dict(sorted(server.feature_flags.items())),
                "jetstream": server.has_jetstream,
                "flags": JETSTREAM_FLAGS if server.has_jetstream else 0,
                "seq": self._sequence,
                "time": timestamp(self._source.now_ns()),
            },
            "domain",
            "tags",
            "metadata",
            "feature_flags",
        )

    def answer(self, data: Any) -> dict[str, Any]:
        """Wrap an answer; None is an answer without data."""
        wrapped = {"server": self.server()}
        return wrapped if data is None else wrapped | {"data": data}

    def refusal(self, code: int, description: str, *, asked: bool) -> dict[str, Any]:
        """Wrap a refusal; `asked` is True if the request could be read."""
        data: dict[str, Any] = {"data": None} if asked else {}
        error = {"code": code, "description": description}
        return {"server": self.server(), **data, "error": error}

    def server_id(self) -> dict[str, Any]:
        """Return the server's name, host and id."""
        server = self._source.server()
        return {"name": server.name, "host": server.host, "id": server.id}

    def connected(self, client: ConnectionFacts) -> dict[str, Any]:
        """Return the advisory of a client that connected."""
        return {
            **self._typed("client_connect"),
            "server": self.server(),
            "client": _client(client, stop_ns=0),
        }

    def disconnected(self, client: ConnectionFacts, reason: str) -> dict[str, Any]:
        """Return the advisory of a client that left, or was refused."""
        return {
            **self._typed("client_disconnect"),
            "server": self.server(),
            "client": _client(client, stop_ns=client.stop_ns),
            "sent": _counts(client.received),
            "received": _counts(client.sent),
            "reason": reason,
        }

    def account_connections(self, account: AccountFacts) -> dict[str, Any]:
        """Return the advisory of an account's clients: how many there are, and what they did."""
        return {
            **self._typed("account_connections"),
            "server": self.server(),
            **account_stat(account),
        }

    def statsz(self) -> dict[str, Any]:
        """Return the server's statistics."""
        counters = self._source.counters()
        sent, received = _counts(counters.sent), _counts(counters.received)
        slow, stale = counters.slow_receivers, counters.stale_connections
        stats = {
            "start": timestamp(self._source.server().start_ns),
            "mem": counters.memory_bytes,
            "cores": counters.cores,
            "cpu": number(counters.cpu_percent),
            "connections": counters.connections,
            "total_connections": counters.total_connections,
            "active_accounts": counters.active_accounts,
            "subscriptions": counters.subscriptions,
            "sent": sent,
            "sent_to_clients": sent,
            "received": received,
            "received_from_clients": received,
            "slow_consumers": slow,
            "slow_consumer_stats": by_kind(slow) if slow else None,
            "stale_connections": stale,
            "stale_connection_stats": by_kind(stale) if stale else None,
            "stalled_clients": counters.stalled_clients,
            "active_servers": 1,
            "jetstream": _jetstream(self._source),
            "gomaxprocs": counters.cores,
        }
        return {
            "server": self.server(),
            "statsz": without_empty(
                stats,
                "slow_consumer_stats",
                "stale_connections",
                "stale_connection_stats",
                "stalled_clients",
                "jetstream",
            ),
        }

    def _typed(self, kind: str) -> dict[str, Any]:
        # Like the reference server's ids: 22 random letters and digits.
        unique = base64.b32encode(self._random_bytes(14)).decode()[:22]
        return {
            "type": _ADVISORY + kind,
            "id": unique,
            "timestamp": timestamp(self._source.now_ns()),
        }


def _jetstream(source: Source) -> dict[str, Any]:
    part = varz_part(source.jetstream())
    # Only the server's own page shows where the files are.
    part.get("config", {}).pop("store_dir", None)
    return part


def _counts(counts: Counts) -> dict[str, int]:
    return {"msgs": counts.msgs, "bytes": counts.bytes}


def _client(client: ConnectionFacts, *, stop_ns: int) -> dict[str, Any]:
    account = client.account or "$G"
    return without_empty(
        {
            "start": timestamp(client.start_ns),
            "host": client.ip,
            "id": client.cid,
            "acc": account,
            "user": client.user,
            "name": client.name,
            "lang": client.lang,
            "ver": client.version,
            "rtt": client.rtt_ns // 1000 * 1000 if stop_ns else 0,
            "stop": timestamp(stop_ns) if stop_ns else "",
            "jwt": client.jwt,
            "issuer_key": client.issuer_key,
            "name_tag": client.account_tag or account,
            "tags": list(client.tags),
            "kind": "Client",
            "client_type": client.type,
        },
        "user", "name", "lang", "ver", "rtt", "stop", "jwt", "issuer_key", "tags",
    )  # fmt: skip
