"""Events that the server publishes in its system account.

They report clients that connect and disconnect, failed attempts to connect (in the account
concerned too), the number of clients of each account (again every 30 s), the server's statistics
(every 10 s, more often at first), and its shutdown. An event without subscribers is not computed.

`client_info` describes a client in events, advisories and requests to services.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.monitor.connection_facts import closed_facts, open_facts, user_of
from penstock.monitor.events import Envelope
from penstock.monitor.facts import ConnectionFacts
from penstock.monitor.query import shown, to_json
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.net.protocol_log import shown_payload
from penstock.text.times import timestamp

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.routing.sublist import Sublist
    from penstock.server.server import Server


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
