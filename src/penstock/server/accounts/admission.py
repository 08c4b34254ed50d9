"""Admission: from a client's CONNECT to its rights, or to the refusal.

Slow steps (a bcrypt hash, fetching an account's JWT) run on another thread while the connection is
on hold. A result that was found with users whom a reload has replaced is thrown away, and the
client is checked again.

`Rights` is what one connection may do: its account and its user's permissions. It answers the
questions that `net` asks for each operation, from what `security` decided.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.limits import PASSWORD_THREADS_MAX
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.protocol.handshake import ConnectOptions
from penstock.routing.applied_mappings import AppliedMappings
from penstock.routing.sublist import Sublist
from penstock.routing.transforms import SubjectMappings
from penstock.security.accounts import Account, tighter
from penstock.security.authenticator import Authenticator, Identity
from penstock.security.permissions import Permissions
from penstock.security.publishing import PublishPermissions, ResponsePermissions
from penstock.subjects import SubjectFilter
from penstock.text.quoting import quoted

if TYPE_CHECKING:
    from penstock.security.jwt.authenticator import Grant, TokenAuthenticator
    from penstock.server.server import Server


class Rights:
    """What one connection may do; see the module."""

    def __init__(
        self,
        account: Account[Sublist, SubjectMappings],
        *,
        user: str,
        permissions: Permissions | None,
        clock: Clock,
        grant: Grant | None = None,
    ) -> None:
        self.account = account
        self.grant = grant
        self.user = user
        self.permissions = permissions
        self._clock = clock
        self.publishing: PublishPermissions | None = None
        """What may be published to; None for everything."""

        self.responses: ResponsePermissions | None = None
        """The reply subjects that may be answered besides; None without that right."""

        if permissions is not None:
            self.publishing = permissions.publishing if permissions.checks_publish else None
            self.responses = permissions.new_responses()

    @property
    def account_name(self) -> str:
        """The account's name."""
        return self.account.name

    @property
    def account_label(self) -> str:
        """The account as log lines show it."""
        return self.account.label

    @property
    def token_user(self) -> str:
        """The public key of a user that came with a token; "" for any other."""
        return self.user if self.grant is not None else ""

    @property
    def sublist(self) -> Sublist:
        """The account's subscriptions."""
        return self.account.sublist

    @property
    def mappings(self) -> AppliedMappings | None:
        """What a publish goes through to find its subject; None for nothing."""
        return None if self.account.mappings is None else self.account.mappings.applied

    @property
    def traces_parents(self) -> bool:
        """Whether messages with a sampled `traceparent` are traced."""
        return bool(self.account.trace_destination)

    def may_publish(self, subject: bytes) -> bool:
        """Return True if the user may publish to a subject."""
        if self.permissions is None or self.permissions.may_publish(subject):
            return True
        return self.responses is not None and self.responses.allows(
            subject, self._clock.monotonic_ns()
        )

    def may_trace_to(self, subject: bytes) -> bool:
        """Return True if traces of the user's messages may go to a subject."""
        return self.permissions is None or self.permissions.may_publish(subject)

    def may_subscribe(self, subject: bytes, queue: bytes | None) -> bool:
        """Return True if the user may subscribe."""
        return self.permissions is None or self.permissions.may_subscribe(subject, queue)

    def delivery_deny(self, subject: bytes, queue: bytes | None) -> SubjectFilter | None:
        """Return the subjects that a subscription matches and must not receive."""
        if self.permissions is None:
            return None
        return self.permissions.delivery_deny(subject, queue)

    def mapped(self, subject: bytes) -> bytes:
        """Return the subject that a publish is mapped to."""
        return subject if self.account.mappings is None else self.account.mappings.map(subject)

    def max_payload(self, server_max: int) -> int:
        """Return the largest payload that the user may send."""
        own = self.account.limits.max_payload
        if self.grant is not None:
            return tighter(tighter(self.grant.grants.payload, own), server_max)
        return min(server_max, own) if own > 0 else server_max

    def max_subscriptions(self, server_max: int) -> int:
        """Return how many subscriptions a connection may have; 0 for any number."""
        own = self.account.limits.max_subscriptions
        if self.grant is not None:
            own = tighter(self.grant.grants.subs, own)
        if own > 0 and server_max > 0:
            return min(server_max, own)
        return max(own, server_max, 0)

    @property
    def forbids_subscriptions(self) -> bool:
        """Whether no subscription at all is allowed; such a client is refused."""
        own = self.account.limits.max_subscriptions
        return self.grant is not None and tighter(self.grant.grants.subs, own) == 0


