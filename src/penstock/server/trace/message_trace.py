"""Traces of messages: the way that a message took through the server, published where it asks.

A message whose headers ask for a trace is routed here, subscription by subscription, and not by the
compiled code that routes all others. What happens to it is noted, and published when everything has
happened, storing in streams included. A message that is only to be traced takes the same way and is
not delivered.

Invariants: a trace goes only to subjects that the client may publish to. What another account does
with a message is noted only if that account allows it.

Loaded with the first message that asks for a trace. Thread: the event loop's.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import cramjam

from penstock.limits import TRACE_EVENTS_MAX
from penstock.monitor.query import shown, without_empty
from penstock.net.connection import Connection
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription
from penstock.server.accounts.imports_exports import ImportedShadow, RoutedMessage
from penstock.server.system.services import InternalClient
from penstock.server.trace.trace_headers import (
    ORIGIN,
    TraceRequest,
    read_request,
    stored_without_trace,
    with_destination,
    without_trace,
)
from penstock.stream.publish.ingest import Ingest
from penstock.subjects import is_literal, is_valid_subject
from penstock.text.json.codec import to_json
from penstock.text.quoting import quoted_bytes
from penstock.text.times import timestamp

if TYPE_CHECKING:
    from penstock.server.server import Server

_CLIENT_KIND: Final = 0
"""What the wire calls a client's connection."""

_NO_ECHO: Final = "Not delivered because of no echo"
_DENIED: Final = "Not delivered because subscription denies this subject"
_SUBSCRIPTION_CLOSED: Final = "Not delivered because subscription is closed"
_CLIENT_CLOSED: Final = "Not delivered because client is closed"
_ENDED: Final = "Not delivered because auto-unsubscribe exceeded"
_TOO_LARGE: Final = "maximum payload exceeded"

_API: Final = b"$JS.API."
_ANSWERED_BY_STREAMS: Final = (b"$JS.API.DIRECT.GET", b"$JS.API.CONSUMER.MSG.NEXT.")


class MessageTraces:
    """The traces of one server; see the module."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._at_hand: MessageTrace | None = None

    @property
    def at_hand(self) -> MessageTrace | None:
        """The trace of the message that is routed right now, unless it is one of the server's."""
        trace = self._at_hand
        return trace if trace is not None and self.server.hub.publisher is trace.client else None

    def publish(self, client: Connection, message: RoutedMessage) -> bytes | None:
        """Route a message and trace it; otherwise give the headers with which it goes on."""
        request = read_request(message.headers)
        if request is None:
            return message.headers
        if request.origin:
            what = f"header {quoted_bytes(ORIGIN)} with value={quoted_bytes(request.origin)}"
            self.server.log("ERR", f"{client} - Message tracing disabled because of {what}")
            return None if request.is_only else without_trace(message.headers)
        account = client.identity.account
        if not request.destination:
            if not account.trace_destination:
                return message.headers
            if not self._is_drawn(account):
                return without_trace(message.headers)
        destination = request.destination or account.trace_destination
        if not _is_destination(destination):
            what = f"Destination {quoted_bytes(destination.encode())} is not valid"
            self.server.log("ERR", f"{client} - {what}, won't be able to trace events")
            return None if request.is_only else message.headers
        if client.may_trace_to(destination.encode()):
            size = len(message.headers) + len(message.body)
            trace = MessageTrace(self, client, request, destination, message.subject, size)
            self._publish(trace, message)
        return None

    def tell_oversized(self, client: Connection, subject: bytes, headers: bytes, size: int) -> None:
        """Trace a message that is larger than may be; of its headers this much came."""
        request = read_request(headers)
        if request is None or request.origin:
            return
        account = client.identity.account
        if not request.destination and not self._is_drawn(account):
            return
        destination = request.destination or account.trace_destination
        if _is_destination(destination) and client.may_trace_to(destination.encode()):
            trace = MessageTrace(self, client, request, destination, subject, size)
            trace.fail(_TOO_LARGE)
            trace.finish()

    def _is_drawn(self, account: Any) -> bool:
        """Draw whether a message with a sampled parent is traced."""
        sampling: int = account.trace_sampling
        return sampling >= 100 or self.server.random_below(100) <= sampling

    def _publish(self, trace: MessageTrace, message: RoutedMessage) -> None:
        client = trace.client
        target = client.identity.mapped(message.subject)
        if not client.identity.account.is_system:
            target = trace.without_domain(target) or target
        if target != message.subject:
            trace.add("sm", {"to": shown(target)})
        refusal = client.publish_refusal(message.subject, message.reply)
        if refusal:
            trace.fail(refusal)
        else:
            if client.verbose:
                client.write(b"+OK\r\n")
            passing = message._replace(subject=target)
            self._hold(trace)
            try:
                taken = trace.spread(client.identity.account, target, passing)
            finally:
                self._hold(None)
            client.spend(trace.steps)
            if not taken and client.no_responders and message.reply is not None:
                client.tell_no_responders(target, message.reply)
        trace.finish()

    def pass_untraced(
        self, trace: MessageTrace, account: Any, target: bytes, message: RoutedMessage
    ) -> int:
        """Pass a message on to another account, and note no more of it."""
        passing = message._replace(headers=without_trace(message.headers))
        self._hold(None)
        try:
            return self.server.hub.pass_on(account.sublist, target, *passing)
        finally:
            self._hold(trace)

    def _hold(self, trace: MessageTrace | None) -> None:
        self._at_hand = trace
        self.server.hub.is_tracing = trace is not None


