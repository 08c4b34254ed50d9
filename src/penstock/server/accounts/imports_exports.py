"""Imports between accounts: streams and services that one account exports and another imports.

In this module `here` is the importing account and `there` the exporting one.

An imported *stream* gives each subscription here a shadow in the exporting account, under the name
that the subject has there. Messages go from the shadow to the subscription, so a publisher there
sees whether there are subscribers.

An imported *service* subscribes here and forwards requests there. A request gets a reply subject of
its own there, `_R_.…`, whose answers go to the requester. A header names the requester to the
service. Waiting ends with the answer, with an empty answer if there may be several, if the request
found no subscriber, or after the time that the export allows.

Invariants: nothing passes that no export allows (the configuration was checked). The number of
awaited answers is bounded.

Thread: the event loop's. Built and changed by the server.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.config.options.accounts import AccountOptions, ExportOptions, ImportOptions
from penstock.limits import SERVICE_ANSWERS_MAX
from penstock.net.connection import Connection
from penstock.protocol.headers import with_added, without
from penstock.routing.hub import Service, Shadow
from penstock.routing.interest import ignore, observe
from penstock.routing.sublist import Sublist, Subscription
from penstock.routing.transforms import ImportNames
from penstock.server.system.events import client_info
from penstock.subjects import is_subset
from penstock.text.json.codec import to_json

if TYPE_CHECKING:
    from penstock.server.server import Server

_API_PREFIX: Final = b"$JS.API."
_REQUEST_INFO: Final = b"Nats-Request-Info"
_ACK_PREFIX: Final = b"$JS.ACK."
_REPLY_PREFIX: Final = b"_R_."
_ANSWER_NS_DEFAULT: Final = 120 * 10**9
_DIGITS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class _Terms(NamedTuple):
    """Everything that defines an import; while it is equal, the import continues."""

    here: Any
    there: Any
    taken: ImportOptions
    # Of a service.
    export: ExportOptions | None


class RoutedMessage(NamedTuple):
    """A message that is being routed."""

    subject: bytes
    reply: bytes | None
    headers: bytes
    body: bytes


class AccountImports:
    """All imports of a server; see the module."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._imports: dict[str, dict[_Terms, StreamImport | ServiceImport]] = {}

    def apply(self, accounts: Mapping[str, AccountOptions]) -> None:
        """Start and stop imports of all accounts; an import that did not change continues."""
        for name in {**self._imports, **accounts}:
            self.apply_to(name, accounts)

    def apply_to(self, name: str, accounts: Mapping[str, AccountOptions]) -> None:
        """Start and stop imports of one account."""
        options = accounts.get(name)
        wanted: dict[_Terms, None] = {}
        for taken in options.imports if options is not None else ():
            wanted |= dict.fromkeys(self._terms(name, taken, accounts))
        going_on = self._imports.setdefault(name, {}) if wanted else self._imports.pop(name, {})
        for terms in [terms for terms in going_on if terms not in wanted]:
            going_on.pop(terms).close()
        for terms in wanted:
            if terms not in going_on:
                going_on[terms] = self._start(terms)

    def _terms(
        self, name: str, taken: ImportOptions, accounts: Mapping[str, AccountOptions]
    ) -> Iterator[_Terms]:
        known = self.server.identities.accounts
        here, there = known.find(name), known.find(taken.account)
        offered = accounts.get(taken.account)
        if here is not None and there is not None and offered is not None:
            is_stream = taken.kind == "stream"
            export = None if is_stream else _export_of(taken, offered.exports)
            yield _Terms(here, there, taken, export)

    def _start(self, terms: _Terms) -> StreamImport | ServiceImport:
        here, there, taken, export = terms
        if export is None:
            return StreamImport(here, there, taken)
        return ServiceImport(self.server, here, there, taken, export)

    def asks_elsewhere(self, account: str, subject: str) -> bool:
        """Return True if requests to a subject go to another account."""
        imports = self._imports.get(account, {}).values()
        services = (each for each in imports if isinstance(each, ServiceImport))
        return any(each.takes(subject) for each in services)

    def close(self) -> None:
        """Stop all imports."""
        for imports in self._imports.values():
            for each in imports.values():
                each.close()
        self._imports = {}


class ImportedShadow(Shadow):
    """Represents a subscription of the importing account in the exporting account."""

    __slots__ = ("_taken_by",)

    def __init__(
        self,
        original: Subscription,
        rename: Callable[[bytes], bytes] | None,
        taken_by: StreamImport,
    ) -> None:
        super().__init__(original, rename)
        self._taken_by = taken_by

    @property
    def account_name(self) -> str:
        """The importing account."""
        return self._taken_by.account_name

    @property
    def allows_trace(self) -> bool:
        """Whether traces show what happens to a message in the importing account."""
        return self._taken_by.allows_trace

    def subject_here(self, subject: bytes) -> bytes:
        """Return the name of a subject in the importing account."""
        return self._taken_by.subject_here(subject)


