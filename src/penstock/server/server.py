"""The composition root: builds the parts of a server, starts and stops them in order.

Start and stop read from top to bottom. Everything runs on one event loop; what is decided about a
connection is in `net.connection`, who may come in in `admission` and `identities`, how a running
server takes other options in `reloading`, what belongs to the process in `process`.

    async with Server(ServerOptions(port=-1)) as server:
        print(server.url)
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock, SystemClock
from penstock.config.load import settled
from penstock.config.options import ServerOptions
from penstock.config.reading import changed
from penstock.config.urls import advertised
from penstock.errors import CannotListen, UsageError
from penstock.monitor.facts import ConnectionFacts
from penstock.net.closing import ClosedReason
from penstock.net.connection import Connection
from penstock.net.listener import Listener
from penstock.net.listening import PORT_MAX, ListeningSockets
from penstock.net.memory import FreedMemory
from penstock.net.opening import TlsTerms
from penstock.protocol.handshake import ConnectOptions, encode_info
from penstock.routing.hub import Hub
from penstock.security.identifiers import new_nonce, new_server_id, new_xkey
from penstock.server.admission import Admission
from penstock.server.encryption import note_encryption, tls_terms
from penstock.server.identities import Identities
from penstock.server.log import LineLog, Log
from penstock.server.monitoring import Monitoring, ServerSource, closed_facts
from penstock.server.ports_file import local_url
from penstock.server.rights import Rights
from penstock.server.system_services import SystemServices
from penstock.server.unavailable import check_available
from penstock.server.version import API_LEVEL, GIT_COMMIT, GO_VERSION, NATS_VERSION
from penstock.server.websockets import WebSocketDoor, websocket_terms

if TYPE_CHECKING:
    from penstock.server.claimed_accounts import KnownAccount
    from penstock.server.jetstream import JetStreamService
    from penstock.server.message_trace import MessageTrace, MessageTraces
    from penstock.server.sharing import Sharing


class Server:
    """A NATS server; see the module."""

    def __init__(
        self,
        options: ServerOptions | None = None,
        *,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        log: LineLog | None = None,
        sockets: ListeningSockets | None = None,
    ) -> None:
        """Build it; raises UsageError for users or certificates that cannot be."""
        self.options = settled(options or ServerOptions(host="127.0.0.1"))
        check_available(self.options)
        self.clock: Clock = clock or SystemClock()
        self.random_bytes = random_bytes
        self.logger: LineLog = log or Log(self.clock, self.options)
        self.hub = Hub(int.from_bytes(random_bytes(8), "little"))
        self.freed_memory = FreedMemory()
        self.server_id = new_server_id(random_bytes)
        self.xkey = new_xkey(random_bytes)
        self.name = self.options.server_name or self.server_id
        self.is_serving = False
        self.start_ns = 0
        self.identities = Identities(
            self.options,
            clock=self.clock,
            random_bytes=random_bytes,
            # Before there is anything to see, nobody looks.
            log=lambda level, text: self.log(level, text) if self.start_ns else None,
            on_claims=self._claims_changed,
            on_end=self._claims_ended,
        )
        self.tls = tls_terms(self.options.tls, self.clock, is_optional=self.options.allow_non_tls)
        self.connections: dict[int, Connection] = {}
        self.closed: deque[ConnectionFacts] = deque(maxlen=max(self.options.max_closed_clients, 0))
        self.total_connections = 0
        self.slow_receivers = 0
        self.stale_connections = 0
        self.stalls = 0
        self.config_load_ns = 0
        # The digest of the configuration file, and how to read it again, where there is one.
        self.config_digest = ""
        self.ask_reload: Callable[[], None] | None = None
        self.source = ServerSource(self)
        self.jetstream: JetStreamService | None = None
        self.sharing: Sharing | None = None
        self._traces: MessageTraces | None = None
        self.monitoring = Monitoring(self, self.source)
        self.system = SystemServices(self)
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by start
        # The numbers before belong to the server's own clients in the system account.
        self._cid = 3
        self.admission = Admission(self)
        self.websockets = WebSocketDoor(self)
        # Those of its ports that were bound before it was built are among them.
        self.sockets = sockets or ListeningSockets()
        self._client_listener: Listener | None = None
        self._listeners: list[Listener] = []
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

    def info_line(self, connection: Connection, *, connect_info: bool, lame: bool = False) -> bytes:
        """Give INFO as a connection shall see it."""
        return encode_info(self.info_fields(connection, connect_info=connect_info, lame=lame))

    def info_fields(
        self, connection: Connection, *, connect_info: bool, lame: bool = False
    ) -> dict[str, Any]:
        """Give INFO's fields in their order; None leaves one out."""
        options = self.options
        identity: Rights | None = connection.identity if connect_info else None
        tls, websocket = options.tls, options.websocket
        is_websocket = websocket is not None and connection.kind == "websocket"
        host, port = self.advertised
        if websocket is not None and is_websocket:
            host, port = websocket.host, websocket.port
        is_secure = is_websocket and self.websockets.tls is not None
        return {
            "server_id": self.server_id,
            "server_name": self.name,
            "version": NATS_VERSION,
            "proto": 1,
            "git_commit": GIT_COMMIT,
            "go": GO_VERSION,
            "host": host,
            "port": port,
            "headers": self.headers_supported or None,
            "auth_required": _true(
                self.identities.required_of(connection)
                if connect_info
                else self.identities.asked_of(connection)
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
            "jetstream": _true(self.jetstream is not None),
            "client_id": connection.cid,
            "client_ip": connection.ip if connection.peer_known else None,
            # What there is to sign is told once, in the greeting.
            "nonce": None if connect_info or lame else connection.nonce or None,
            "domain": self.jetstream.domain or None if self.jetstream is not None else None,
            "ldm": _true(lame),
            "connect_info": _true(connect_info),
            "remote_account": identity.account_name if identity is not None else None,
            "acc_is_sys": _true(
                identity is not None
                and identity.account_name == self.identities.system_account_name
            ),
            "api_lvl": API_LEVEL,
            "xkey": self.xkey,
        }

    def secured(self, connection: Connection, tls: ssl.SSLObject) -> str:
        """Note that a connection's TLS handshake is done; a reason to end it, or ""."""
        self.log("DBG", f"{connection} - TLS handshake complete")
        terms = self.websockets.tls if connection.kind == "websocket" else self.tls
        refusal = note_encryption(connection, tls, terms)
        version, cipher = connection.tls_version, connection.tls_cipher
        self.log("DBG", f"{connection} - TLS version {version}, cipher suite {cipher}")
        return refusal

    def authenticate(self, connection: Connection, options: ConnectOptions) -> None:
        """Find out who a client is, and admit or refuse it; later where that takes its time."""
        self.admission.authenticate(connection, options)

    def publish_traced(
        self,
        connection: Connection,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> bytes | None:
        """Route a message that may ask to be traced; otherwise give the headers to go on with."""
        from penstock.server.sharing import Passing

        message = Passing(subject, reply, headers, body)
        return self._message_traces().publish(connection, message)

    def trace_oversized(
        self, connection: Connection, subject: bytes, headers: bytes, size: int
    ) -> None:
        """Tell of a message that is too large."""
        self._message_traces().tell_oversized(connection, subject, headers, size)

    def _message_traces(self) -> MessageTraces:
        # Loaded with the first message that asks for it.
        from penstock.server.message_trace import MessageTraces

        if self._traces is None:
            self._traces = MessageTraces(self)
        return self._traces

    @property
    def message_trace(self) -> MessageTrace | None:
        """The trace of the message that is routed right now, where it has one."""
        return None if self._traces is None else self._traces.at_hand

    # What claims of accounts change

    def _claims_changed(self, account: KnownAccount) -> None:
        if not self.is_serving:
            return
        from penstock.server.claimed_members import look_again_at_members

        self.system.serve_accounts()
        self.serve_sharing(account.name)
        found = self.identities.accounts.find(account.name)
        if self.jetstream is not None and found is not None:
            self.jetstream.serve_account(found)
        look_again_at_members(self, account)

    def _claims_ended(self, account: KnownAccount) -> None:
        from penstock.server.claimed_members import let_members_go

        let_members_go(self, account)
        found = self.identities.accounts.find(account.name)
        if self.jetstream is not None and found is not None:
            self.jetstream.serve_account(found)

    def left(self, connection: Connection, reason: ClosedReason) -> None:
        """Forget a connection that has closed."""
        self.websockets.forget(connection)
        if self.connections.pop(connection.cid, None) is None:
            return
        self.identities.leave(connection)
        if reason in (ClosedReason.SLOW_PENDING_BYTES, ClosedReason.SLOW_WRITE_DEADLINE):
            self.slow_receivers += 1
            if connection.identity is not None:
                connection.identity.account.slow_receivers += 1
        if reason is ClosedReason.STALE_CONNECTION:
            self.stale_connections += 1
        self.closed.append(closed_facts(connection))
        self.system.events.disconnected(connection, reason)
        self.log("DBG", f"{connection} - Client connection closed: {reason}")

    # Coming in

    def new_cid(self) -> int:
        """Give a number that no client has, nor any part of the server that is one."""
        self._cid += 1
        return self._cid

    def _accepted(self, sock: socket.socket) -> None:
        try:
            connection = Connection(self, sock, self.new_cid())
        except OSError:
            sock.close()
            return
        connection.peer_known = not self.options.proxy_protocol
        self.enter(connection, self.tls)

    def enter(self, connection: Connection, tls: TlsTerms | None = None) -> None:
        """Count a connection in, and greet its client."""
        self.total_connections += 1
        connection.set_tracing(self.options.trace)
        if self.identities.needs_nonce:
            connection.nonce = new_nonce(self.random_bytes)
        limit = self.options.max_connections
        self.connections[connection.cid] = connection
        self.log("DBG", f"{connection} - Client connection created")
        if 0 < limit < len(self.connections):
            if tls is None or tls.first_delay_s is None:
                connection.send_info()
            self.log("ERR", f"{connection} - maximum connections exceeded")
            connection.refuse("maximum connections exceeded", ClosedReason.MAX_CONNECTIONS)
            return
        rights = self.identities.anonymous(connection)
        if rights is not None:
            connection.become(rights)
            self.identities.join(connection, rights)
        waits = rights is None or self.identities.asked_of(connection)
        timeout_s = self.identities.timeout_s_of(connection) if waits else None
        connection.start(auth_timeout_s=timeout_s, tls=tls)

    # Living

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        listener = self._client_listener
        return listener.port if listener is not None else self.options.port

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port that clients are told."""
        return self.advertised_by(self.options)

    def advertised_by(self, options: ServerOptions) -> tuple[str, int]:
        """Give host and port that clients would be told; raises ValueError."""
        return advertised(options.client_advertise, options.host, self.port)

    @property
    def url(self) -> str:
        """Where a client on this machine connects to."""
        return local_url("nats", self.options.host, self.port)

    async def start(self) -> None:
        """Open the doors; raises CannotListen where a port cannot be had, and UsageError."""
        self.loop = asyncio.get_running_loop()
        self.start_ns = self.config_load_ns = self.clock.now_ns()
        self._stopped.clear()
        try:
            self.advertised_by(self.options)
        except ValueError as error:
            what = f"ClientAdvertise value of {self.options.client_advertise}, err={error}"
            raise UsageError(f"Error setting server INFO with {what}") from None
        self._client_listener = self._listen(self.options.host, self.options.port, self._accepted)
        # From now on a port that was to be any is the one that it became.
        self.options = changed(self.options, port=self._client_listener.port)
        websocket = self.options.websocket
        if websocket is not None and websocket.port:
            self.websockets.tls = websocket_terms(self.options, self.clock)
            listener = self._listen(websocket.host, websocket.port, self.websockets.accept)
            websocket = changed(websocket, port=listener.port)
            self.options = changed(self.options, websocket=websocket)
        try:
            _check_port("monitoring", self.options.http_host, self.options.http_port)
            _check_port("monitoring", self.options.http_host, self.options.https_port)
            await self.monitoring.start()
        except (CannotListen, UsageError):
            self.close_doors()
            raise
        except OSError as error:
            self.close_doors()
            port = self.options.http_port or self.options.https_port
            raise _cannot_listen("monitoring", self.options.http_host, port, error) from None
        self.identities.start(self.loop)
        self.system.start()
        self.serve_sharing()
        try:
            self.serve_jetstream()
        except UsageError:
            self.close_doors()
            raise
        self.is_serving = True
        for listener in self._listeners:
            listener.start()

    def serve_sharing(self, name: str = "") -> None:
        """Let pass between accounts what the options or claims say, or those of one account."""
        accounts = self.identities.declared
        looked_at = (accounts[name],) if name in accounts else accounts.values()
        if self.sharing is None and any(each.imports for each in looked_at):
            # Most servers share nothing, and start without loading it.
            from penstock.server.sharing import Sharing

            self.sharing = Sharing(self)
        if self.sharing is not None and name:
            self.sharing.apply_to(name, accounts)
        elif self.sharing is not None:
            self.sharing.apply(accounts)

    def serve_jetstream(self) -> None:
        """Keep streams, or no longer, as the options say; raises UsageError."""
        options = self.options.jetstream
        is_wanted = options is not None and options.enabled
        if self.jetstream is not None and options is not None and is_wanted:
            self.jetstream.take_options(options)
        elif self.jetstream is not None:
            self.jetstream.stop()
            self.jetstream = None
        elif options is not None and options.enabled:
            # A server without streams starts without loading what only they need.
            from penstock.server.jetstream import JetStreamService

            self.jetstream = JetStreamService(self, options)
            self.jetstream.start()

    def _listen(self, host: str, port: int, accept: Callable[[socket.socket], None]) -> Listener:
        _check_port("clients", host, port)
        try:
            listening = self.sockets.take(host, port)
        except OSError as error:
            raise _cannot_listen("clients", host, port, error) from None
        listener = Listener(self.loop, listening, host, accept, self.log)
        self._listeners.append(listener)
        return listener

    def close_doors(self) -> None:
        """Let nobody new in."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self.sockets.close()

    def clients(self) -> list[Connection]:
        """Give the connections of clients, the oldest first."""
        return list(self.connections.values())

    def tell_lame_duck(self, connections: Iterable[Connection]) -> None:
        """Tell clients that understand it that this server will go."""
        for connection in connections:
            if connection.connected and connection.options.protocol >= 1:
                connection.write(self.info_line(connection, connect_info=False, lame=True))
        self.hub.flush()

    def random_below(self, bound: int) -> int:
        """Give a number from 0 to below `bound`."""
        return int.from_bytes(self.random_bytes(8), "little") % bound

    async def stop(self) -> None:
        """Close the doors and every connection."""
        self.close_doors()
        await self.monitoring.stop()
        self.system.stop()
        self.identities.stop()
        if self.jetstream is not None:
            await self.jetstream.finish_requests()
            self.jetstream.stop()
        for connection in self.clients():
            connection.close(ClosedReason.SERVER_SHUTDOWN)
        self.websockets.close()
        self.admission.close()
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


def _check_port(what: str, host: str, port: int) -> None:
    if port > PORT_MAX:
        raise CannotListen(what, host, port, "invalid port")


def _cannot_listen(what: str, host: str, port: int, error: OSError) -> CannotListen:
    if isinstance(error, socket.gaierror):
        return CannotListen(what, host, port, "no such host")
    reason = os.strerror(error.errno) if error.errno else "failed"
    return CannotListen(what, host, port, f"{reason[:1].lower()}{reason[1:]}")


def _true(value: bool) -> bool | None:
    # A field of INFO that is there only when it is true.
    return True if value else None
