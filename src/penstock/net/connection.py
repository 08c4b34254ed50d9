"""One client connection: what is decided about it, in Python, on top of the compiled link.

Handshake, authentication, subscriptions, pings, violations and the end of a connection are here.
Messages are not: they pass through `routing.link` without a call into this file, unless a publish
must be checked (permissions, mappings, pedantic clients).

What always holds: once `close` ran, nothing of the connection is left in any sublist or timer, and
its host has heard of it exactly once.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.errors import FormatError, UsageError
from penstock.net.closing import ClosedReason
from penstock.net.filters import Filter, FilterFailed, TlsFilter
from penstock.protocol.handshake import ConnectOptions, parse_connect
from penstock.routing.link import Hub, Link
from penstock.routing.outbox import Outbox
from penstock.routing.sublist import Sublist, Subscription
from penstock.subjects import is_literal, is_valid_subject

_RESERVED_REPLIES = (b"$JS.ACK.", b"_R_.", b"_GR_.")
_RESERVED_SUBJECTS = (b"_GR_.", b"$NRG.")
_SYSTEM_QUEUE = b"_sys_"


class ConnectionLimits(Protocol):
    """The options that a connection looks at."""

    max_payload: int
    max_control_line: int
    max_pending: int
    max_subscriptions: int
    max_sub_tokens: int
    ping_interval_ns: int
    ping_max: int
    write_deadline_ns: int
    no_fast_producer_stall: bool


class Permitted(Protocol):
    """Who the client turned out to be, and what it may."""

    account_name: str
    sublist: Sublist
    user: str

    def may_publish(self, subject: bytes) -> bool: ...

    def may_subscribe(self, subject: bytes, queue: bytes | None) -> bool: ...


class Host(Protocol):
    """What a connection needs of the server."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    hub: Hub
    limits: ConnectionLimits
    headers_supported: bool

    def info_line(self, connection: Connection, *, connect_info: bool) -> bytes: ...

    def authenticate(self, connection: Connection, options: ConnectOptions) -> Any: ...

    def left(self, connection: Connection, reason: ClosedReason) -> None: ...

    def log(self, level: str, text: str) -> None: ...