class StreamImport:
    """One imported stream: messages of another account for subscriptions of this one."""

    def __init__(self, here: Any, there: Any, taken: ImportOptions) -> None:
        self._here: Sublist = here.sublist
        self._there: Sublist = there.sublist
        self.account_name: str = here.name
        self.allows_trace = taken.allow_trace
        prefix = f"{taken.prefix.removesuffix('.')}.{taken.subject}" if taken.prefix else ""
        self._naming = ImportNames(taken.subject, prefix or taken.to)
        self._shadows: dict[Subscription, Subscription] = {}
        for subscription in list(self._here.subscriptions()):
            self._observe(subscription)
        observe(self._here, self._observe)

    def subject_here(self, subject: bytes) -> bytes:
        """Return the name of a subject in the importing account."""
        return subject if self._naming.is_same else self._naming.here(subject)

    def close(self) -> None:
        """Remove all shadows."""
        ignore(self._here, self._observe)
        for shadow in self._shadows.values():
            self._there.remove(shadow)
        self._shadows.clear()

    def _observe(self, subscription: Subscription) -> None:
        if subscription.closed:
            shadow = self._shadows.pop(subscription, None)
            if shadow is not None:
                self._there.remove(shadow)
            return
        pattern = self._naming.overlap(subscription.subject)
        if pattern is None or not _wants_messages(subscription):
            return
        rename = None if self._naming.is_same else self._naming.here
        receiver = ImportedShadow(subscription, rename, self)
        shadow = Subscription(receiver, pattern, subscription.sid, subscription.queue)
        self._shadows[subscription] = shadow
        self._there.insert(shadow)


class _Asking(Service):
    """A receiver of requests or answers between accounts; messages of streams skip it."""


def _wants_messages(subscription: Subscription) -> bool:
    # Messages of an imported stream are no requests, neither to an import nor to JetStream, and
    # they do not go on to a third account.
    receiver = subscription.receiver
    if isinstance(receiver, _Asking | Shadow):
        return False
    return not (isinstance(receiver, Service) and subscription.subject.startswith(_API_PREFIX))


