"""Events that the server publishes in its system account, and the envelopes that they are sent in.

They report clients that connect and disconnect, failed attempts to connect (in the account
concerned too), the number of clients of each account (again every 30 s), the server's statistics
(every 10 s, more often at first), and its shutdown. An event without subscribers is not computed.

Every message but a few carries a block about the server that sent it, with a running number and the
time: `Envelope` makes it, for events and for the answers of services. No secret of a client is in
any of them. `client_info` describes a client in events, advisories and requests to services.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.monitor.accountz import account_stat
from penstock.monitor.connz import closed_facts, open_facts, user_of
from penstock.monitor.facts import AccountFacts, ConnectionFacts, Counts, Source
from penstock.monitor.jsz import varz_part
from penstock.monitor.query import number, shown, to_json, without_empty
from penstock.monitor.varz import by_kind
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.net.protocol_log import shown_payload
from penstock.text.times import timestamp

if TYPE_CHECKING:
    from penstock.routing.sublist import Sublist
    from penstock.server.server import Server


# Envelopes

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


# Events

STATSZ_FIRST_S = 0.25
STATSZ_INTERVAL_S = 10.0
"""Statistics come after a quarter of a second, then after twice the time before, up to this."""

CONNECTIONS_INTERVAL_S = 30.0
"""The number of an account's clients is published again after this long without a change."""


class SystemEvents:
    """The events of one server; see the module."""

    def __init__(self, server: Server, envelope: Envelope) -> None:
        self._server = server
        self._envelope = envelope
        self._statsz_timer: asyncio.TimerHandle | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._flush_planned = False

    def start(self) -> None:
        """Begin to tell how the server is doing."""
        self._tell_statsz_later(STATSZ_FIRST_S)

    def stop(self) -> None:
        """Publish the shutdown, and publish nothing from then on."""
        self._tell(f"$SYS.SERVER.{self._server.server_id}.SHUTDOWN", self._envelope.server)
        self._server.hub.flush()
        if self._statsz_timer is not None:
            self._statsz_timer.cancel()
            self._statsz_timer = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # What happens to clients

    def facts(self, connection: Connection) -> ConnectionFacts:
        """Return the facts of an open connection."""
        return open_facts(connection)

    def connected(self, connection: Connection) -> None:
        """Publish that a client was admitted, unless it has closed since."""
        if connection.closed:
            return
        account = connection.identity.account_name
        self._tell_connections(account)
        self._tell(
            f"$SYS.ACCOUNT.{account}.CONNECT",
            lambda: self._envelope.connected(open_facts(connection)),
        )

    def disconnected(self, connection: Connection, reason: ClosedReason) -> None:
        """Publish that a client has left, or was refused."""
        rights = connection.identity

        def message() -> dict[str, Any]:
            return self._envelope.disconnected(closed_facts(connection), str(reason))

        if reason is ClosedReason.AUTHENTICATION_VIOLATION:
            # Subscribers within the account receive it, too.
            own = self._server.identities.accounts.global_account
            own = rights.account if rights is not None else own
            self._tell("$SYS.ACCOUNT.CLIENT.AUTH.ERR", message, own)
            self._tell(f"$SYS.SERVER.{self._server.server_id}.CLIENT.AUTH.ERR", message)
        if rights is not None:
            self._tell_connections(rights.account_name)
        account = rights.account_name if rights is not None else "$G"
        self._tell(f"$SYS.ACCOUNT.{account}.DISCONNECT", message)

    def lame_duck(self) -> None:
        """Publish that the server is in lame duck mode."""
        self._tell(f"$SYS.SERVER.{self._server.server_id}.LAMEDUCK", self._envelope.server)

    # How it is

    def tell_statsz(self) -> None:
        """Publish the server's statistics."""
        self._tell(f"$SYS.SERVER.{self._server.server_id}.STATSZ", self._envelope.statsz)

    def _tell_statsz_later(self, delay_s: float) -> None:
        def tell() -> None:
            self.tell_statsz()
            self._tell_statsz_later(min(delay_s * 2, STATSZ_INTERVAL_S))

        self._statsz_timer = self._server.loop.call_later(delay_s, tell)

    def _tell_connections(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        account = self._server.identities.accounts.find(name)
        if account is None:
            return
        if account.client_count:
            self._timers[name] = self._server.loop.call_later(
                CONNECTIONS_INTERVAL_S, self._tell_connections, name
            )

        def message() -> dict[str, Any]:
            return self._envelope.account_connections(self._server.source.account(account))

        self._tell(f"$SYS.SERVER.ACCOUNT.{name}.CONNS", message)
        self._tell(f"$SYS.ACCOUNT.{name}.SERVER.CONNS", message)

    # Sending

    def _tell(
        self, subject: str, message: Callable[[], dict[str, Any]], account: Any = None
    ) -> None:
        """Publish in the system account, or in another one; nothing where there is no system."""
        system = self._server.identities.accounts.system_account
        if system is None:
            return
        sublist = (account or system).sublist
        # A name is a configuration's, and may be anything; subjects on the wire have no spaces.
        encoded = subject.encode("utf-8", "surrogateescape")
        found = sublist.matches(encoded)
        if found.plain or found.queues:
            self.send(sublist, encoded, message())

    def send(self, sublist: Sublist, subject: bytes, message: Any) -> None:
        """Publish a message of the server's own; it is sent in the next turn of the loop."""
        body = to_json(message, indented=False)
        if self._server.options.trace_verbose:
            self._trace(subject, body)
        self._server.hub.publish(sublist, subject, None, b"", body)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send what was published, in the next turn of the loop."""
        if not self._flush_planned:
            # What is published while the hub delivers would otherwise wait for the next message.
            self._flush_planned = True
            self._server.loop.call_soon(self._flush)

    def _trace(self, subject: bytes, body: bytes) -> None:
        # The second space stands before the reply subject that there is not.
        self._server.log("TRC", f"SYSTEM - <<- [PUB {shown(subject)}  {len(body)}]")
        if payload := shown_payload(body, 0, self._server.options):
            self._server.log("TRC", f"SYSTEM - <<- {payload}")

    def _flush(self) -> None:
        self._flush_planned = False
        self._server.hub.flush()


def client_info(client: Connection, server_name: str, *, account: str) -> dict[str, Any]:
    """Return what an account may know of a client: little if it is of another account.

    What is not known is left out.
    """
    options = client.options
    if client.identity.account_name != account:
        return {
            "acc": client.identity.account_name,
            "svc": account,
            "rtt": client.rtt_ns,
            "server": server_name,
        }
    fields = {
        "start": timestamp(client.start_ns),
        "host": client.ip,
        "id": client.cid,
        "acc": client.identity.account_name,
        "user": user_of(client),
        "name": options.name,
        "lang": options.lang,
        "ver": options.version,
        "rtt": client.rtt_ns,
        "server": server_name,
        **_of_token(client),
        "kind": "Client",
        "client_type": client.kind,
    }
    return {name: value for name, value in fields.items() if value}


def _of_token(client: Connection) -> dict[str, Any]:
    grant = client.identity.grant
    if grant is None:
        return {}
    claims = grant.claims
    return {
        "issuer_key": claims.signing_key or claims.issuer,
        "name_tag": claims.name,
        "tags": list(claims.tags),
    }
