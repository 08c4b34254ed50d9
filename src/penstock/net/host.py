"""What a connection needs of the server that it is in.

The seam between `net` and the server: defined here by its user, implemented above.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Protocol

from penstock.clock import Clock
from penstock.net.closing import ClosedReason
from penstock.net.memory import FreedMemory
from penstock.protocol.handshake import ConnectOptions
from penstock.routing.hub import Hub

if TYPE_CHECKING:
    from penstock.net.connection import Connection


class ConnectionLimits(Protocol):
    """The options that a connection looks at."""

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
        """How often a silent client is asked whether it is there."""
        ...

    @property
    def ping_max(self) -> int:
        """Questions without an answer before it is given up."""
        ...

    @property
    def write_deadline_ns(self) -> int:
        """How long a full socket is waited for."""
        ...

    @property
    def max_traced_msg_len(self) -> int:
        """Bytes of a message that a trace shows; 0 for all."""
        ...

    @property
    def trace_headers(self) -> bool:
        """Whether a trace shows headers alone."""
        ...

    @property
    def no_fast_producer_stall(self) -> bool:
        """Whether producers are never slowed down."""
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
        """Whether messages may have headers."""
        ...

    def info_line(self, connection: Connection, *, connect_info: bool) -> bytes:
        """Give INFO as a connection shall see it."""
        ...

    def authenticate(self, connection: Connection, options: ConnectOptions) -> None:
        """Call the connection's `admit` or `refuse`; later, if it is on `hold` until then."""
        ...

    def secured(self, connection: Connection, tls: ssl.SSLObject) -> str:
        """Note that a handshake is done; give a reason where the peer is not wanted, or ""."""
        ...

    def publish_traced(
        self,
        connection: Connection,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> bytes | None:
        """Route a message whose headers may ask to be traced; None where that is done.

        Otherwise give the headers with which it goes on as any other.
        """
        ...

    def trace_oversized(
        self, connection: Connection, subject: bytes, headers: bytes, size: int
    ) -> None:
        """Tell of a message that is too large; of its headers this much is there."""
        ...

    def left(self, connection: Connection, reason: ClosedReason) -> None:
        """Forget a connection that has closed."""
        ...

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        ...
