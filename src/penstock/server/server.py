"""The composition root: builds the parts of a server, starts and stops them in order.

Start and stop read from top to bottom. Everything runs on one event loop; what is decided about a
connection is in `net.connection`, who it is in `identity`, what monitoring shows in `monitor`.

    async with Server(ServerOptions(port=-1)) as server:
        print(server.url)
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.config.options import ServerOptions
from penstock.net.closing import ClosedReason
from penstock.net.connection import Connection
from penstock.net.listener import Listener
from penstock.protocol.handshake import ConnectOptions, encode_info
from penstock.routing.link import Hub
from penstock.security.identifiers import new_nonce, new_server_id, new_xkey
from penstock.server.identities import Identities
from penstock.server.rights import Rights
from penstock.server.log import Log
from penstock.server.version import API_LEVEL, GIT_COMMIT, GO_VERSION, NATS_VERSION

class Server:
    """A NATS server; see the module."""

    def __init__(
        self,
        options: ServerOptions | None = None,
        *,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        log: Log | None = None,
    ) -> None:
        self.options = options or ServerOptions(host="127.0.0.1")
        self.clock: Clock = clock or SystemClock()
        self.random_bytes = random_bytes
        self.logger = log or Log(self.clock, debug=self.options.debug, trace=self.options.trace)
        self.hub = Hub(int.from_bytes(random_bytes(8), "little"))
        self.server_id = new_server_id(random_bytes)
        self.xkey = new_xkey(random_bytes)
        self.name = self.options.server_name or self.server_id
        self.identities = Identities(
            self.options, clock=self.clock, random_bytes=random_bytes
        )
        self.connections: dict[int, Connection] = {}
        self.closed: deque[Connection] = deque(maxlen=max(self.options.max_closed_clients, 0))
        self.total_connections = 0
        self.slow_receivers = 0
        self.stale_connections = 0
        self.start_ns = 0
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by start
        self.lame = False
        self._cid = 4
        self._listener: Listener | None = None
        self._stopped = asyncio.Event()

    # What connections ask of their host

    @property
    def limits(self) -> ServerOptions:
        """The options that bound a connection."""
        return self.options

    @property
    def headers_supported(self) -> bool:
        """Tell whether messages may have headers."""
        return not self.options.no_header_support

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        self.logger.line(level, text)

    def info_line(self, connection: Connection, *, connect_info: bool) -> bytes:
        """Give INFO as a connection shall see it."""
        return encode_info(self.info_fields(connection, connect_info=connect_info))

    def info_fields(self, connection: Connection, *, connect_info: bool) -> dict[str, Any]:
        """Give INFO's fields in their order; None leaves one out."""
        options = self.options
        identity: Rights | None = connection.identity if connect_info else None
        tls = options.tls
        return {
            "server_id": self.server_id,
            "server_name": self.name,
            "version": NATS_VERSION,
            "proto": 1,
            "git_commit": GIT_COMMIT,
            "go": GO_VERSION,
            "host": options.host,
            "port": self.port,
            "headers": self.headers_supported or None,
            "auth_required": self.identities.asks_for_credentials or None,
            "tls_required": (tls is not None and not options.allow_non_tls) or None,
            "tls_verify": (tls is not None and (tls.verify or tls.verify_and_map)) or None,
            "tls_available": (tls is not None and options.allow_non_tls) or None,
            "max_payload": connection.max_payload,
            "client_id": connection.cid,
            "client_ip": connection.ip,
            "nonce": connection.nonce or None,
            "ldm": True if self.lame else None,
            "connect_info": True if connect_info else None,
            "remote_account": identity.account_name if identity is not None else None,
            "acc_is_sys": (
                True
                if identity is not None
                and identity.account_name == self.identities.system_account_name
                else None
            ),
            "api_lvl": API_LEVEL,
            "xkey": self.xkey,
        }

    def authenticate(self, connection: Connection, options: ConnectOptions) -> Rights | None:
        """Find out who a client is; None where it was refused and closed."""
        if options.account or options.new_account:
            connection.refuse("Authorization Violation", ClosedReason.AUTHENTICATION_VIOLATION)
            return None
        identity = self.identities.authenticate(connection, options)
        if identity is None:
            self.log("ERR", f"{connection} - authentication error")
            connection.refuse("Authorization Violation", ClosedReason.AUTHENTICATION_VIOLATION)
            return None
        if not self.identities.join(connection, identity):
            connection.refuse(
                "maximum account active connections exceeded",
                ClosedReason.MAX_ACCOUNT_CONNECTIONS,
            )
            return None
        return identity

    def left(self, connection: Connection, reason: ClosedReason) -> None:
        """Forget a connection that has closed."""
        if self.connections.pop(connection.cid, None) is None:
            return
        self.identities.leave(connection)
        if reason in (ClosedReason.SLOW_PENDING_BYTES, ClosedReason.SLOW_WRITE_DEADLINE):
            self.slow_receivers += 1
        if reason is ClosedReason.STALE_CONNECTION:
            self.stale_connections += 1
        self.closed.append(connection)
        self.log("DBG", f"{connection} - Client connection closed: {reason}")

    # Coming in

    def _accepted(self, sock: socket.socket) -> None:
        self._cid += 1
        self.total_connections += 1
        try:
            connection = Connection(self, sock, self._cid)
        except OSError:
            sock.close()
            return
        if self.identities.needs_nonce:
            connection.nonce = new_nonce(self.random_bytes)
        limit = self.options.max_connections
        self.connections[connection.cid] = connection
        self.log("DBG", f"{connection} - Client connection created")
        if 0 < limit < len(self.connections):
            connection.refuse("maximum connections exceeded", ClosedReason.MAX_CONNECTIONS)
            return
        if not self.identities.required:
            connection.become(self.identities.anonymous())
            self.identities.join(connection, connection.identity)
        elif not self.identities.asks_for_credentials:
            connection.become(self.identities.anonymous())
            self.identities.join(connection, connection.identity)
        waits = self.identities.asks_for_credentials
        timeout_s = self.options.authorization.timeout_s if waits else None
        connection.start(auth_timeout_s=timeout_s)

    # Living

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._listener.port if self._listener is not None else self.options.port

    @property
    def url(self) -> str:
        """Where a client on this machine connects to."""
        host = "127.0.0.1" if self.options.host in ("0.0.0.0", "::", "") else self.options.host
        return f"nats://{host}:{self.port}"

    async def start(self) -> None:
        """Open the doors; raises OSError where a port cannot be had."""
        self.loop = asyncio.get_running_loop()
        self.start_ns = self.clock.now_ns()
        self._stopped.clear()
        self._listener = Listener(
            self.loop, self.options.host, self.options.port, self._accepted
        )
        self._listener.start()

    async def stop(self) -> None:
        """Close the doors and every connection."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections.values()):
            connection.close(ClosedReason.SERVER_SHUTDOWN)
        self._stopped.set()

    async def wait_stopped(self) -> None:
        """Wait until `stop` is done."""
        await self._stopped.wait()

    async def __aenter__(self) -> Server:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Stop."""
        await self.stop()

