"""The composition root: builds the parts of a server, and starts and stops them in order.

Start and stop read from top to bottom. `clients` holds the connections, `accounts/` decides who may
connect, `reload` changes the options of a running server, `process` is the executable around it.

    async with Server(ServerOptions(port=-1)) as server:
        print(server.url)

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.clock import Clock, SystemClock
from penstock.config.check import check_available
from penstock.config.load import settled
from penstock.config.options.server import ServerOptions
from penstock.config.options.values import advertised, changed
from penstock.errors import CannotListen, UsageError
from penstock.limits import TURN_TOLD_APART_NS
from penstock.net.host import ClosedReason
from penstock.net.listener import PORT_MAX, Listener, ListeningSockets
from penstock.net.turns import TurnMeter
from penstock.routing.hub import Hub
from penstock.security.identifiers import new_server_id, new_xkey
from penstock.server.accounts.admission import Admission
from penstock.server.accounts.identities import Identities
from penstock.server.clients import Clients
from penstock.server.listeners import WebSocketListener, tls_terms, websocket_terms
from penstock.server.log import LineLog, Log
from penstock.server.monitoring import Monitoring, ServerSource
from penstock.server.process_files import local_url
from penstock.server.system.services import SystemServices

if TYPE_CHECKING:
    from penstock.server.accounts.imports_exports import AccountImports
    from penstock.server.accounts.jwt_accounts import JwtAccount
    from penstock.server.jetstream.service import JetStreamService


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
        """Build all parts; raise UsageError for users or certificates that cannot be used."""
        self.options = settled(options or ServerOptions(host="127.0.0.1"))
        check_available(self.options)
        self.clock: Clock = clock or SystemClock()
        self.random_bytes = random_bytes
        self.logger: LineLog = log or Log(self.clock, self.options)
        self.hub = Hub(int.from_bytes(random_bytes(8), "little"), self.clock.monotonic_ns)
        self.server_id = new_server_id(random_bytes)
        self.xkey = new_xkey(random_bytes)
        self.name = self.options.server_name or self.server_id
        self.is_serving = False
        self.start_ns = 0
        self.identities = Identities(
            self.options,
            clock=self.clock,
            random_bytes=random_bytes,
            # Not started yet: nothing to log.
            log=lambda level, text: self.log(level, text) if self.start_ns else None,
            on_claims=self._claims_changed,
            on_end=self._claims_ended,
        )
        self.tls = tls_terms(self.options.tls, self.clock, is_optional=self.options.allow_non_tls)
        self.config_load_ns = 0
        # The digest of the configuration file, and how to read it again, where there is one.
        self.config_digest = ""
        self.ask_reload: Callable[[], None] | None = None
        self.source = ServerSource(self)
        self.jetstream: JetStreamService | None = None
        self.imports: AccountImports | None = None
        self.monitoring = Monitoring(self, self.source)
        self.system = SystemServices(self)
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by start
        self.turns = TurnMeter(self._on_long_turn)
        self._turn_told_ns = 0
        self.admission = Admission(self)
        self.clients = Clients(self)
        self.websockets = WebSocketListener(self)
        # Ports that the process has bound already are among them.
        self.sockets = sockets or ListeningSockets()
        self._client_listener: Listener | None = None
        self._listeners: list[Listener] = []

    def log(self, level: str, text: str) -> None:
        """Write a line to the log."""
        self.logger.line(level, text)

    def _on_long_turn(self, turn_ns: int) -> None:
        now_ns = self.clock.monotonic_ns()
        if self._turn_told_ns and now_ns - self._turn_told_ns < TURN_TOLD_APART_NS:
            return
        self._turn_told_ns = now_ns
        self.log("WRN", f"Clients have waited {turn_ns // 10**6} ms for a turn of the event loop")

    # What claims of accounts change

    def _claims_changed(self, account: JwtAccount) -> None:
        if not self.is_serving:
            return
        from penstock.server.accounts.reauthorize import reauthorize_members

        self.system.serve_accounts()
        self.serve_imports(account.name)
        found = self.identities.accounts.find(account.name)
        if self.jetstream is not None and found is not None:
            self.jetstream.serve_account(found)
        reauthorize_members(self, account)

    def _claims_ended(self, account: JwtAccount) -> None:
        from penstock.server.accounts.reauthorize import expire_members

        expire_members(self, account)
        found = self.identities.accounts.find(account.name)
        if self.jetstream is not None and found is not None:
            self.jetstream.serve_account(found)

    # Where it is, start and stop

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        listener = self._client_listener
        return listener.port if listener is not None else self.options.port

    @property
    def advertised(self) -> tuple[str, int]:
        """The host and port that clients are told to use."""
        return self.advertised_by(self.options)

    def advertised_by(self, options: ServerOptions) -> tuple[str, int]:
        """Return the host and port to advertise to clients; raise ValueError."""
        return advertised(options.client_advertise, options.host, self.port)

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        return local_url("nats", self.options.host, self.port)

    async def start(self) -> None:
        """Start listening and open the streams; raise CannotListen or UsageError."""
        self.loop = self.clients.loop = asyncio.get_running_loop()
        self.start_ns = self.config_load_ns = self.clock.now_ns()
        try:
            self.advertised_by(self.options)
        except ValueError as error:
            what = f"ClientAdvertise value of {self.options.client_advertise}, err={error}"
            raise UsageError(f"Error setting server INFO with {what}") from None
        self._client_listener = self._listen(
            self.options.host, self.options.port, self.clients.accept
        )
        # A port of -1 is replaced by the port that was bound.
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
            self.close_listeners()
            raise
        except OSError as error:
            self.close_listeners()
            port = self.options.http_port or self.options.https_port
            raise _cannot_listen("monitoring", self.options.http_host, port, error) from None
        self.identities.start(self.loop)
        self.system.start()
        self.serve_imports()
        try:
            self.open_streams()
        except UsageError:
            self.close_listeners()
            raise
        self.is_serving = True
        for listener in self._listeners:
            listener.start()
        self.turns.watch(self.loop)

    def serve_imports(self, name: str = "") -> None:
        """Apply the imports of all accounts, or of one account."""
        accounts = self.identities.declared
        looked_at = (accounts[name],) if name in accounts else accounts.values()
        if self.imports is None and any(each.imports for each in looked_at):
            # Most servers have no imports, and start without loading them.
            from penstock.server.accounts.imports_exports import AccountImports

            self.imports = AccountImports(self)
        if self.imports is not None and name:
            self.imports.apply_to(name, accounts)
        elif self.imports is not None:
            self.imports.apply(accounts)

    def open_streams(self) -> Callable[[], None]:
        """Open the streams that the options want; return a function that undoes it.

        Raises UsageError, and then nothing has changed. Streams that the options no longer want
        go on until `close_streams`.
        """
        options, service = self.options.jetstream, self.jetstream
        if options is None or not options.enabled:
            return lambda: None
        if service is not None:
            return service.change(options)
        # A server without streams starts without loading what only they need.
        from penstock.server.jetstream.service import JetStreamService

        started = JetStreamService(self, options)
        started.start()
        self.jetstream = started

        def undo() -> None:
            started.stop()
            self.jetstream = None

        return undo

    def close_streams(self) -> None:
        """Close the streams that the options no longer want."""
        options, service = self.options.jetstream, self.jetstream
        if service is not None and options is not None and options.enabled:
            service.settle()
        elif service is not None:
            self.jetstream = None
            service.stop()

    def _listen(self, host: str, port: int, accept: Callable[[socket.socket], None]) -> Listener:
        _check_port("clients", host, port)
        try:
            listening = self.sockets.take(host, port)
        except OSError as error:
            raise _cannot_listen("clients", host, port, error) from None
        listener = Listener(self.loop, listening, host, accept, self.log)
        self._listeners.append(listener)
        return listener

    def close_listeners(self) -> None:
        """Close the listeners: new clients are refused."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self.sockets.close()

    def random_below(self, bound: int) -> int:
        """Return a random number from 0 to below `bound`."""
        return int.from_bytes(self.random_bytes(8), "little") % bound

    async def stop(self) -> None:
        """Close the listeners and every connection, and make streams durable."""
        self.close_listeners()
        await self.monitoring.stop()
        self.system.stop()
        self.identities.stop()
        if self.jetstream is not None:
            await self.jetstream.finish_requests()
            self.jetstream.stop()
        for connection in self.clients.all():
            connection.close(ClosedReason.SERVER_SHUTDOWN)
        self.websockets.close()
        self.admission.close()
        self.turns.leave()

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
