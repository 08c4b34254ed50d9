"""What a connection needs of its server, and the reasons why connections close.

`Host` is defined here by its user and implemented by `server.server`. Reasons are in the reference
server's words: /connz and events show them.
"""

from __future__ import annotations

import asyncio
import ssl
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from penstock.clock import Clock
from penstock.net.memory import FreedMemory
from penstock.protocol.handshake import ConnectOptions
from penstock.routing.hub import Hub

if TYPE_CHECKING:
    from penstock.net.connection import Connection


class ClosedReason(StrEnum):
    """Reasons of a closed connection."""

    CLIENT_CLOSED = "Client Closed"
    AUTHENTICATION_TIMEOUT = "Authentication Timeout"
    AUTHENTICATION_VIOLATION = "Authentication Failure"
    TLS_HANDSHAKE_ERROR = "TLS Handshake Failure"
    SLOW_PENDING_BYTES = "Slow Consumer (Pending Bytes)"
    SLOW_WRITE_DEADLINE = "Slow Consumer (Write Deadline)"
    WRITE_ERROR = "Write Error"
    READ_ERROR = "Read Error"
    PARSE_ERROR = "Parse Error"
    STALE_CONNECTION = "Stale Connection"
    PROTOCOL_VIOLATION = "Protocol Violation"
    BAD_CLIENT_PROTOCOL = "Bad Client Protocol Version"
    WRONG_PORT = "Incorrect Port"
    MAX_ACCOUNT_CONNECTIONS = "Maximum Account Connections Exceeded"
    MAX_CONNECTIONS = "Maximum Connections Exceeded"
    MAX_PAYLOAD = "Maximum Message Payload Exceeded"
    MAX_CONTROL_LINE = "Maximum Control Line Exceeded"
    MAX_SUBSCRIPTIONS = "Maximum Subscriptions Exceeded"
    SERVER_SHUTDOWN = "Server Shutdown"
    AUTHENTICATION_EXPIRED = "Authentication Expired"
    CREDENTIALS_REVOKED = "Credentials Revoked"
    MISSING_ACCOUNT = "Missing Account"
    NO_RESPONDERS_NEEDS_HEADERS = "No Responders Requires Headers"
    KICKED = "Kicked"


class ConnectionLimits(Protocol):
    """The options that a connection reads."""

    @property
    def max_payload(self) -> int:
        """Bytes of the largest message, headers counted."""
        ...

    @property
    def max_control_line(self) -> int:
        """Bytes of an operation's arguments."""
        ...

    @property
    def max_pending(self) -> int:
        """Bytes that may wait for a receiver."""
        ...

    @property
    def max_subscriptions(self) -> int:
        """Subscriptions of one connection; 0 for any number."""
        ...

    @property
    def max_sub_tokens(self) -> int:
        """Tokens of a subscription's subject; 0 for any number."""
        ...

    @property
    def ping_interval_ns(self) -> int:
        """How often a silent client is pinged."""
        ...

    @property
    def ping_max(self) -> int:
        """Pings without an answer before the client is given up."""
        ...

    @property
    def write_deadline_ns(self) -> int:
        """How long a full socket may stay full."""
        ...

    @property
    def max_traced_msg_len(self) -> int:
        """Bytes of a message that a trace shows; 0 for all."""
        ...

    @property
    def trace_headers(self) -> bool:
        """True if a trace shows headers alone."""
        ...

    @property
    def no_fast_producer_stall(self) -> bool:
        """True if producers are never slowed down."""
        ...


class Host(Protocol):
    """The server, as a connection sees it."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    hub: Hub
    freed_memory: FreedMemory
    # How often producers were slowed down, all of them together.
    stalls: int

    @property
    def limits(self) -> ConnectionLimits:
        """What bounds a connection now."""
        ...

    @property
    def headers_supported(self) -> bool:
        """True if messages may have headers."""
        ...

    def info_line(self, connection: Connection, *, connect_info: bool) -> bytes:
        """Return INFO as this connection shall see it."""
        ...

    def authenticate(self, connection: Connection, options: ConnectOptions) -> None:
        """Call the connection's `admit` or `refuse`; later, if it is on `hold` until then."""
        ...

    def secured(self, connection: Connection, tls: ssl.SSLObject) -> str:
        """Note that a handshake is done; return a reason to refuse the peer, or ""."""
        ...

    def publish_traced(
        self,
        connection: Connection,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> bytes | None:
        """Route a message whose headers may ask to be traced, and return None.

        Or return the headers with which it goes on as any other.
        """
        ...

    def trace_oversized(
        self, connection: Connection, subject: bytes, headers: bytes, size: int
    ) -> None:
        """Trace a message that is too large; `headers` is what came of them."""
        ...

    def left(self, connection: Connection, reason: ClosedReason) -> None:
        """Forget a connection that has closed."""
        ...

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        ...
