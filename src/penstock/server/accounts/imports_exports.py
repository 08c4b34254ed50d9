"""Imports between accounts: streams and services that one account exports and another imports.

In this module `here` is the importing account and `there` the exporting one.

An imported *stream* gives each subscription here a shadow in the exporting account, under the name
that the subject has there. Messages go from the shadow to the subscription, so a publisher there
sees whether there are subscribers.

An imported *service* subscribes here and forwards requests there. A request gets a reply subject of
its own there, `_R_.…`, whose answers go to the requester. A header names the requester to the
service. Messages take this way in compiled code, `routing.services`. Waiting ends with the answer,
with an empty answer if there may be several, if the request found no subscriber, or after the time
that the export allows.

Invariants: nothing passes that no export allows (the configuration was checked). The number of
awaited answers is bounded.

Thread: the event loop's. Built and changed by the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.config.options.accounts import AccountOptions, ExportOptions, ImportOptions
from penstock.limits import SERVICE_ANSWERS_MAX
from penstock.net.connection import Connection
from penstock.routing.hub import Service, Shadow
from penstock.routing.interest import ignore, observe
from penstock.routing.services import ServiceAnswers, ServiceDoor
from penstock.routing.subject_transform import SubjectTransform
from penstock.routing.sublist import Receiver, Sublist, Subscription
from penstock.routing.transforms import ImportNames
from penstock.server.system.events import client_info
from penstock.subjects import is_subset
from penstock.text.json.codec import to_json

if TYPE_CHECKING:
    from penstock.server.server import Server

Message = tuple[bytes, bytes | None, bytes, bytes]
"""Subject, reply, headers and body."""

_API_PREFIX: Final = b"$JS.API."
_ANSWER_NS_DEFAULT: Final = 120 * 10**9


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
        rename: SubjectTransform | None,
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
        rename = None if self._naming.is_same else self._naming.forward
        receiver = ImportedShadow(subscription, rename, self)
        shadow = Subscription(receiver, pattern, subscription.sid, subscription.queue)
        self._shadows[subscription] = shadow
        self._there.insert(shadow)


def _wants_messages(subscription: Subscription) -> bool:
    # Messages of an imported stream are no requests, neither to an import nor to JetStream, and
    # they do not go on to a third account.
    receiver = subscription.receiver
    if isinstance(receiver, ServiceDoor | ServiceAnswers | Shadow):
        return False
    return not (isinstance(receiver, Service) and subscription.subject.startswith(_API_PREFIX))


class ServiceImport:
    """One imported service: requests of this account, answered in another.

    The compiled door and its answers call it where Python has to decide; see `routing.services`.
    """

    def __init__(
        self, server: Server, here: Any, there: Any, taken: ImportOptions, export: ExportOptions
    ) -> None:
        self._server = server
        self._here, self._there = here, there
        self._shares_client = taken.share
        self._allows_trace = export.allow_trace
        self._naming = ImportNames(taken.subject, taken.to)
        self._timers: dict[ServiceAnswers, asyncio.TimerHandle] = {}
        self._wait_ns = export.response_threshold_ns or _ANSWER_NS_DEFAULT
        self._answers = ServiceAnswers(
            self,
            server.hub,
            there.sublist,
            here.sublist,
            random_bytes=server.random_bytes,
            is_single=export.response_type == "single",
            wait_ns=self._wait_ns,
            waiting_max=SERVICE_ANSWERS_MAX,
        )
        rename = None if self._naming.is_same else self._naming.backward
        door = ServiceDoor(self, server.hub, there.sublist, self._answers, rename, there)
        self._subscription = Subscription(door, self._naming.pattern, b"1")
        here.sublist.insert(self._subscription)

    def takes(self, subject: str) -> bool:
        """Return True if this import takes requests to a subject, or to all of a pattern."""
        return is_subset(subject.encode(), self._naming.pattern)

    def close(self) -> None:
        """Stop taking requests, and drop the answers that are waited for."""
        self._here.sublist.remove(self._subscription)
        self._answers.close()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # What the door and its answers ask

    def on_waiting(self, answers: ServiceAnswers) -> None:
        """Plan to give up answers whose time is up."""
        self._sweep_later(answers, self._wait_ns)

    def _sweep_later(self, answers: ServiceAnswers, delay_ns: int) -> None:
        self._timers[answers] = self._server.loop.call_later(delay_ns / 1e9, self._sweep, answers)

    def _sweep(self, answers: ServiceAnswers) -> None:
        left_ns = answers.sweep()
        if left_ns is None:
            del self._timers[answers]
        else:
            self._sweep_later(answers, left_ns)

    def introduction_of(self, client: Receiver) -> bytes:
        """Return what the service is told of a requester; b"" for one that is not a client."""
        if not isinstance(client, Connection) or client.identity is None:
            return b""
        fields: dict[str, Any] = {"acc": client.identity.account_name}
        if self._here.name != client.identity.account_name:
            fields["svc"] = self._here.name
        fields["rtt"] = client.rtt_ns
        if self._shares_client:
            account = client.identity.account_name
            fields = client_info(client, self._server.name, account=account) | fields
        return to_json(fields)

    def pass_traced_request(self, came_as: bytes, message: Message) -> tuple[int, bool] | None:
        """Pass on a traced request; return (taken, is awaited), None for no trace at hand."""
        trace = self._server.clients.message_trace
        if trace is None:
            return None
        passing = RoutedMessage(*message)
        taken = trace.pass_on(
            self._there,
            passing,
            came_as=came_as,
            target=passing.subject,
            new_destination=self._answers.new_subject if self._allows_trace else None,
        )
        return taken, taken > 0 and not trace.is_only

    def pass_traced_answer(
        self, answers: ServiceAnswers, came_as: bytes, target: bytes, message: Message
    ) -> int | None:
        """Pass on an answer to a traced message; return how many took it, None for no trace."""
        trace = self._server.clients.message_trace
        if trace is None:
            return None
        account = self._here if answers is self._answers else self._there
        passing = RoutedMessage(*message)
        return trace.pass_on(account, passing, came_as=came_as, target=target, new_destination=None)


def _export_of(taken: ImportOptions, exports: tuple[ExportOptions, ...]) -> ExportOptions:
    services = [each for each in exports if each.kind == "service"]
    for each in services:
        if each.subject == taken.subject:
            return each
    return next(
        each for each in services if is_subset(taken.subject.encode(), each.subject.encode())
    )
