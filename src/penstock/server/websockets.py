"""The WebSocket listener: the same connections, with frames between the socket and the protocol.

Builds each connection's filters from the options. One thread: the event loop's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config.options import WebsocketOptions
from penstock.net.opening import TlsTerms
from penstock.net.websocket import Upgrade, WebSocketFilter, WebSocketRules
from penstock.server.encryption import tls_terms

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.net.connection import Connection

FRAME_OVERHEAD_BYTES = 64 * 1024
"""What a frame may hold beside the largest payload: control lines and smaller messages."""


def websocket_terms(options: WebsocketOptions, clock: Clock) -> TlsTerms | None:
    """Give the listener's TLS terms: the hand-shake always goes first. Raises UsageError."""
    terms = None if options.no_tls else tls_terms(options.tls, clock, is_optional=False)
    return None if terms is None else replace(terms, first_delay_s=0.0)


def new_filter(options: WebsocketOptions, max_payload: int, *, is_tls: bool) -> WebSocketFilter:
    """Build the filter of one connection."""
    return WebSocketFilter(
        WebSocketRules(
            payload_max=max_payload + FRAME_OVERHEAD_BYTES,
            compression=options.compression,
            same_origin=options.same_origin,
            allowed_origins=options.allowed_origins,
            is_tls=is_tls,
            extra_headers=tuple(options.headers.items()),
        )
    )


def take_cookies(connection: Connection, options: WebsocketOptions, request: Upgrade) -> None:
    """Keep what the cookies say of a client, for a CONNECT that does not say it."""
    named = {
        "jwt": options.jwt_cookie,
        "user": options.user_cookie,
        "password": options.pass_cookie,
        "auth_token": options.token_cookie,
    }
    connection.cookies = {
        field: request.cookies[cookie]
        for field, cookie in named.items()
        if cookie and cookie in request.cookies
    }
