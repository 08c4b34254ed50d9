"""How a connection begins: in the clear, under TLS, or as the client chooses.

    INFO first (the rule)     INFO in the clear, then the handshake
    handshake first           the handshake, then INFO
    first, with a delay       a client that starts a handshake in time has it first; others get INFO
    TLS is optional           INFO, then the first byte of the client decides
    behind a load balancer    as above, with the PROXY protocol's header before any handshake

Invariant: nothing of the protocol is read before this is decided. A handshake that takes longer
than it may ends the connection without a word, as in the reference server.

One thread: the event loop's. Used by `net.connection` alone.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from penstock.clock import Clock
from penstock.config.options.values import join_host_port
from penstock.errors import FormatError
from penstock.limits import PROXY_HEADER_S_MAX
from penstock.net.host import ClosedReason
from penstock.net.tls import TLS_HANDSHAKE_RECORD, TlsFilter
from penstock.protocol.handshake import PROXY_HEADER_BYTES_MAX, read_proxy_header

if TYPE_CHECKING:
    from penstock.net.connection import Connection

SECOND_NS = 10**9


class HandshakeRate:
    """How many handshakes may start in a second: they cost more than anything else a client can do.

    Seconds begin with the first handshake after the last one ended.
    """

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._per_second = per_second
        self._clock = clock
        self._begun_ns = clock.monotonic_ns() - SECOND_NS
        self._count = 0

    def allows(self) -> bool:
        """Return True if one more may start now, and count it."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._begun_ns >= SECOND_NS:
            self._begun_ns = now_ns
            self._count = 0
        self._count += 1
        return self._count <= self._per_second


class TlsTerms(msgspec.Struct, frozen=True):
    """Under which terms a listener speaks TLS.

    `first_delay_s` is None where INFO goes first, 0 where the handshake always does, and otherwise
    how long a client has to start one before it is sent INFO. Of an optional one the client's first
    byte decides.
    """

    context: ssl.SSLContext
    timeout_s: float
    first_delay_s: float | None = None
    is_optional: bool = False
    pinned_keys: frozenset[str] = frozenset()
    certificate_end_ns: int = 0
    rate: HandshakeRate | None = None


class Opening:
    """The time between a connection's arrival and its first operation; see the module."""

    def __init__(
        self, connection: Connection, tls: TlsTerms | None, done: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._tls = tls
        self._done = done
        self._proxy_bytes_seen = 0

    def begin(self) -> None:
        """Greet the client as the terms say; `done` is called when that is over."""
        tls = self._tls
        if tls is None:
            self._connection.send_info()
            self._past_proxy(self._done)
        elif tls.first_delay_s is None:
            self._greet(tls)
        elif tls.first_delay_s == 0:
            self._past_proxy(lambda: self._secure_first(tls))
        else:
            self._wait_for_handshake(tls, tls.first_delay_s)

    def _wait_for_handshake(self, tls: TlsTerms, delay_s: float) -> None:
        def came() -> None:
            # A load balancer's header is no handshake: the client's first bytes follow it.
            if self._connection.peer_known:
                self._secure_first(tls)
            else:
                self._past_proxy(lambda: self._wait_for_handshake(tls, delay_s))

        self._connection.when_readable(came)
        self._connection.set_timer("tls", delay_s, lambda: self._greet(tls))

    def _greet(self, tls: TlsTerms) -> None:
        self._connection.tls_first = False
        self._connection.send_info()
        self._past_proxy(lambda: self._greeted(tls))

    def _greeted(self, tls: TlsTerms) -> None:
        if tls.is_optional:
            self._connection.when_readable(lambda: self._look(tls))
            self._connection.set_timer("tls", tls.timeout_s, self._go_on_in_the_clear)
        else:
            self._secure(tls, self._secured)

    # Behind a load balancer

    def _past_proxy(self, then: Callable[[], None]) -> None:
        connection = self._connection
        if connection.peer_known:
            then()
            return
        connection.cancel_timer("tls")
        connection.set_timer("proxy", PROXY_HEADER_S_MAX, self._no_proxy_header)
        connection.when_readable(lambda: self._look_for_proxy(then))

    def _look_for_proxy(self, then: Callable[[], None]) -> None:
        connection = self._connection
        try:
            seen = connection.sock.recv(PROXY_HEADER_BYTES_MAX, socket.MSG_PEEK)
            if len(seen) == self._proxy_bytes_seen:
                # It was called although nothing more came: nothing more will.
                self._no_proxy_header()
                return
            self._proxy_bytes_seen = len(seen)
            header = read_proxy_header(seen)
            # What is no header, or not all of one, stays where it is until more is there.
            wanted = len(seen) + 1 if header is None else 1
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            if header is None:
                return
            connection.sock.recv(header.size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            connection.close(ClosedReason.READ_ERROR)
            return
        except FormatError as error:
            self._refuse_proxy(error.reason)
            return
        connection.cancel_timer("proxy")
        connection.peer_known = True
        if header.ip is not None:
            connection.ip, connection.port = header.ip, header.port
        then()

    def _no_proxy_header(self) -> None:
        self._refuse_proxy("failed to read protocol version")

    def _refuse_proxy(self, reason: str) -> None:
        connection = self._connection
        where = join_host_port(connection.ip, connection.port)
        told = f"Error reading PROXY protocol header from {where}: {reason}"
        connection.host.log("WRN", told)
        # What lies unread in a socket that is closed would reach the other side as a reset.
        with contextlib.suppress(OSError):
            connection.sock.recv(PROXY_HEADER_BYTES_MAX)
        connection.close(ClosedReason.PROTOCOL_VIOLATION)

    # Under TLS

    def _look(self, tls: TlsTerms) -> None:
        try:
            first = self._connection.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if first == TLS_HANDSHAKE_RECORD:
            self._secure(tls, self._secured)
        else:
            self._go_on_in_the_clear()

    def _go_on_in_the_clear(self) -> None:
        self._connection.cancel_timer("tls")
        self._done()

    def _secure_first(self, tls: TlsTerms) -> None:
        self._connection.tls_first = True
        self._secure(tls, self._secured_first)

    def _secure(self, tls: TlsTerms, then: Callable[[], None]) -> None:
        connection = self._connection
        if tls.rate is not None and not tls.rate.allows():
            throttled = "Connection throttling is active. Please try again later."
            connection.refuse(throttled, ClosedReason.MAX_CONNECTIONS)
            return
        connection.host.log("DBG", f"{connection} - Starting TLS client connection handshake")
        connection.set_timer("tls", tls.timeout_s, self._timed_out)
        connection.upgrade(TlsFilter(tls.context), then)

    def _secured(self) -> None:
        self._connection.cancel_timer("tls")
        self._done()

    def _secured_first(self) -> None:
        self._connection.send_info()
        self._connection.tls_first = False
        self._connection.did_tls_first = True
        self._secured()

    def _timed_out(self) -> None:
        connection = self._connection
        connection.host.log("DBG", f"{connection} - TLS handshake timeout")
        connection.close(ClosedReason.TLS_HANDSHAKE_ERROR)