class Connection(Link):
    """A client connection; see the module."""

    def __init__(
        self,
        host: Host,
        sock: socket.socket,
        cid: int,
        *,
        kind: str = "nats",
        filters: list[Filter] | None = None,
    ) -> None:
        super().__init__(host.hub, sock.fileno() if not filters else -1)
        self.host = host
        self.sock = sock
        self.cid = cid
        self.kind = kind
        self.filters: list[Filter] = filters or []
        self.options = ConnectOptions()
        self.identity: Any = None
        self.nonce = ""
        self.subscriptions: dict[bytes, Subscription] = {}
        peer = sock.getpeername()
        self.ip, self.port = (peer[0], peer[1]) if isinstance(peer, tuple) else ("", 0)
        self.start_ns = host.clock.now_ns()
        self.last_activity_ns = self.start_ns
        self.rtt_ns = 0
        self.close_reason: ClosedReason | None = None
        self.stop_ns = 0
        self._pings_out = 0
        self._ping_sent_ns = 0
        self._first_pong_sent = False
        self._messages_seen = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wire = Outbox()
        self._socket_fd = sock.fileno()
        self._reading = False
        limits = host.limits
        self.max_payload = limits.max_payload
        self.max_control_line = limits.max_control_line
        self.max_pending = limits.max_pending

    def __str__(self) -> str:
        """Name it as the log does."""
        described = f"{self.ip}:{self.port} - cid:{self.cid}"
        about = [f"v{self.options.version}"] if self.options.version else []
        about += [part for part in (self.options.lang, self.options.name) if part]
        return f'{described} - "{":".join(about)}"' if about else described

    # Beginning

    def start(self, *, auth_timeout_s: float | None) -> None:
        """Greet the client and begin to read."""
        self.send_info()
        if auth_timeout_s is not None:
            self.set_timer("auth", auth_timeout_s, self._auth_timed_out)
        else:
            self._ping_later(first=True)
        self.resume_reading()

    def send_info(self, *, connect_info: bool = False) -> None:
        """Send INFO."""
        self.write(self.host.info_line(self, connect_info=connect_info))
        self.hub.flush()

    def resume_reading(self) -> None:
        """Read whenever the socket has something."""
        if not self.closed and not self._reading:
            self._reading = True
            reader = self.on_readable if not self.filters else self._on_filtered
            self.host.loop.add_reader(self._socket_fd, reader)

    def pause_reading(self) -> None:
        """Read no more for now."""
        if self._reading:
            self._reading = False
            self.host.loop.remove_reader(self._socket_fd)

    def upgrade(self, tls: TlsFilter) -> None:
        """Go on under TLS: what was sent so far went in the clear."""
        self.pause_reading()
        self.filters = [tls, *self.filters]
        self.fd = -1
        self.resume_reading()

    def _on_filtered(self) -> None:
        try:
            data = self.sock.recv(131_072)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close(ClosedReason.READ_ERROR)
            return
        if not data:
            self.close(ClosedReason.CLIENT_CLOSED)
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        """Pass bytes of the socket through the filters to the protocol."""
        try:
            for place, each in enumerate(self.filters):
                data, answer = each.incoming(data)
                if answer:
                    self._send_through(answer, place)
                if not data:
                    return
        except FilterFailed as error:
            if error.farewell:
                self._send_wire(error.farewell)
            self.host.log("DBG", f"{self} - {error}")
            self.close(ClosedReason.TLS_HANDSHAKE_ERROR)
            return
        self.feed(data)

    # Authentication

    def on_connect(self, text: bytes) -> None:
        """Read CONNECT, find out who it is, and take over what was asked for."""
        try:
            options = parse_connect(text)
        except FormatError as error:
            self.host.log("ERR", f"{self} - {error.reason}")
            self.close(ClosedReason.PROTOCOL_VIOLATION)
            return
        again = self.connected
        self.options = options
        self.cancel_timer("auth")
        if again:
            self._drop_subscriptions()
        identity = self.host.authenticate(self, options)
        if identity is None:
            return
        self.become(identity)
        self.connected = True
        if options.protocol not in (0, 1):
            self.violate("invalid client protocol", ClosedReason.BAD_CLIENT_PROTOCOL)
            return
        self.verbose = options.verbose
        self.pedantic = options.pedantic
        self.echo = options.echo
        self.headers = options.headers and self.host.headers_supported
        self.no_responders = options.no_responders
        if options.no_responders and not self.headers:
            self.violate(
                "no responders requires headers support", ClosedReason.NO_RESPONDERS_NEEDS_HEADERS
            )
            return
        if self.verbose:
            self.write(b"+OK\r\n")
        self._ping_later(first=True)

    def become(self, identity: Any) -> None:
        """Take over an identity: account, permissions, limits."""
        self.identity = identity
        self.sublist = identity.sublist
        self.authorized = True
        self.checked = identity.checks_publish
        self.tracks_replies = identity.tracks_replies
        self.max_payload = identity.max_payload(self.host.limits.max_payload)

    def refuse(self, text: str, reason: ClosedReason) -> None:
        """Say why, and close."""
        self.violate(text, reason)

    def _auth_timed_out(self) -> None:
        self.violate("Authentication Timeout", ClosedReason.AUTHENTICATION_TIMEOUT)

    # Subscriptions

    def on_subscribe(self, subject: bytes, queue: bytes | None, sid: bytes) -> None:
        """Take a subscription, or say why not."""
        self.last_activity_ns = self.host.clock.now_ns()
        if queue == _SYSTEM_QUEUE or not self.identity.may_subscribe(subject, queue):
            using = f' using queue "{_shown(queue)}"' if queue is not None else ""
            self.error(f'Permissions Violation for Subscription to "{_shown(subject)}"{using}')
            return
        limits = self.host.limits
        if 0 < limits.max_sub_tokens < subject.count(b".") + 1:
            self.error(
                f'Permissions Violation for Subscription to "{_shown(subject)}", too many tokens'
            )
            return
        if sid not in self.subscriptions:
            allowed = self.identity.max_subscriptions(limits.max_subscriptions)
            if 0 < allowed <= len(self.subscriptions):
                self.error("maximum subscriptions exceeded")
                return
            if not self._insert(subject, queue, sid):
                return
        if self.verbose:
            self.write(b"+OK\r\n")

    def _insert(self, subject: bytes, queue: bytes | None, sid: bytes) -> bool:
        subscription = Subscription(self, subject, sid, queue)
        subscription.deny = self.identity.delivery_deny(subject, queue)
        try:
            self.sublist.insert(subscription)
        except UsageError:
            self.error("Invalid Subject")
            return False
        self.subscriptions[sid] = subscription
        return True

    def on_unsubscribe(self, sid: bytes, max_messages: int) -> None:
        """End a subscription, at once or after so many messages."""
        subscription = self.subscriptions.get(sid)
        if subscription is not None:
            if max_messages > 0 and max_messages > subscription.delivered:
                subscription.max_messages = max_messages
            else:
                self.on_auto_unsubscribed(subscription)
        if self.verbose:
            self.write(b"+OK\r\n")

    def on_auto_unsubscribed(self, subscription: Subscription) -> None:
        """Take a subscription out."""
        if self.subscriptions.pop(subscription.sid, None) is not None:
            self.sublist.remove(subscription)

    def _drop_subscriptions(self) -> None:
        for subscription in self.subscriptions.values():
            self.sublist.remove(subscription)
        self.subscriptions.clear()

    # Publishing, where it must be looked at

    def may_publish(self, subject: bytes, reply: bytes | None) -> bytes | None:
        """Decide on a publish; the subject that it goes on with, or None."""
        if self.pedantic and not (is_valid_subject(subject) and is_literal(subject)):
            self.error("Invalid Publish Subject")
        if subject.startswith(_RESERVED_SUBJECTS) or not self.identity.may_publish(subject):
            self.error(f'Permissions Violation for Publish to "{_shown(subject)}"')
            return None
        if reply is not None and reply.startswith(_RESERVED_REPLIES):
            self.error(f'Permissions Violation for Publish with Reply of "{_shown(reply)}"')
            return None
        return self.identity.mapped(subject)  # type: ignore[no-any-return]  # the host's identity

    def on_reply_delivered(self, reply: bytes) -> None:
        """Note that this client may answer to `reply`."""
        self.identity.note_reply(reply)

    # Liveness

    def on_ping(self) -> None:
        """Answer; the first answer to a CONNECT is followed by a second INFO."""
        self.write(b"PONG\r\n")
        self.last_activity_ns = self.host.clock.now_ns()
        if self.connected and not self._first_pong_sent:
            self._first_pong_sent = True
            if self.options.protocol >= 1:
                self.write(self.host.info_line(self, connect_info=True))

    def on_pong(self) -> None:
        """Note that the client is alive, and how far away."""
        self._pings_out = 0
        self.last_activity_ns = self.host.clock.now_ns()
        if self._ping_sent_ns:
            self.rtt_ns = self.host.clock.monotonic_ns() - self._ping_sent_ns
            self._ping_sent_ns = 0

    def _ping_later(self, *, first: bool = False) -> None:
        interval_s = self.host.limits.ping_interval_ns / 1e9
        delay_s = min(interval_s, 2.0) if first else interval_s
        self.set_timer("ping", delay_s, self._ping_timer)

    def _ping_timer(self) -> None:
        now_ns = self.host.clock.now_ns()
        busy = self.in_msgs != self._messages_seen
        self._messages_seen = self.in_msgs
        idle_ns = now_ns - self.last_activity_ns
        if busy or (idle_ns < self.host.limits.ping_interval_ns and self.rtt_ns):
            self._pings_out = 0
        elif self._pings_out + 1 > self.host.limits.ping_max:
            self.violate("Stale Connection", ClosedReason.STALE_CONNECTION)
            return
        else:
            self.ping()
        self._ping_later()

    def ping(self) -> None:
        """Ask the client whether it is there."""
        self._pings_out += 1
        self._ping_sent_ns = self.host.clock.monotonic_ns()
        self.write(b"PING\r\n")
        self.hub.flush()

    # Sending

    def drain(self) -> None:
        """Send what waits, through the filters."""
        if len(self.out) and all(each.ready for each in self.filters):
            self._send_through(self.out.take(), len(self.filters))

    def _send_through(self, data: bytes, place: int) -> None:
        for each in reversed(self.filters[:place]):
            data = each.outgoing(data)
        self._send_wire(data)

    def _send_wire(self, data: bytes) -> None:
        self._wire.append(data)
        if len(self._wire) > self.max_pending:
            self.on_slow()
        elif not self.blocked:
            self._send_rest()

    def _send_rest(self) -> None:
        left = self._wire.send_to(self._socket_fd)
        if left < 0:
            self.close(ClosedReason.WRITE_ERROR)
        elif left > 0 and not self.blocked:
            self.blocked = True
            self.on_blocked()

    def on_blocked(self) -> None:
        """Send the rest when the socket takes more; give up after the write deadline."""
        self.host.loop.add_writer(self._socket_fd, self._on_writable)
        self.set_timer("write", self.host.limits.write_deadline_ns / 1e9, self._write_timed_out)

    def _on_writable(self) -> None:
        if self.fd >= 0:
            done = self.send_waiting()
        else:
            self.blocked = False
            self._send_rest()
            done = not self.blocked
        if self.closed:
            return
        if done:
            self.host.loop.remove_writer(self._socket_fd)
            self.cancel_timer("write")
            self.hub.flush()
        else:
            self.set_timer(
                "write", self.host.limits.write_deadline_ns / 1e9, self._write_timed_out
            )

    def _write_timed_out(self) -> None:
        self.host.log("INF", f"{self} - Slow Consumer Detected: WriteDeadline exceeded")
        self.close(ClosedReason.SLOW_WRITE_DEADLINE)

    def on_slow(self) -> None:
        """Cut off a receiver that fell too far behind."""
        self.host.log(
            "INF", f"{self} - Slow Consumer Detected: MaxPending of {self.max_pending} Exceeded"
        )
        self.close(ClosedReason.SLOW_PENDING_BYTES)

    def on_stall(self) -> None:
        """Read no more of this producer for a moment, so that its receivers can catch up."""
        if not self.host.limits.no_fast_producer_stall:
            self.pause_reading()
            self.set_timer("stall", 0.005, self.resume_reading)

    # Ending

    def error(self, text: str) -> None:
        """Tell the client of an error and go on."""
        self.write(b"-ERR '" + text.encode("utf-8", "surrogateescape") + b"'\r\n")

    def violate(self, text: str, reason: ClosedReason) -> None:
        """Tell the client of an error and close."""
        if text:
            self.error(text)
        self.close(reason)

    def on_violation(self, kind: str, text: str) -> None:
        """End the connection for a broken protocol."""
        reasons = {
            "authorization": ClosedReason.AUTHENTICATION_VIOLATION,
            "control line": ClosedReason.MAX_CONTROL_LINE,
            "payload": ClosedReason.MAX_PAYLOAD,
        }
        self.violate(text, reasons.get(kind, ClosedReason.PROTOCOL_VIOLATION))

    def on_client_error(self, text: bytes) -> None:
        """A client that reports an error is gone."""
        self.host.log("ERR", f"{self} - Client Error {_shown(text)}")
        self.close(ClosedReason.PARSE_ERROR)

    def on_end(self) -> None:
        """The client closed."""
        self.close(ClosedReason.CLIENT_CLOSED)

    def on_lost(self) -> None:
        """The connection broke."""
        self.close(ClosedReason.CLIENT_CLOSED)

    def close(self, reason: ClosedReason) -> None:
        """Send what can be sent at once, and let go of everything."""
        if self.closed:
            return
        self.close_reason = reason
        self.stop_ns = self.host.clock.now_ns()
        with contextlib.suppress(OSError, FilterFailed, ValueError):
            self._say_goodbye()
        self.closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._drop_subscriptions()
        self.host.loop.remove_reader(self._socket_fd)
        self.host.loop.remove_writer(self._socket_fd)
        self.sock.close()
        self.host.left(self, reason)

    def _say_goodbye(self) -> None:
        if self.slow or self.blocked:
            return
        if self.fd >= 0:
            self.send_waiting_once()
            return
        self.drain()
        for place in range(len(self.filters) - 1, -1, -1):
            if self.filters[place].ready:
                self._send_through(self.filters[place].farewell(), place)

    # Timers

    def set_timer(self, name: str, delay_s: float, action: Callable[[], None]) -> None:
        """Do something later, instead of what was planned under this name."""
        self.cancel_timer(name)
        self._timers[name] = self.host.loop.call_later(delay_s, action)

    def cancel_timer(self, name: str) -> None:
        """Give up what was planned under this name."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _shown(text: bytes | None) -> str:
    return (text or b"").decode("utf-8", "surrogateescape")
