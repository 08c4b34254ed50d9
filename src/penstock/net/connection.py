"""One client connection: what is decided about it, in Python, on top of the compiled link.

Handshake, authentication, subscriptions, pings, violations and the end of a connection are here.
Messages are not: they pass through `net.link` without a call into this file, unless a publish
must be looked at (reserved subjects, pedantic clients). Nor are sockets: these are the
business of `net.channel`.

One thread: the event loop's.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from itertools import islice
from operator import length_hint
from typing import Any

from penstock.config.options.values import join_host_port
from penstock.errors import FormatError, UsageError
from penstock.limits import RTT_GOOD_NS_MAX, SUBSCRIPTIONS_REMOVED_PER_TURN
from penstock.net.channel import Channel
from penstock.net.host import ClosedReason, Host
from penstock.net.opening import Opening, TlsTerms
from penstock.net.tls import Filter, TlsFilter
from penstock.protocol.handshake import ConnectOptions, parse_connect, parse_object
from penstock.routing.sublist import Subscription
from penstock.text.quoting import quoted_bytes

# Subjects between servers. Of most, the bare beginning is not reserved.
_RESERVED_REPLIES = re.compile(rb"_R_\.|(\$JS\.ACK\.|_GR_\.|\$GR\.).", re.DOTALL)
_RESERVED_SUBJECTS = re.compile(rb"\$NRG\.|(_GR_\.|\$GR\.).", re.DOTALL)
_NEVER_PUBLISHED_TO = frozenset((b"", b"*", b">"))
_SYSTEM_QUEUE = b"_sys_"
_LOGGED_VIOLATIONS = {
    "authorization": "authentication error",
    "arguments": "wrong number of arguments",
    "control line": "maximum control line exceeded",
    "headers": "message headers not supported",
    "parse": "Client parser ERROR",
    "payload": "maximum payload exceeded",
    "size": "bad or missing size",
}
"""What the log says of a broken protocol, by its kind."""


class Connection(Channel):
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
        super().__init__(host, sock, filters)
        self.cid = cid
        self.kind = kind
        self.options = ConnectOptions()
        self.identity: Any = None
        self.nonce = ""
        # From its cookies, where CONNECT has nothing: {field of ConnectOptions: value}.
        self.cookies: dict[str, str] = {}
        # The address for which a proxy connects; only the log shows it.
        self.forwarded_for = ""
        # Its own ping interval; 0 for that of the options.
        self.ping_interval_ns = 0
        self.subscriptions: dict[bytes, Subscription] = {}
        # What it had when it closed, for the record that monitoring shows.
        self.last_subscriptions: tuple[Subscription, ...] = ()
        # What monitoring shows of TLS, and who the peer's certificate says it is.
        self.tls_version = ""
        self.tls_cipher = ""
        self.peer_certificate: Any = None
        # The handshake goes before INFO, and INFO says that TLS is required.
        self.tls_first = False
        # It went first.
        self.did_tls_first = False
        # False while a load balancer may still name the client.
        self.peer_known = True
        self.start_ns = host.clock.now_ns()
        self.last_activity_ns = self.start_ns
        self.rtt_ns = 0
        self._pings_out = 0
        self._ping_sent_ns = 0
        self._pinged_ns = 0
        self._first_pong_sent = False
        self._messages_seen = 0
        self._subscriptions_refused = False
        limits = host.limits
        self.max_payload = limits.max_payload
        self.max_control_line = limits.max_control_line
        self.max_pending = limits.max_pending

    def __str__(self) -> str:
        """Name it as the log does."""
        described = join_host_port(self.ip, self.port)
        if self.forwarded_for:
            shown_ip = self.forwarded_for
            described = f"{f'[{shown_ip}]' if ':' in shown_ip else shown_ip}/{described}"
        if self.cid:
            described += f" - {'wid' if self.kind == 'websocket' else 'cid'}:{self.cid}"
        if not self.connected:
            return described
        options = self.options
        about = [f"v{options.version}"] if options.version else []
        about += [part for part in (options.lang, options.name) if part]
        who = self.user_label
        account = self.identity.account_label
        parts = (":".join(about), f"{account}/{who}" if who else "")
        shown = [quoted_bytes(part.encode("utf-8", "surrogateescape")) for part in parts if part]
        return " - ".join([described, *shown])

    @property
    def user_label(self) -> str:
        """The user as the client named it, without anything secret; "" where it did not."""
        options = self.options
        if options.nkey:
            return f"nkey:{options.nkey}"
        if options.user:
            return f"user:{options.user}"
        if options.jwt and self.identity is not None and self.identity.token_user:
            return f"jwt:{self.identity.token_user}"
        return "token" if options.auth_token else ""

    # Beginning

    def start(self, *, auth_timeout_s: float | None, tls: TlsTerms | None = None) -> None:
        """Greet the client and begin to read."""
        Opening(self, tls, lambda: self._opened(auth_timeout_s)).begin()

    def _opened(self, auth_timeout_s: float | None) -> None:
        if auth_timeout_s is not None:
            self.set_timer("auth", auth_timeout_s, self._auth_timed_out)
        else:
            self._ping_later(first=True)
        self.pause_reading()
        self.resume_reading()

    def send_info(self, *, connect_info: bool = False) -> None:
        """Send INFO."""
        self.write(self.host.info_line(self, connect_info=connect_info))
        self.hub.flush()

    def on_secured(self, tls: TlsFilter) -> str:
        """Let the server judge the peer's certificate."""
        return self.host.secured(self, tls.tls)

    # Authentication

    def on_connect(self, text: bytes) -> None:
        """Read CONNECT and authenticate the client."""
        try:
            options = parse_connect(text, self.options)
        except FormatError as error:
            self.host.log("ERR", f"{self} - {error.reason}")
            self.close(ClosedReason.PROTOCOL_VIOLATION)
            return
        for field, value in self.cookies.items():
            if not getattr(options, field):
                setattr(options, field, value)
        again = self._is_known
        self.options = options
        self.last_activity_ns = self.host.clock.now_ns()
        # A first estimate, until a PING is answered.
        self._note_rtt(self.last_activity_ns - self.start_ns)
        self.cancel_timer("auth")
        if again:
            self._drop_subscriptions()
        self.host.authenticate(self, options)

    @property
    def _is_known(self) -> bool:
        # A client that needs no credentials has, in a way, connected with its first operation.
        return self.connected or (self.identity is not None and bool(self.identity.user))

    def admit(self, identity: Any) -> None:
        """Accept the client under an identity, with the options of its CONNECT."""
        options = self.options
        self.become(identity)
        self.connected = True
        if options.protocol not in (0, 1):
            self._log_error("invalid client protocol")
            self.refuse("invalid client protocol", ClosedReason.BAD_CLIENT_PROTOCOL)
            return
        self.verbose = options.verbose
        self.pedantic = options.pedantic
        self.echo = options.echo
        self.headers = options.headers and self.host.headers_supported
        self.no_responders = options.no_responders
        if options.no_responders and not self.headers:
            unmet = "no responders requires headers support"
            self._log_error(unmet)
            self.refuse(unmet, ClosedReason.NO_RESPONDERS_NEEDS_HEADERS)
            return
        if self.verbose:
            self.write(b"+OK\r\n")
        self._ping_later(first=True)

    def become(self, identity: Any) -> None:
        """Adopt an identity: account, permissions, limits."""
        self.identity = identity
        self.introductions = None
        self.sublist = identity.sublist
        self.authorized = True
        self.publishing = identity.publishing
        self.responses = identity.responses
        self.mappings = identity.mappings
        self.traces_parents = identity.traces_parents
        self.max_payload = identity.max_payload(self.host.limits.max_payload)

    def _auth_timed_out(self) -> None:
        if self.authorized and (self.subscriptions or self.in_msgs or self._pinged_ns):
            # A client that needs no credentials has connected with its first operation.
            self._ping_later(first=True)
            return
        self.host.log("DBG", f"{self} - Authentication Timeout")
        self.refuse("Authentication Timeout", ClosedReason.AUTHENTICATION_TIMEOUT)

    # Subscriptions

    def on_subscribe(self, subject: bytes, queue: bytes | None, sid: bytes) -> None:
        """Add a subscription, or send the client an error."""
        self.last_activity_ns = self.host.clock.now_ns()
        if queue == _SYSTEM_QUEUE or not self.identity.may_subscribe(subject, queue):
            using = f" using queue {quoted_bytes(queue)}" if queue is not None else ""
            self.error(f"Permissions Violation for Subscription to {quoted_bytes(subject)}{using}")
            what = f", Queue: {quoted_bytes(queue)}" if queue is not None else ""
            self._log_error(f"Subscription Violation - Subject {quoted_bytes(subject)}{what}", sid)
            return
        limits = self.host.limits
        if 0 < limits.max_sub_tokens < subject.count(b".") + 1:
            shown = quoted_bytes(subject)
            self.error(f"Permissions Violation for Subscription to {shown}, too many tokens")
            too_many = "Subscription Violation Too Many Tokens"
            self._log_error(f"{too_many} - Subject {quoted_bytes(subject)}", sid)
            return
        allowed = self.identity.max_subscriptions(limits.max_subscriptions)
        if 0 < allowed <= len(self.subscriptions):
            self.error("maximum subscriptions exceeded")
            if not self._subscriptions_refused:
                # Once is enough: a client that goes on must not fill the log.
                self._subscriptions_refused = True
                self._log_error("maximum subscriptions exceeded")
            return
        if sid not in self.subscriptions and not self._insert(subject, queue, sid):
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
        """Remove a subscription."""
        if self.subscriptions.pop(subscription.sid, None) is not None:
            self.sublist.remove(subscription)
            self._trace_removed(subscription)

    def _drop_subscriptions(self) -> None:
        for subscription in self.subscriptions.values():
            self.sublist.remove(subscription)
            self._trace_removed(subscription)
        self.subscriptions.clear()

    def _trace_removed(self, subscription: Subscription) -> None:
        if self.tracer is not None:
            self.tracer.tell("<->", b"DELSUB " + subscription.sid)

    # Publishing, where it must be looked at

    def on_publish_line(self, subject: bytes) -> None:
        """Send a pedantic client an error for a subject with wildcards or empty tokens."""
        if not _NEVER_PUBLISHED_TO.isdisjoint(subject.split(b".")):
            self.error("Invalid Publish Subject")

    def may_publish(self, subject: bytes, reply: bytes | None) -> bool:
        """Return True if a publish to, or with, a subject that belongs to servers goes on."""
        return not self.publish_refusal(subject, reply)

    def publish_refusal(self, subject: bytes, reply: bytes | None) -> str:
        """Return "" if the client may publish; otherwise send it an error and return that."""
        if _RESERVED_SUBJECTS.match(subject) or not self.identity.may_publish(subject):
            return self._refuse_subject(subject)
        if reply is not None and _RESERVED_REPLIES.match(reply):
            text = f"Permissions Violation for Publish with Reply of {quoted_bytes(reply)}"
            self.error(text)
            self._log_error(f"Publish Violation - Reply {quoted_bytes(reply)}")
            return text
        return ""

    def on_refused(self, subject: bytes) -> None:
        """Send the client an error: it may not publish to a subject."""
        self._refuse_subject(subject)

    def _refuse_subject(self, subject: bytes) -> str:
        text = f"Permissions Violation for Publish to {quoted_bytes(subject)}"
        self.error(text)
        self._log_error(f"Publish Violation - Subject {quoted_bytes(subject)}")
        return text

    def publish_traced(
        self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes
    ) -> bytes | None:
        """Have the server route and trace a message, and return None; or return its headers."""
        return self.host.publish_traced(self, subject, reply, headers, body)

    def on_oversized(self, subject: bytes, headers: bytes, size: int) -> None:
        """Have the server trace that a message was too large."""
        self.host.trace_oversized(self, subject, headers, size)

    def may_trace_to(self, destination: bytes) -> bool:
        """Return True if the client may trace to a subject; otherwise send it an error."""
        if not _RESERVED_SUBJECTS.match(destination) and self.identity.may_trace_to(destination):
            return True
        self._refuse_subject(destination)
        return False

    # Liveness

    def on_ping(self) -> None:
        """Answer; the first answer after CONNECT is followed by a second INFO."""
        self.write(b"PONG\r\n")
        self._pinged_ns = self.host.clock.now_ns()
        if self._is_known and not self._first_pong_sent:
            self._first_pong_sent = True
            if self.options.protocol >= 1:
                self.write(self.host.info_line(self, connect_info=True))

    def on_pong(self) -> None:
        """Note that the client is alive, and its round trip."""
        self._pings_out = 0
        if self._ping_sent_ns:
            self._note_rtt(self.host.clock.monotonic_ns() - self._ping_sent_ns)

    def _note_rtt(self, rtt_ns: int) -> None:
        self.rtt_ns = max(rtt_ns, 1)
        # Services of other accounts are told of it.
        self.introductions = None

    def _ping_later(self, *, first: bool = False) -> None:
        interval_s = self._ping_interval_ns / 1e9
        delay_s = min(interval_s, 2.0) if first else interval_s
        self.set_timer("ping", delay_s, self._ping_timer)

    def _ping_timer(self) -> None:
        self.host.log("DBG", f"{self} - Client Ping Timer")
        self.trim()
        busy = self._was_busy()
        measured_ns = self.host.clock.monotonic_ns() - self._ping_sent_ns
        if busy and self.rtt_ns and self._ping_sent_ns and measured_ns < RTT_GOOD_NS_MAX:
            self._ping_later()
        elif self._pings_out + 1 > self.host.limits.ping_max:
            self.host.log("DBG", f"{self} - Stale Client Connection - Closing")
            self.refuse("Stale Connection", ClosedReason.STALE_CONNECTION)
        else:
            self.ping()
            self._ping_later()

    def _was_busy(self) -> bool:
        # Messages are counted, not timed: one since the last look came within the interval.
        published = self.in_msgs != self._messages_seen
        self._messages_seen = self.in_msgs
        seen_ns = max(self.last_activity_ns, self._pinged_ns)
        return published or (self.host.clock.now_ns() - seen_ns < self._ping_interval_ns)

    @property
    def _ping_interval_ns(self) -> int:
        return self.ping_interval_ns or self.host.limits.ping_interval_ns

    def ping(self) -> None:
        """Send PING."""
        self._pings_out += 1
        self._ping_sent_ns = self.host.clock.monotonic_ns()
        self.write(b"PING\r\n")
        self.hub.flush()

    # Ending

    def error(self, text: str) -> None:
        """Send the client an error."""
        self.write(b"-ERR '" + text.encode("utf-8", "surrogateescape") + b"'\r\n")

    def refuse(self, text: str, reason: ClosedReason) -> None:
        """Send the client an error, if there is one to send, and close."""
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
        self._log_error(_LOGGED_VIOLATIONS[kind])
        self.refuse(text, reasons.get(kind, ClosedReason.PROTOCOL_VIOLATION))

    def _log_error(self, text: str, sid: bytes | None = None) -> None:
        which = f", SID {sid.decode('utf-8', 'backslashreplace')}" if sid is not None else ""
        self.host.log("ERR", f"{self} - {text}{which}")

    def on_client_error(self, text: bytes) -> None:
        """Log the client's error and close."""
        self.host.log("ERR", f"{self} - Client Error {quoted_bytes(text)}")
        self.close(ClosedReason.PARSE_ERROR)

    def on_info(self, text: bytes) -> None:
        """Close if the document cannot be read; clients have no INFO to send."""
        try:
            parse_object(text, "INFO")
        except FormatError as error:
            self.host.log("ERR", f"{self} - {error.reason}")
            self.close(ClosedReason.PROTOCOL_VIOLATION)

    def on_closed(self, reason: ClosedReason) -> None:
        """Remove every subscription, and tell the server."""
        self.last_subscriptions = tuple(self.subscriptions.values())
        self.subscriptions.clear()
        self._take_out(iter(self.last_subscriptions))
        self.host.left(self, reason)

    def _take_out(self, waiting: Iterator[Subscription]) -> None:
        # A closed connection is given nothing, so the rest of very many may wait for its turn.
        for subscription in islice(waiting, SUBSCRIPTIONS_REMOVED_PER_TURN):
            self.sublist.remove(subscription)
            self._trace_removed(subscription)
        if length_hint(waiting):
            self.host.loop.call_soon(self._take_out, waiting)
