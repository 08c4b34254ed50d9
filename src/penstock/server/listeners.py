"""Listeners' TLS, and the WebSocket listener: frames between the socket and the protocol.

`tls_terms` reads the files that the options name, at start and on each reload. So a certificate
that was renewed in place is used for new connections. Raises UsageError.

A WebSocket client has a limited time to finish the TLS handshake and to send its upgrade request.
Until both are done it is not counted as a connection. Then it enters the server as others do, with
what its request said: credentials in cookies, the address that a proxy forwards.

Thread: the event loop's.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.clock import Clock
from penstock.config.options.server import ServerOptions, TlsOptions, WebsocketOptions
from penstock.limits import WEBSOCKET_UPGRADE_S_MAX
from penstock.monitor.facts import WebsocketFacts
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.net.opening import HandshakeRate, TlsTerms
from penstock.net.tls import TlsFilter

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.net.connection import Connection
    from penstock.net.websocket import WebSocketFilter
    from penstock.net.websocket_deflate import Packer
    from penstock.net.websocket_upgrade import UpgradeRequest
    from penstock.server.server import Server


def tls_terms(tls: TlsOptions | None, clock: Clock, *, is_optional: bool) -> TlsTerms | None:
    """Build a listener's terms; None where it does without TLS."""
    if tls is None:
        return None
    # Here and below: a server without TLS starts without loading what only TLS needs.
    from penstock.security.tls import certificate_end_ns, server_context

    certificates = tls.certs or (((tls.cert_file, tls.key_file),) if tls.cert_file else ())
    context = server_context(
        certificates=certificates,
        ca_file=tls.ca_file,
        verify=tls.verify or tls.verify_and_map,
        min_version=tls.min_version,
        cipher_suites=tls.cipher_suites,
        allow_insecure_cipher_suites=tls.allow_insecure_cipher_suites,
        curve_preferences=tls.curve_preferences,
    )
    first_ns = tls.handshake_first_ns
    return TlsTerms(
        context,
        timeout_s=tls.timeout_s,
        first_delay_s=None if first_ns is None else first_ns / 1e9,
        is_optional=is_optional,
        pinned_keys=tls.pinned_certs,
        certificate_end_ns=certificate_end_ns(certificates[0][0]) if certificates else 0,
        rate=HandshakeRate(limit, clock) if (limit := tls.connection_rate_limit) > 0 else None,
    )


def note_encryption(connection: Connection, tls: ssl.SSLObject, terms: TlsTerms | None) -> str:
    """Keep what monitoring and authentication need of a handshake; a reason to refuse, or ""."""
    from penstock.security.tls import describe, has_expired, peer_certificate

    described = describe(tls)
    if described is not None:
        connection.tls_version = described.version
        connection.tls_cipher = described.cipher_suite
    connection.peer_certificate = peer_certificate(tls)
    if has_expired(tls, connection.host.clock.now_ns()):
        return "tls: failed to verify certificate: certificate has expired"
    return "" if is_pinned(connection, terms) else "certificate not pinned"


def is_pinned(connection: Connection, terms: TlsTerms | None) -> bool:
    """Return True if no certificates are pinned, or the client's is one of them."""
    if terms is None or not terms.pinned_keys:
        return True
    shown = connection.peer_certificate
    return shown is not None and shown.key_fingerprint in terms.pinned_keys


class WebSocketListener:
    """Where WebSocket clients arrive; see the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._arriving: set[Connection] = set()
        self.tls: TlsTerms | None = None
        self._packer: Packer | None = None

    def accept(self, sock: socket.socket) -> None:
        """Take a socket, and let its client in when it has upgraded."""
        server, options = self._server, self._options
        if self._packer is None:
            # Here and below: a server without WebSocket clients starts without loading it.
            from penstock.net.websocket_deflate import Packer

            self._packer = Packer()
        upgrading = new_filter(
            options, server.options.max_payload, self._packer, is_tls=self.tls is not None
        )
        try:
            connection = Connection(server.clients, sock, 0, kind="websocket", filters=[upgrading])
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
        connection.cid = self._server.clients.new_cid()
        connection.forwarded_for = request.forwarded_for
        connection.cookies = credentials_in_cookies(self._options, request)
        connection.ping_interval_ns = self._options.ping_interval_ns
        connection.start_ns = connection.last_activity_ns = self._server.clock.now_ns()
        self._server.clients.enter(connection)

    def facts(self) -> WebsocketFacts | None:
        """Return the settings that monitoring shows; None without a listener."""
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
        """Close the connections that have not upgraded yet."""
        for connection in list(self._arriving):
            connection.close(ClosedReason.SERVER_SHUTDOWN)


def _give_up(connection: Connection) -> None:
    connection.host.log("DBG", f"{connection} - websocket handshake timeout")
    connection.close(ClosedReason.CLIENT_CLOSED)


def websocket_terms(options: ServerOptions, clock: Clock) -> TlsTerms | None:
    """Return the listener's TLS terms, with the handshake first; raise UsageError."""
    websocket = options.websocket
    if websocket is None or not websocket.port:
        return None
    terms = tls_terms(websocket.tls, clock, is_optional=False)
    return None if terms is None else replace(terms, first_delay_s=0.0)


def new_filter(
    options: WebsocketOptions, max_payload: int, packer: Packer, *, is_tls: bool
) -> WebSocketFilter:
    """Build the filter of one connection."""
    from penstock.net.websocket import WebSocketFilter
    from penstock.net.websocket_upgrade import WebSocketRules

    return WebSocketFilter(
        WebSocketRules(
            payload_max=max_payload,
            compression=options.compression,
            same_origin=options.same_origin,
            allowed_origins=options.allowed_origins,
            is_tls=is_tls,
            extra_headers=tuple(options.headers.items()),
        ),
        packer,
    )


def credentials_in_cookies(options: WebsocketOptions, request: UpgradeRequest) -> dict[str, str]:
    """Return the credentials in a client's cookies, as fields of CONNECT."""
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
