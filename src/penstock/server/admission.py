"""Who comes in: from a CONNECT to a client that is let in, or told that it is not.

What takes its time (a bcrypt hash, an account that others must be asked for) happens on another
thread, and the connection is on hold meanwhile; what was decided by users that a reload has
replaced does not count.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.config.quoting import quoted
from penstock.limits import PASSWORD_THREADS_MAX
from penstock.net.closing import ClosedReason
from penstock.net.connection import Connection
from penstock.protocol.handshake import ConnectOptions
from penstock.security.authenticator import Authenticator, Identity
from penstock.server.rights import Rights

if TYPE_CHECKING:
    from penstock.security.token_authenticator import TokenAuthenticator
    from penstock.server.server import Server


class Admission:
    """The door of one server; see the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._threads: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Wait for nobody any more."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def authenticate(self, connection: Connection, options: ConnectOptions) -> None:
        """Find out who a client is, and admit or refuse it; later where that takes its time."""
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
        """Find out who a client is on another thread: a bcrypt hash takes a while."""
        return self._server.loop.run_in_executor(
            self._slow_threads(), self._server.identities.identify, connection, connection.options
        )

    def _slow_threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(PASSWORD_THREADS_MAX, "passwords")
        return self._threads

    def _fetch_account(self, connection: Connection, name: str) -> None:
        """Ask others for a client's account, and look at the client when it is there."""
        claimed = self._server.identities.claimed
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
        """End a connection when its token does, or at once where it leaves nothing to do."""
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
        """Close a connection whose client is nobody that may connect."""
        who = _named(connection.options)
        self._server.log("ERR", f"{connection} - authentication error{who}")
        connection.refuse("Authorization Violation", ClosedReason.AUTHENTICATION_VIOLATION)


def _named(options: ConnectOptions) -> str:
    """Say who a client that was refused says it is, without anything secret."""
    if options.nkey:
        return f" - Nkey {quoted(options.nkey)}"
    if options.user:
        return f" - User {quoted(options.user)}"
    return ' - Token "[REDACTED]"' if options.auth_token else ""
