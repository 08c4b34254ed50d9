"""The clients of a server: who is connected, how they arrive and leave, and lame duck mode.

`Clients` is the host of every connection (`net.host.Host`): a connection asks it for INFO, limits
and authentication, and reports when it has closed.

Lame duck mode comes before a stop. New clients are refused, and connected clients are told, so that
they can reconnect elsewhere. After a grace period the rest are closed one by one over the time that
is left, so that they do not all reconnect at once.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.config.options.server import ServerOptions
from penstock.limits import LAME_DUCK_PAUSE_NS_MAX
from penstock.monitor.connz import closed_facts
from penstock.monitor.facts import ConnectionFacts
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.net.memory import FreedMemory
from penstock.net.opening import TlsTerms
from penstock.protocol.handshake import ConnectOptions, encode_info
from penstock.security.identifiers import new_nonce
from penstock.server.listeners import note_encryption
from penstock.server.version import API_LEVEL, GIT_COMMIT, GO_VERSION, NATS_VERSION

if TYPE_CHECKING:
    from penstock.server.accounts.admission import Rights
    from penstock.server.server import Server
    from penstock.server.trace.message_trace import MessageTrace, MessageTraces


class Clients:
    """The connections of one server, and what they ask of it; see the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by start
        self.clock = server.clock
        self.hub = server.hub
        self.freed_memory = FreedMemory()
        self.connections: dict[int, Connection] = {}
        kept = max(server.options.max_closed_clients, 0)
        self.closed: deque[ConnectionFacts] = deque(maxlen=kept)
        self.total_connections = 0
        self.slow_receivers = 0
        self.stale_connections = 0
        self.stalls = 0
        self._traces: MessageTraces | None = None
        # The numbers below are those of the server's own clients in the system account.
        self._cid = 3

    # What connections ask of their host

    @property
    def limits(self) -> ServerOptions:
        """The options that bound a connection."""
        return self._server.options

    @property
    def headers_supported(self) -> bool:
        """Whether messages may have headers."""
        return not self._server.options.no_header_support

    def log(self, level: str, text: str) -> None:
        """Write a line to the log."""
        self._server.log(level, text)

    def info_line(self, connection: Connection, *, connect_info: bool, lame: bool = False) -> bytes:
        """Return the INFO for one connection, with its client id, nonce and TLS state."""
        return encode_info(self._info_fields(connection, connect_info=connect_info, lame=lame))

    def _info_fields(
        self, connection: Connection, *, connect_info: bool, lame: bool = False
    ) -> dict[str, Any]:
        """Return the fields of INFO in order; a field that is None is left out."""
        options = self._server.options
        identity: Rights | None = connection.identity if connect_info else None
        tls, websocket = options.tls, options.websocket
        is_websocket = websocket is not None and connection.kind == "websocket"
        host, port = self._server.advertised
        if websocket is not None and is_websocket:
            host, port = websocket.host, websocket.port
        is_secure = is_websocket and self._server.websockets.tls is not None
        return {
            "server_id": self._server.server_id,
            "server_name": self._server.name,
            "version": NATS_VERSION,
            "proto": 1,
            "git_commit": GIT_COMMIT,
            "go": GO_VERSION,
            "host": host,
            "port": port,
            "headers": self.headers_supported or None,
            "auth_required": _true(
                self._server.identities.required_of(connection)
                if connect_info
                else self._server.identities.asked_of(connection)
            ),
            "tls_required": _true(
                is_secure
                if is_websocket
                else tls is not None and (not options.allow_non_tls or connection.tls_first)
            ),
            "tls_verify": _true(tls is not None and (tls.verify or tls.verify_and_map)),
            "tls_available": _true(
                is_secure if is_websocket else tls is not None and options.allow_non_tls
            ),
            "max_payload": connection.max_payload,
            "jetstream": _true(self._server.jetstream is not None),
            "client_id": connection.cid,
            "client_ip": connection.ip if connection.peer_known else None,
            # The nonce is sent once, in the first INFO.
            "nonce": None if connect_info or lame else connection.nonce or None,
            "domain": self._server.jetstream.domain or None
            if self._server.jetstream is not None
            else None,
            "ldm": _true(lame),
            "connect_info": _true(connect_info),
            "remote_account": identity.account_name if identity is not None else None,
            "acc_is_sys": _true(
                identity is not None
                and identity.account_name == self._server.identities.system_account_name
            ),
            "api_lvl": API_LEVEL,
            "xkey": self._server.xkey,
        }

    def secured(self, connection: Connection, tls: ssl.SSLObject) -> str:
        """Note that the TLS handshake is done; return a reason to close the connection, or ""."""
        self.log("DBG", f"{connection} - TLS handshake complete")
        terms = self._server.websockets.tls if connection.kind == "websocket" else self._server.tls
        refusal = note_encryption(connection, tls, terms)
        version, cipher = connection.tls_version, connection.tls_cipher
        self.log("DBG", f"{connection} - TLS version {version}, cipher suite {cipher}")
        return refusal

    def authenticate(self, connection: Connection, options: ConnectOptions) -> None:
        """Check the credentials of a CONNECT; admit or refuse the client, later if that is slow."""
        self._server.admission.authenticate(connection, options)

    def publish_traced(
        self,
        connection: Connection,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> bytes | None:
        """Route a message that asks to be traced; otherwise return the headers to continue with."""
        from penstock.server.accounts.imports_exports import RoutedMessage

        message = RoutedMessage(subject, reply, headers, body)
        return self._message_traces().publish(connection, message)

    def trace_oversized(
        self, connection: Connection, subject: bytes, headers: bytes, size: int
    ) -> None:
        """Publish the trace of a message that is too large."""
        self._message_traces().tell_oversized(connection, subject, headers, size)

    def _message_traces(self) -> MessageTraces:
        # Imported when the first message asks for a trace.
        from penstock.server.trace.message_trace import MessageTraces

        if self._traces is None:
            self._traces = MessageTraces(self._server)
        return self._traces

    @property
    def message_trace(self) -> MessageTrace | None:
        """The trace of the message that is being routed, or None."""
        return None if self._traces is None else self._traces.at_hand

    def left(self, connection: Connection, reason: ClosedReason) -> None:
        """Remove a connection that has closed, and keep its facts for monitoring."""
        self._server.websockets.forget(connection)
        if self.connections.pop(connection.cid, None) is None:
            return
        self._server.identities.leave(connection)
        if reason in (ClosedReason.SLOW_PENDING_BYTES, ClosedReason.SLOW_WRITE_DEADLINE):
            self.slow_receivers += 1
            if connection.identity is not None:
                connection.identity.account.slow_receivers += 1
        if reason is ClosedReason.STALE_CONNECTION:
            self.stale_connections += 1
        self.closed.append(closed_facts(connection))
        self._server.system.events.disconnected(connection, reason)
        self.log("DBG", f"{connection} - Client connection closed: {reason}")

    def new_cid(self) -> int:
        """Return a client id that was never used before."""
        self._cid += 1
        return self._cid

    def accept(self, sock: socket.socket) -> None:
        """Create the connection of a socket that the client port accepted."""
        try:
            connection = Connection(self, sock, self.new_cid())
        except OSError:
            sock.close()
            return
        connection.peer_known = not self._server.options.proxy_protocol
        self.enter(connection, self._server.tls)

    def enter(self, connection: Connection, tls: TlsTerms | None = None) -> None:
        """Add a connection and send its INFO, or refuse it if there are too many."""
        self.total_connections += 1
        connection.set_tracing(self._server.options.trace)
        if self._server.identities.needs_nonce:
            connection.nonce = new_nonce(self._server.random_bytes)
        limit = self._server.options.max_connections
        self.connections[connection.cid] = connection
        self.log("DBG", f"{connection} - Client connection created")
        if 0 < limit < len(self.connections):
            if tls is None or tls.first_delay_s is None:
                connection.send_info()
            self.log("ERR", f"{connection} - maximum connections exceeded")
            connection.refuse("maximum connections exceeded", ClosedReason.MAX_CONNECTIONS)
            return
        rights = self._server.identities.anonymous(connection)
        if rights is not None:
            connection.become(rights)
            self._server.identities.join(connection, rights)
        waits = rights is None or self._server.identities.asked_of(connection)
        timeout_s = self._server.identities.timeout_s_of(connection) if waits else None
        connection.start(auth_timeout_s=timeout_s, tls=tls)

    def all(self) -> list[Connection]:
        """Return the open connections, the oldest first."""
        return list(self.connections.values())

    def tell_lame_duck(self, connections: Iterable[Connection]) -> None:
        """Send an INFO that announces the shutdown to clients whose protocol knows it."""
        for connection in connections:
            if connection.connected and connection.options.protocol >= 1:
                connection.write(self.info_line(connection, connect_info=False, lame=True))
        self.hub.flush()


async def enter_lame_duck_mode(server: Server) -> None:
    """Close the listeners, tell the clients, wait, and close them one by one.

    Cancelling it leaves the remaining clients connected.
    """
    server.log("INF", "Entering lame duck mode, stop accepting new clients")
    server.close_listeners()
    server.system.events.lame_duck()
    options = server.options
    clients = server.clients.all()
    if not clients:
        return
    server.clients.tell_lame_duck(clients)
    await asyncio.sleep(options.lame_duck_grace_ns / 1e9)
    server.log("INF", "Closing existing clients")
    left_ns = options.lame_duck_duration_ns - options.lame_duck_grace_ns
    pause_ns = min(max(left_ns, LAME_DUCK_PAUSE_NS_MAX) // len(clients), LAME_DUCK_PAUSE_NS_MAX)
    for place, connection in enumerate(clients):
        connection.close(ClosedReason.SERVER_SHUTDOWN)
        if place < len(clients) - 1:
            await asyncio.sleep(max(server.random_below(max(pause_ns, 1)), pause_ns // 2) / 1e9)


def _true(value: bool) -> bool | None:
    # Fields of INFO that are present only if they are true.
    return True if value else None