class ServiceImport:
    """One imported service: requests of this account, answered in another."""

    def __init__(
        self, server: Server, here: Any, there: Any, taken: ImportOptions, export: ExportOptions
    ) -> None:
        self._server = server
        self._here, self._there = here, there
        self._shares_client = taken.share
        self._allows_trace = export.allow_trace
        self._naming = ImportNames(taken.subject, taken.to)
        self._is_asking = False
        self._answers = Answers(
            server,
            is_single=export.response_type == "single",
            wait_ns=export.response_threshold_ns or _ANSWER_NS_DEFAULT,
        )
        self._subscription = Subscription(_Asking(self._asked), self._naming.pattern, b"1")
        here.sublist.insert(self._subscription)

    def takes(self, subject: str) -> bool:
        """Return True if this import takes requests to a subject, or to all of a pattern."""
        return is_subset(subject.encode(), self._naming.pattern)

    def close(self) -> None:
        """Stop taking requests, and drop the answers that are waited for."""
        self._here.sublist.remove(self._subscription)
        self._answers.close()

    def _asked(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> bool:
        if self._is_asking:
            # It came back to where it started.
            return False
        target = self._naming.there(subject)
        if self._there.mappings is not None:
            target = self._there.mappings.map(target)
        answer = None
        if reply is not None and not reply.startswith(_ACK_PREFIX):
            answer = self._answers.expect(self._there, self._here, reply)
            reply = answer.subject
        headers = self._introduced(headers)
        trace = self._server.clients.message_trace
        message = RoutedMessage(target, reply, headers, body)
        self._is_asking = True
        try:
            if trace is None:
                taken = self._server.hub.pass_on(self._there.sublist, target, *message)
            else:
                new_destination = self._answers.new_subject if self._allows_trace else None
                taken = trace.pass_on(
                    self._there,
                    message,
                    came_as=subject,
                    target=target,
                    new_destination=new_destination,
                )
        finally:
            self._is_asking = False
        is_asked = taken and not (trace is not None and trace.is_only)
        if not is_asked and answer is not None:
            self._answers.end(answer)
        return taken > 0

    def _introduced(self, headers: bytes) -> bytes:
        client = self._server.hub.publisher
        headers = without(headers, _REQUEST_INFO) if headers else headers
        if not isinstance(client, Connection) or client.identity is None:
            return headers
        fields: dict[str, Any] = {"acc": client.identity.account_name}
        if self._here.name != client.identity.account_name:
            fields["svc"] = self._here.name
        fields["rtt"] = client.rtt_ns
        if self._shares_client:
            account = client.identity.account_name
            fields = client_info(client, self._server.name, account=account) | fields
        return with_added(headers, _REQUEST_INFO, to_json(fields))


class Answer:
    """One awaited answer: the subject where it arrives, and where it is forwarded to."""

    __slots__ = ("from_sublist", "reply", "subject", "subscription", "to", "used_ns")

    def __init__(self, from_sublist: Sublist, to: Any, reply: bytes, subject: bytes) -> None:
        self.from_sublist = from_sublist
        self.to = to
        self.reply = reply
        self.subject = subject
        self.subscription: Subscription | None = None
        self.used_ns = 0


class Answers:
    """The answers that one import waits for, the oldest first."""

    def __init__(self, server: Server, *, is_single: bool, wait_ns: int) -> None:
        self._server = server
        self._is_single = is_single
        self._wait_ns = wait_ns
        self._waiting: OrderedDict[bytes, Answer] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._prefix = _REPLY_PREFIX + self._token(6) + b"."

    def expect(self, there: Any, here: Any, reply: bytes) -> Answer:
        """Return an answer whose subject in `there` is forwarded to `reply` in `here`."""
        if len(self._waiting) >= SERVICE_ANSWERS_MAX:
            self.end(next(iter(self._waiting.values())))
        answer = Answer(there.sublist, here, reply, self.new_subject())
        answer.used_ns = self._server.clock.monotonic_ns()

        def answered(subject: bytes, back: bytes | None, headers: bytes, body: bytes) -> bool:
            return self._answered(answer, there, subject, back, headers, body)

        answer.subscription = Subscription(_Asking(answered), answer.subject, b"1")
        answer.from_sublist.insert(answer.subscription)
        self._waiting[answer.subject] = answer
        if self._timer is None:
            self.sweep()
        return answer

    def new_subject(self) -> bytes:
        """Return a subject that is not in use."""
        return self._prefix + self._token(12)

    def end(self, answer: Answer) -> None:
        """Stop waiting for an answer."""
        self._waiting.pop(answer.subject, None)
        if answer.subscription is not None:
            answer.from_sublist.remove(answer.subscription)

    def close(self) -> None:
        """Stop waiting for all answers."""
        for answer in list(self._waiting.values()):
            self.end(answer)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answered(
        self,
        answer: Answer,
        there: Any,
        subject: bytes,
        back: bytes | None,
        headers: bytes,
        body: bytes,
    ) -> bool:
        # A consumer's messages come here, too, and keep the subject that they were stored under.
        shown = answer.reply if subject == answer.subject else subject
        if back is not None and not back.startswith(_ACK_PREFIX):
            back = self.expect(answer.to, there, back).subject
        message = RoutedMessage(shown, back, headers, body)
        trace = self._server.clients.message_trace
        if trace is None:
            taken = self._server.hub.pass_on(answer.to.sublist, answer.reply, *message)
        else:
            taken = trace.pass_on(
                answer.to, message, came_as=subject, target=answer.reply, new_destination=None
            )
        if not taken or self._is_single or not (headers or body):
            self.end(answer)
        elif answer.subject in self._waiting:
            answer.used_ns = self._server.clock.monotonic_ns()
            self._waiting.move_to_end(answer.subject)
        return taken > 0

    def sweep(self) -> None:
        """End the answers whose time is up, and plan the next look."""
        self._timer = None
        now_ns = self._server.clock.monotonic_ns()
        while self._waiting:
            answer = next(iter(self._waiting.values()))
            left_ns = answer.used_ns + self._wait_ns - now_ns
            if left_ns > 0:
                self._timer = self._server.loop.call_later(left_ns / 1e9, self.sweep)
                return
            self.end(answer)

    def _token(self, size: int) -> bytes:
        return bytes(_DIGITS[byte % len(_DIGITS)] for byte in self._server.random_bytes(size))


def _export_of(taken: ImportOptions, exports: tuple[ExportOptions, ...]) -> ExportOptions:
    services = [each for each in exports if each.kind == "service"]
    for each in services:
        if each.subject == taken.subject:
            return each
    return next(
        each for each in services if is_subset(taken.subject.encode(), each.subject.encode())
    )
