"""Requests that the server answers: all in the system account, a few in every other account.

Services are subscriptions of the server itself: `$SYS.REQ.SERVER.…` and `$SYS.REQ.ACCOUNT.…` in the
system account, so that only its users reach them; and in every other account the few that concern
the requesting user and account alone.

Invariants: a request never raises into the router. A request that cannot be read is answered with
an error, or not at all where the reference server is silent.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from penstock.errors import UsageError
from penstock.monitor.absent import gatewayz, leafz, routez
from penstock.monitor.accountz import account_detail, accountz, accstatz
from penstock.monitor.connz import ConnzOptions, SubszOptions, connz, subsz
from penstock.monitor.jsz import HealthzOptions, JszOptions, account_jsz, healthz, jsz
from penstock.monitor.query import shown
from penstock.monitor.varz import ProfilezOptions, profilez, variables, varz
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.net.link import Link
from penstock.routing.hub import Service
from penstock.routing.sublist import Subscription
from penstock.server.system.events import Envelope, SystemEvents
from penstock.subjects import is_literal, is_subset

if TYPE_CHECKING:
    from penstock.security.jwt.authenticator import Grant
    from penstock.security.permissions import Permissions
    from penstock.server.server import Server

T = TypeVar("T")

SYSTEM_CID = 1
"""The number of the server's own client in the system account; clients' numbers begin behind."""

SERVICES_FOR_ALL = (
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.{}.CONNZ"),
    ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.{}.CONNZ"),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT.{}.STATZ"),
    ("$SYS.REQ.USER.INFO", "$SYS.REQ.USER.{}.INFO"),
)
"""What members of any account may ask, and the service of the system account it stands for."""


class EventFilter(msgspec.Struct, frozen=True):
    """Which servers a request is for; the names are those of the wire."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = []
    domain: str = ""


class AccountzRequest(msgspec.Struct, frozen=True):
    """Which account is asked for."""

    account: str = ""


class AccountStatzRequest(msgspec.Struct, frozen=True):
    """Which accounts are asked for."""

    accounts: list[str] = []
    include_unused: bool = False


class ClientRequest(msgspec.Struct, frozen=True):
    """Which client is meant."""

    cid: int = 0