class MessageTrace:
    """One message's way through the server; see the module."""

    def __init__(
        self,
        traces: MessageTraces,
        client: Connection,
        request: TraceRequest,
        destination: str,
        subject: bytes,
        size: int,
    ) -> None:
        self.client = client
        self.is_only = request.is_only
        self._traces = traces
        self._server = traces.server
        self._request = request
        self._destination = destination
        self._size = size
        self._account = client.identity.account
        # Subscriptions that were looked at, each of which costs the client some of its turn.
        self.steps = 0
        # The trace ends when the server and each stream are done with the message.
        self._waiting_for = 1
        self._events: list[dict[str, Any]] = []
        came_from = self._described(client) | {"acc": self._account.name, "subj": shown(subject)}
        self.add("in", came_from)

    # What is noted

    def add(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Note that something happened; give it to be completed."""
        event = {"type": kind, "ts": self.now(), **fields}
        if len(self._events) < TRACE_EVENTS_MAX:
            self._events.append(event)
        return event

    def now(self) -> str:
        """Return the current time as traces write it."""
        return timestamp(self._server.clock.now_ns())

    def fail(self, reason: str) -> None:
        """Note that the message came no further than into the server."""
        self._events[0]["error"] = reason

    @staticmethod
    def _described(client: Connection) -> dict[str, Any]:
        name = shown(client.options.name.encode("utf-8", "surrogateescape"))
        fields = {"kind": _CLIENT_KIND, "cid": client.cid, "name": name}
        return without_empty(fields, "name")

    def _add_egress(self, client: Connection, subscription: Subscription, error: str) -> None:
        account = client.identity.account_name
        fields = {
            "acc": account if account != self._account.name else "",
            "sub": shown(subscription.subject),
            "queue": shown(subscription.queue),
            "error": error,
        }
        self.add("eg", self._described(client) | without_empty(fields, "acc", "queue", "error"))

    def wait(self) -> None:
        """Wait for one more that must be done with the message."""
        self._waiting_for += 1

    def finish(self) -> None:
        """One is done with it; the trace is sent when all are."""
        self._waiting_for -= 1
        system = self._server.identities.accounts.system_account
        if self._waiting_for or system is None:
            return
        request = {"header": self._request.headers, "msgsize": self._size}
        server = self._server.system.envelope.server()
        body = to_json({"server": server, "request": request, "events": self._events})
        headers, body = _encoded(body, self._request.accepted_encoding)
        sublist = self._account.sublist
        self._server.hub.publish(sublist, self._destination.encode(), None, headers, body)
        self._server.system.events.flush_soon()

    # Its way

    def spread(
        self, account: Any, target: bytes, message: RoutedMessage, *, is_request: bool = False
    ) -> int:
        """Deliver a message to the subscribers of `target` in an account; return how many.

        What came as a request of another account is not imported further.
        """
        found = account.sublist.matches(target)
        taken = 0
        for subscription in tuple(found.plain):
            taken += self._offer(account, subscription, message, is_request=is_request)
        for members in tuple(found.queues):
            first = self._server.random_below(len(members)) if len(members) > 1 else 0
            # A member that cannot take it passes it on to the next.
            for subscription in (*members[first:], *members[:first]):
                if self._offer(account, subscription, message, is_request=is_request):
                    taken += 1
                    break
        return taken

    def pass_on(
        self,
        account: Any,
        message: RoutedMessage,
        *,
        came_as: bytes,
        target: bytes,
        new_destination: Callable[[], bytes] | None,
    ) -> int:
        """Pass a request or an answer on to another account; tell how many took it there.

        The service there sees another destination; with None the account allows no traces.
        """
        self._add_service(account.name, came_as, shown(target))
        if new_destination is not None:
            headers = with_destination(message.headers, new_destination())
            passing = message._replace(headers=headers)
            return self.spread(account, target, passing, is_request=True)
        if self.is_only:
            return 0
        return self._traces.pass_untraced(self, account, target, message)

    def _add_service(self, account: str, came_as: bytes, target: str) -> None:
        self.add("si", {"acc": account, "from": shown(came_as), "to": target})

    def _offer(
        self, account: Any, subscription: Subscription, message: RoutedMessage, *, is_request: bool
    ) -> bool:
        self.steps += 1
        receiver = subscription.receiver
        if isinstance(receiver, ImportedShadow):
            return not is_request and self._offer_import(receiver, subscription, message)
        if isinstance(receiver, Service):
            return self._ask(account, subscription, message)
        return self._deliver(subscription, subscription, message)

    def _offer_import(
        self, shadow: ImportedShadow, subscription: Subscription, message: RoutedMessage
    ) -> bool:
        subject = shadow.subject_here(message.subject)
        self.add("se", {"acc": shadow.account_name, "to": shown(subject)})
        passing = message._replace(subject=subject)
        if shadow.allows_trace:
            return self._deliver(shadow.original, subscription, passing)
        return self.is_only or self._give(shadow.original, passing)

    def _deliver(
        self, subscription: Subscription, listed_as: Subscription, message: RoutedMessage
    ) -> bool:
        receiver = subscription.receiver
        if isinstance(receiver, Ingest):
            headers = message.headers if self.is_only else stored_without_trace(message.headers)
            part = _StreamPart(self)
            receiver.take_traced(message.subject, message.reply, headers, message.body, part)
            return True
        if not isinstance(receiver, Connection):
            return self._give(subscription, message)
        error = self._obstacle(subscription, message.subject)
        if not error and not self.is_only:
            is_ended = 0 < subscription.max_messages <= subscription.delivered
            if not self._give(subscription, message):
                error = _ENDED if is_ended else _CLIENT_CLOSED
        self._add_egress(receiver, listed_as, error)
        return not error

    def _obstacle(self, subscription: Subscription, subject: bytes) -> str:
        """Return why a client must not receive a message, or "" if it may."""
        receiver = subscription.receiver
        if receiver is self.client and not receiver.echo:
            return _NO_ECHO
        if subscription.deny is not None and subscription.deny.matches(subject):
            return _DENIED
        return _SUBSCRIPTION_CLOSED if subscription.closed else ""

    def _give(self, subscription: Subscription, message: RoutedMessage) -> bool:
        return self._server.hub.give(self.client, subscription, *message)

    # Services of the server itself

    def _ask(self, account: Any, subscription: Subscription, message: RoutedMessage) -> bool:
        """Ask a part of the server; who only tries is not served by the system account."""
        target = self.without_domain(message.subject)
        is_door = type(subscription.receiver) is Service and not account.is_system
        if is_door and target is not None:
            self.add("sm", {"to": shown(target)})
            return self.spread(account, target, message._replace(subject=target)) > 0
        served_as = self._served_by_system(account, subscription, message.subject)
        if served_as:
            system = self._server.identities.system_account_name
            self._add_service(system, message.subject, served_as)
            if self.is_only:
                return False
        return self._give(subscription, message)

    def without_domain(self, subject: bytes) -> bytes | None:
        """Return the subject that one with the domain's name stands for; None for any other."""
        if self._server.jetstream is None:
            return None
        from penstock.server.jetstream.api_listener import without_domain

        return without_domain(subject, self._server.jetstream.domain)

    def _served_by_system(self, account: Any, subscription: Subscription, subject: bytes) -> str:
        """Return the subject under which the system account serves a request, or ""."""
        receiver = subscription.receiver
        if isinstance(receiver, InternalClient):
            return dict(self._server.system.offered_to(account)).get(shown(subject), "")
        is_api = type(receiver) is Service and subscription.subject == _API + b">"
        if account.is_system or not is_api or subject.startswith(_ANSWERED_BY_STREAMS):
            return ""
        return shown(subject)


class _StreamPart:
    """What one stream tells of the message."""

    def __init__(self, trace: MessageTrace) -> None:
        self._trace = trace
        self._event: dict[str, Any] = {}

    @property
    def is_only(self) -> bool:
        """Whether nothing is to be stored."""
        return self._trace.is_only

    def begin(self, stream: str) -> None:
        """Note which stream has the message."""
        self._trace.wait()
        self._event = self._trace.add("js", {"stream": stream})

    def accept(self, subject: bytes, *, is_wanted: bool) -> None:
        """Note that it may be stored, under a subject, or that no consumer wants it."""
        self._event |= {"ts": self._trace.now(), "subject": shown(subject)}
        if not is_wanted:
            self._event["nointerest"] = True

    def refuse(self, reason: str) -> None:
        """Note why it was not stored."""
        self._event["error"] = reason

    def finish(self) -> None:
        """Note that the stream is done with it."""
        self._trace.finish()


def _is_destination(subject: str) -> bool:
    encoded = subject.encode()
    return is_valid_subject(encoded) and is_literal(encoded)


def _encoded(body: bytes, accepted: str) -> tuple[bytes, bytes]:
    """Return headers and body, compressed in one of the accepted encodings."""
    if not accepted:
        return b"", body
    encoding = b"identity"
    if "snappy" in accepted or "s2" in accepted:
        encoding, body = b"snappy", bytes(cramjam.snappy.compress(body))
    elif "gzip" in accepted:
        encoding, body = b"gzip", gzip.compress(body)
    return b"NATS/1.0\r\nContent-Encoding: %b\r\n\r\n" % encoding, body