class Admission:
    """Admits the clients of one server; see the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._threads: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Stop the threads; checks that wait are dropped."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def authenticate(self, connection: Connection, options: ConnectOptions) -> None:
        """Check a client's credentials, and admit or refuse it; later if that is slow."""
        if options.account or options.new_account:
            connection.refuse("Authorization Violation", ClosedReason.AUTHENTICATION_VIOLATION)
        elif account := self._server.identities.account_to_fetch(options):
            self._fetch_account(connection, account)
        elif not self._server.identities.is_slow:
            self._identified(connection, self._server.identities.identify(connection, options))
        else:
            connection.hold()
            users = self._server.identities.authenticator
            found = self.identify_later(connection)
            found.add_done_callback(lambda done: self._identified_later(connection, done, users))

    def identify_later(self, connection: Connection) -> asyncio.Future[Identity | None]:
        """Check a client's credentials on another thread: a bcrypt hash takes a while."""
        return self._server.loop.run_in_executor(
            self._slow_threads(), self._server.identities.identify, connection, connection.options
        )

    def _slow_threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(PASSWORD_THREADS_MAX, "passwords")
        return self._threads

    def _fetch_account(self, connection: Connection, name: str) -> None:
        """Fetch the JWT of a client's account on another thread, then check the client."""
        claimed = self._server.identities.jwt_accounts
        assert claimed is not None

        def fetched(done: asyncio.Future[dict[str, str]]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._server.log("ERR", f"Account fetch failed: {name}")
            else:
                claimed.take(done.result())
            if not connection.closed:
                self._identified(
                    connection, self._server.identities.identify(connection, connection.options)
                )
                connection.proceed()

        connection.hold()
        asked = self._server.loop.run_in_executor(self._slow_threads(), claimed.fetch, name)
        asked.add_done_callback(fetched)

    def _identified_later(
        self,
        connection: Connection,
        found: asyncio.Future[Identity | None],
        users: Authenticator | TokenAuthenticator,
    ) -> None:
        if connection.closed or found.cancelled():
            return
        if users is not self._server.identities.authenticator:
            # The users were reloaded meanwhile; what the old ones say does not count any more.
            self.authenticate(connection, connection.options)
            if not self._server.identities.is_slow:
                connection.proceed()
            return
        if found.exception() is not None:
            self._server.log("ERR", f"{connection} - authentication failed: {found.exception()!r}")
        self._identified(connection, None if found.exception() is not None else found.result())
        connection.proceed()

    def _identified(self, connection: Connection, identity: Identity | None) -> None:
        rights = self._server.identities.rights_of(identity)
        if rights is None:
            self.refuse_unknown(connection)
        elif not self._server.identities.join(connection, rights):
            connection.refuse(
                "maximum account active connections exceeded",
                ClosedReason.MAX_ACCOUNT_CONNECTIONS,
            )
        else:
            connection.admit(rights)
            self._plan_end(connection, rights)
            self._server.system.events.connected(connection)

    def _plan_end(self, connection: Connection, rights: Rights) -> None:
        """Plan to close a connection when its JWT ends; refuse it if it may not subscribe."""
        connection.cancel_timer("token")
        if rights.forbids_subscriptions:
            connection.refuse("maximum subscriptions exceeded", ClosedReason.MAX_SUBSCRIPTIONS)
        elif rights.grant is not None and rights.grant.seconds is not None:
            connection.set_timer(
                "token",
                rights.grant.seconds,
                lambda: connection.refuse(
                    "User Authentication Expired", ClosedReason.AUTHENTICATION_EXPIRED
                ),
            )

    def refuse_unknown(self, connection: Connection) -> None:
        """Log and close a connection whose client may not connect."""
        who = _named(connection.options)
        self._server.log("ERR", f"{connection} - authentication error{who}")
        connection.refuse("Authorization Violation", ClosedReason.AUTHENTICATION_VIOLATION)


def _named(options: ConnectOptions) -> str:
    """Return how a refused client named itself, without anything secret."""
    if options.nkey:
        return f" - Nkey {quoted(options.nkey)}"
    if options.user:
        return f" - User {quoted(options.user)}"
    return ' - Token "[REDACTED]"' if options.auth_token else ""