class Request(NamedTuple):
    """One request, and who asked: None where a part of the server did."""

    subject: str
    body: bytes
    connection: Connection | None

    def read(self, kind: type[T]) -> T:
        """Return the body as `kind`; an empty body has the defaults. Raises UsageError."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UsageError(str(error)) from None

    @property
    def account(self) -> str:
        """The account that the subject names."""
        return self.subject.split(".")[3]


class Unanswered(Exception):
    """The request is met with silence."""


Handler = Callable[[Request], Any]


class InternalClient(Service):
    """A subscriber that is a part of the server; `cid` is what monitoring shows of it."""

    def __init__(self, callback: Callable[..., None], cid: int) -> None:
        super().__init__(callback)
        self.cid = cid


class SystemServices:
    """The services of one server; see the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._source = server.source
        self.envelope = Envelope(server.source, server.random_bytes)
        self._served: dict[str, Any] = {}
        self.events = SystemEvents(server, self.envelope)

    def start(self) -> None:
        """Take requests, and begin to tell how the server is doing."""
        system = self._server.identities.accounts.system_account
        if system is None:
            return
        self._serve_system(system)
        if (claimed := self._server.identities.jwt_accounts) is not None:
            # Most servers have no operators, and start without loading what is about them.
            from penstock.server.accounts.jwt_services import ClaimsServices

            ClaimsServices(self._server, claimed).start()
            own = claimed.known(system.name)
            if own is not None and not own.token:
                self._server.log("INF", "Using bootstrapping system account")
        self.serve_accounts()
        self.events.start()

    def stop(self) -> None:
        """Publish the shutdown, and publish nothing from then on."""
        self.events.stop()

    def serve_accounts(self) -> None:
        """Serve the accounts that are new since the last time, and forget those that are gone."""
        accounts = self._server.identities.accounts
        if accounts.system_account is None:
            return
        for account in accounts:
            if not account.is_system and self._served.get(account.name) is not account:
                self._served[account.name] = account
                self._serve_members(account, self._server.clients.new_cid())
        for name in [name for name in self._served if accounts.find(name) is None]:
            del self._served[name]

    def offered_to(self, account: Any) -> tuple[tuple[str, str], ...]:
        """Return the requests that an account's clients may send, and what they stand for."""
        if self._server.identities.accounts.system_account is None:
            return ()
        offered = SERVICES_FOR_ALL[-1:] if account.is_system else SERVICES_FOR_ALL
        return tuple((own, to.format(account.name)) for own, to in offered)

    # Subscribing

    def _serve_members(self, account: Any, cid: int) -> None:
        handlers: tuple[Handler, ...] = (
            lambda request: self._connz(request, account.name),
            lambda request: self._connz(request, account.name),
            lambda request: self._own_statz(request, account.name),
            self._user_info,
        )
        for place, ((subject, _), handler) in enumerate(
            zip(SERVICES_FOR_ALL, handlers, strict=True), start=1
        ):
            self._subscribe(account, subject, place, cid, self._wrapped(handler))

    def _serve_system(self, system: Any) -> None:
        wrapped = {name: self._wrapped(handler) for name, handler in self._pages().items()}
        wrapped["IDZ"] = lambda request: self.envelope.server_id()
        wrapped["STATSZ"] = self._statsz
        server_id = self._server.server_id
        answering: list[tuple[str, Handler]] = [("$SYS.REQ.SERVER.PING", self._statsz)]
        for name, handler in wrapped.items():
            answering.append((f"$SYS.REQ.SERVER.PING.{name}", handler))
            answering.append((f"$SYS.REQ.SERVER.{server_id}.{name}", handler))
        for name, handler in self._account_pages().items():
            answering.append((f"$SYS.REQ.ACCOUNT.*.{name}", self._wrapped(handler)))
        answering += [
            ("$SYS.REQ.ACCOUNT.*.CONNS", self._conns),
            ("$SYS.REQ.ACCOUNT.PING.STATZ", self._wrapped(self._statz_of_all)),
            ("$SYS.DEBUG.SUBSCRIBERS", self._subscribers),
            (f"$SYS.REQ.SERVER.{server_id}.RELOAD", self._reload),
            (f"$SYS.REQ.SERVER.{server_id}.KICK", self._kick),
            (f"$SYS.REQ.SERVER.{server_id}.LDM", self._lame_duck),
            ("$SYS.REQ.USER.INFO", self._wrapped(self._user_info)),
        ]
        for place, (subject, handler) in enumerate(answering, start=1):
            self._subscribe(system, subject, place, SYSTEM_CID, handler)

    def _subscribe(self, account: Any, subject: str, sid: int, cid: int, handler: Handler) -> None:
        def answer(subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
            self._answer(account, handler, Request(shown(subject), body, self._asking()), reply)

        client = InternalClient(answer, cid)
        account.sublist.insert(Subscription(client, subject.encode(), b"%d" % sid))

    def _asking(self) -> Connection | None:
        publisher = self._server.hub.publisher
        return publisher if isinstance(publisher, Connection) else None

    def _answer(
        self, account: Any, handler: Handler, request: Request, reply: bytes | None
    ) -> None:
        try:
            if reply is None:
                # Only one request has a meaning without a reply: publish the statistics.
                if handler == self._statsz:
                    self.events.tell_statsz()
                return
            answer = handler(request)
        except Unanswered:
            return
        except Exception as error:  # noqa: BLE001 - a request is an edge: it fails alone
            told = f"{type(error).__name__}: {error}"
            self._server.log("ERR", f"Error answering {request.subject!r}: {told}")
            return
        self.events.send(account.sublist, reply, answer)

    def _wrapped(self, handler: Handler) -> Handler:
        """Return a handler whose data or error is put into the usual envelope."""

        def wrapped(request: Request) -> Any:
            try:
                self._check_is_meant(request)
            except UsageError as error:
                return self.envelope.refusal(400, str(error), asked=False)
            try:
                return self.envelope.answer(handler(request))
            except _Unreadable as error:
                return self.envelope.refusal(400, str(error), asked=False)
            except UsageError as error:
                return self.envelope.refusal(500, str(error), asked=True)

        return wrapped

    def _check_is_meant(self, request: Request) -> None:
        wanted = request.read(EventFilter)
        server = self._source.server()
        pairs = (
            (wanted.server_name, server.name),
            (wanted.host, server.host),
            (wanted.cluster, ""),
        )
        for asked, own in pairs:
            if asked and (asked != own if wanted.exact_match else asked not in own):
                raise Unanswered
        if wanted.domain or not set(wanted.tags) <= set(server.tags):
            raise Unanswered

    # Pages

    def _pages(self) -> dict[str, Handler]:
        source = self._source
        return {
            "VARZ": lambda request: varz(source, self._server.monitoring.requests),
            "CONNZ": lambda request: self._connz(request, ""),
            "SUBSZ": lambda request: subsz(source, _options(request, SubszOptions)),
            "ROUTEZ": lambda request: routez(source),
            "GATEWAYZ": lambda request: gatewayz(source),
            "LEAFZ": lambda request: leafz(source),
            "ACCOUNTZ": lambda request: accountz(
                source, _options(request, AccountzRequest).account
            ),
            "HEALTHZ": lambda request: healthz(
                source.jetstream(), _options(request, HealthzOptions)
            ),
            "EXPVARZ": lambda request: variables(source),
            "PROFILEZ": lambda request: profilez(_options(request, ProfilezOptions)),
            # There are neither queues between parts of the server nor groups to agree in.
            "IPQUEUESZ": lambda request: {},
            "RAFTZ": lambda request: {},
            "JSZ": lambda request: jsz(source, _options(request, JszOptions)),
        }

    def _account_pages(self) -> dict[str, Handler]:
        source = self._source
        return {
            "SUBSZ": lambda request: subsz(
                source,
                msgspec.structs.replace(
                    _options(request, SubszOptions), subscriptions=True, account=request.account
                ),
            ),
            "CONNZ": lambda request: self._connz(request, request.account),
            "LEAFZ": lambda request: leafz(source),
            "JSZ": lambda request: account_jsz(
                source,
                msgspec.structs.replace(_options(request, JszOptions), account=request.account),
            ),
            "INFO": lambda request: account_detail(source, request.account),
            "STATZ": self._statz_of_account,
        }

    def _connz(self, request: Request, account: str) -> Any:
        options = _options(request, ConnzOptions)
        if account:
            options = msgspec.structs.replace(options, acc=account)
        return connz(self._source, options)

    def _statz_of_account(self, request: Request) -> Any:
        if request.account == "PING":
            raise Unanswered
        return self._own_statz(request, request.account)

    def _own_statz(self, request: Request, account: str) -> Any:
        return self._statz((account,), unused=_options(request, AccountStatzRequest).include_unused)

    def _statz_of_all(self, request: Request) -> Any:
        options = _options(request, AccountStatzRequest)
        return self._statz(tuple(options.accounts), unused=options.include_unused)

    def _statz(self, names: tuple[str, ...], *, unused: bool) -> Any:
        # An account that is asked for by name is shown even if it has no clients.
        page = accstatz(self._source, names, unused=unused)
        if not page["account_statz"] and not unused:
            raise Unanswered
        return page

    def _user_info(self, request: Request) -> Any:
        connection = request.connection
        if connection is None:
            raise Unanswered
        rights = connection.identity
        info: dict[str, Any] = {
            "user": self.events.facts(connection).user,
            "account": rights.account_name,
            "account_name": rights.account.name_tag or rights.account_name,
        }
        if rights.grant is not None:
            info |= _claimed(rights.grant, self._server.clock.now_ns())
        if rights.permissions is not None:
            info["permissions"] = _permissions(rights.permissions)
        return info

    # Odd ones out

    def _statsz(self, request: Request) -> Any:
        try:
            self._check_is_meant(request)
        except UsageError as error:
            return self.envelope.refusal(400, str(error), asked=False)
        return self.envelope.statsz()

    def _conns(self, request: Request) -> Any:
        account = self._server.identities.accounts.find(request.account)
        if account is None or not account.client_count:
            raise Unanswered
        return self.envelope.account_connections(self._source.account(account))

    def _subscribers(self, request: Request) -> Any:
        system = self._server.identities.accounts.system_account
        assert system is not None
        words = shown(request.body).strip().split(" ")
        subject, queue = words[0].encode(), words[1].encode() if len(words) > 1 else None
        if is_literal(subject):
            found = system.sublist.matches(subject)
            candidates = [*found.plain, *(each for group in found.queues for each in group)]
        else:
            candidates = [
                each for each in system.sublist.subscriptions() if is_subset(each.subject, subject)
            ]
        return sum(
            isinstance(each.receiver, Link) and (queue is None or each.queue == queue)
            for each in candidates
        )

    def _reload(self, request: Request) -> Any:
        if self._server.ask_reload is None:
            reason = "can only reload config when a file is provided using -c or --config"
            return self.envelope.refusal(500, reason, asked=False)
        self._server.loop.call_soon(self._server.ask_reload)
        return self.envelope.answer(None)

    def _kick(self, request: Request) -> Any:
        connection = self._named_client(request)
        if connection is None:
            return self.envelope.refusal(500, "no such client or leafnode id", asked=False)
        # Not now: the client may be the one whose request is being read.
        self._server.loop.call_soon(connection.close, ClosedReason.KICKED)
        return self.envelope.answer(None)

    def _lame_duck(self, request: Request) -> Any:
        connection = self._named_client(request)
        if connection is None:
            return self.envelope.refusal(500, "no such client id", asked=False)
        self._server.loop.call_soon(self._server.clients.tell_lame_duck, [connection])
        return self.envelope.answer(None)

    def _named_client(self, request: Request) -> Connection | None:
        if not request.body:
            raise Unanswered
        try:
            wanted = request.read(ClientRequest)
        except UsageError:
            raise Unanswered from None
        return self._server.clients.connections.get(wanted.cid)


class _Unreadable(UsageError):
    """The request's body is not what was expected."""


def _options(request: Request, kind: type[T]) -> T:
    try:
        return request.read(kind)
    except UsageError as error:
        raise _Unreadable(str(error)) from None


def _claimed(grant: Grant, now_ns: int) -> dict[str, Any]:
    claims = grant.claims
    shown_claims: dict[str, Any] = {"user_name": claims.name} if claims.name else {}
    if claims.expires:
        shown_claims["expires"] = max(claims.expires - now_ns // 10**9, 0) * 10**9
    return shown_claims


def _permissions(permissions: Permissions) -> dict[str, Any]:
    shown_rights: dict[str, Any] = {
        "publish": _subjects(permissions.publish_allow, permissions.publish_deny),
        "subscribe": _subjects(permissions.subscribe_allow, permissions.subscribe_deny),
    }
    if permissions.responses is not None:
        most, expires_ns = permissions.responses
        shown_rights["responses"] = {"max": most, "ttl": expires_ns}
    return shown_rights


def _subjects(allow: tuple[str, ...] | None, deny: tuple[str, ...]) -> dict[str, Any]:
    lists = {"allow": list(allow or ()), "deny": list(deny)}
    return {name: entries for name, entries in lists.items() if entries}
