"""The WebSocket listener: the same connections, with frames between the socket and the protocol.

A client that arrives is none yet: it has a time to shake hands under TLS and to send its upgrade
request, and nobody counts it until both are done. Then it enters the server as others do, with
what its request told: cookies with credentials, the address for which a proxy asks.

One thread: the event loop's.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.config.options import ServerOptions, WebsocketOptions
from penstock.limits import WEBSOCKET_UPGRADE_S_MAX
from penstock.monitor.facts import WebsocketFacts
from penstock.net.closing import ClosedReason
from penstock.net.connection import Connection
from penstock.net.filters import TlsFilter
from penstock.net.http_upgrade import UpgradeRequest, WebSocketRules
from penstock.net.opening import TlsTerms
from penstock.net.websocket import WebSocketFilter
from penstock.server.encryption import tls_terms

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.server.server import Server


class WebSocketDoor:
    """Where WebSocket clients arrive; see the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._arriving: set[Connection] = set()
        self.tls: TlsTerms | None = None

    def accept(self, sock: socket.socket) -> None:
        """Take a socket, and let its client in when it has upgraded."""
        server, options = self._server, self._options
        upgrading = new_filter(options, server.options.max_payload, is_tls=self.tls is not None)
        try:
            connection = Connection(server, sock, 0, kind="websocket", filters=[upgrading])
        except OSError:
            sock.close()
            return
        self._arriving.add(connection)
        timeout_s = options.handshake_timeout_ns / 1e9 or WEBSOCKET_UPGRADE_S_MAX
        connection.set_timer("upgrade", timeout_s, lambda: _give_up(connection))

        def enter() -> None:
            assert upgrading.request is not None, "it is ready"
            self._enter(connection, upgrading.request)

        if self.tls is None:
            connection.when_ready(enter)
        else:
            connection.upgrade(TlsFilter(self.tls.context), enter)

    @property
    def _options(self) -> WebsocketOptions:
        options = self._server.options.websocket
        assert options is not None, "its listener is open"
        return options

    def _enter(self, connection: Connection, request: UpgradeRequest) -> None:
        self._arriving.discard(connection)
        connection.cancel_timer("upgrade")
        connection.cid = self._server.new_cid()
        connection.forwarded_for = request.forwarded_for
        connection.cookies = credentials_in_cookies(self._options, request)
        connection.ping_interval_ns = self._options.ping_interval_ns
        connection.start_ns = connection.last_activity_ns = self._server.clock.now_ns()
        self._server.enter(connection)

    def facts(self) -> WebsocketFacts | None:
        """Give what the listener was told; None where there is none."""
        options = self._server.options.websocket
        if options is None:
            return None
        tls = options.tls
        return WebsocketFacts(
            host=options.host,
            port=options.port,
            advertise=options.advertise,
            no_auth_user=options.no_auth_user,
            jwt_cookie=options.jwt_cookie,
            handshake_timeout_ns=options.handshake_timeout_ns,
            auth_timeout_s=options.authorization.timeout_s,
            no_tls=options.no_tls,
            maps_certificates=tls is not None and tls.verify_and_map,
            pinned_keys=tuple(sorted(tls.pinned_certs)) if tls is not None else (),
            same_origin=options.same_origin,
            allowed_origins=options.allowed_origins,
            compression=options.compression,
            certificate_end_ns=self.tls.certificate_end_ns if self.tls is not None else 0,
        )

    def forget(self, connection: Connection) -> None:
        """Note that a connection has closed, if it was only arriving."""
        self._arriving.discard(connection)

    def close(self) -> None:
        """Send away whoever has not upgraded yet."""
        for connection in list(self._arriving):
            connection.close(ClosedReason.SERVER_SHUTDOWN)


def _give_up(connection: Connection) -> None:
    connection.host.log("DBG", f"{connection} - websocket handshake timeout")
    connection.close(ClosedReason.CLIENT_CLOSED)


def websocket_terms(options: ServerOptions, clock: Clock) -> TlsTerms | None:
    """Give the listener's TLS terms: the hand-shake always goes first. Raises UsageError."""
    websocket = options.websocket
    if websocket is None or not websocket.port:
        return None
    terms = tls_terms(websocket.tls, clock, is_optional=False)
    return None if terms is None else replace(terms, first_delay_s=0.0)


def new_filter(options: WebsocketOptions, max_payload: int, *, is_tls: bool) -> WebSocketFilter:
    """Build the filter of one connection."""
    return WebSocketFilter(
        WebSocketRules(
            payload_max=max_payload,
            compression=options.compression,
            same_origin=options.same_origin,
            allowed_origins=options.allowed_origins,
            is_tls=is_tls,
            extra_headers=tuple(options.headers.items()),
        )
    )


def credentials_in_cookies(options: WebsocketOptions, request: UpgradeRequest) -> dict[str, str]:
    """Give what cookies say of a client, for a CONNECT that does not: {field: value}."""
    cookies = request.cookies
    named = {
        "jwt": options.jwt_cookie,
        "user": options.user_cookie,
        "password": options.pass_cookie,
        "auth_token": options.token_cookie,
    }
    return {
        field: cookies[cookie] for field, cookie in named.items() if cookie and cookie in cookies
    }
