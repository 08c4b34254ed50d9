"""Reload: a running server takes other options, all of them or none.

    await take_options(server, wanted)

Everything that can fail is a step of `STEPS`: read certificates, open the log, build users, open
streams. A step that changes the server says how to undo it. If a step fails, those before it are
undone, the last first, and the server goes on as before. No step waits, so no client sees a server
between two configurations.

What follows cannot fail as a whole: removed accounts and streams are closed, and each client is
checked against the new users. A fault in one of these is logged, and the rest is done.

Thread: the event loop's. One reload at a time. Called on SIGHUP, by a request in the system
account, and by `EmbeddedServer.reload`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from penstock.config.check import check_available
from penstock.config.options.server import ServerOptions
from penstock.config.reload import Change, changes, with_ports_kept
from penstock.errors import UsageError
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.net.opening import TlsTerms
from penstock.server.accounts.identities import Prepared
from penstock.server.accounts.reauthorize import reauthorize_client
from penstock.server.listeners import is_pinned, tls_terms, websocket_terms
from penstock.server.log import LogChange
from penstock.server.server import Server


async def take_options(server: Server, wanted: ServerOptions) -> None:
    """Use other options; raise ConfigError, UsageError or OSError and change nothing if it fails.

    Whatever else a step raises is raised too, and nothing has changed.
    """
    reload = Reload(server, wanted)
    with reload.undo:
        for _, step in STEPS:
            step(reload)
        # All steps are done: nothing is undone any more.
        reload.undo.pop_all()
    _settle(reload)
    for connection in server.clients.all():
        await _check_client(server, connection)
    server.hub.flush()


class Reload:
    """One reload on its way: what the steps have prepared, and how to undo what they changed."""

    log: LogChange
    identities: Prepared
    tls: TlsTerms | None = None
    websocket_tls: TlsTerms | None = None

    def __init__(self, server: Server, wanted: ServerOptions) -> None:
        self.server = server
        self.wanted = wanted
        self.changes: list[Change] = []
        self.undo = contextlib.ExitStack()


# Steps that only prepare


def _compare(reload: Reload) -> None:
    """Refuse options that may not change, or that this server does not have."""
    reload.wanted = with_ports_kept(reload.server.options, reload.wanted)
    reload.changes = changes(reload.server.options, reload.wanted)
    check_available(reload.wanted)


def _check_advertised(reload: Reload) -> None:
    wanted = reload.wanted
    try:
        reload.server.advertised_by(wanted)
    except ValueError as error:
        what = f"invalid ClientAdvertise value of {wanted.client_advertise}, err={error}"
        raise UsageError(what) from None


def _read_certificates(reload: Reload) -> None:
    wanted, clock = reload.wanted, reload.server.clock
    reload.tls = tls_terms(wanted.tls, clock, is_optional=wanted.allow_non_tls)
    reload.websocket_tls = websocket_terms(wanted, clock)


def _open_log(reload: Reload) -> None:
    reload.log = reload.server.logger.prepare(reload.wanted)
    reload.undo.callback(reload.log.discard)


def _build_users(reload: Reload) -> None:
    reload.identities = reload.server.identities.prepare(reload.wanted)


# Steps that change the server, and can be undone


def _switch_users(reload: Reload) -> None:
    reload.undo.callback(reload.server.identities.switch(reload.identities))


def _switch_options(reload: Reload) -> None:
    server = reload.server
    options, tls, websocket_tls = server.options, server.tls, server.websockets.tls

    def undo() -> None:
        server.options, server.tls, server.websockets.tls = options, tls, websocket_tls

    reload.undo.callback(undo)
    server.options = reload.wanted
    server.tls, server.websockets.tls = reload.tls, reload.websocket_tls


def _open_streams(reload: Reload) -> None:
    reload.undo.callback(reload.server.open_streams())


STEPS: Final[tuple[tuple[str, Callable[[Reload], None]], ...]] = (
    ("compare", _compare),
    ("advertised address", _check_advertised),
    ("certificates", _read_certificates),
    ("log", _open_log),
    ("users", _build_users),
    ("switch users", _switch_users),
    ("switch options", _switch_options),
    ("streams", _open_streams),
)
"""Everything of a reload that can fail, in order. Tests let each of them fail."""


# What follows when all steps are done


def _settle(reload: Reload) -> None:
    server = reload.server
    server.config_load_ns = server.clock.now_ns()
    for action in (
        reload.log.commit,
        lambda: server.identities.settle(reload.identities),
        server.system.serve_accounts,
        server.serve_imports,
        server.close_streams,
        lambda: _tell_changes(reload),
        lambda: _set_limits(server),
        lambda: _close_surplus(server, reload.changes),
        lambda: _close_unpinned(server),
    ):
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the reload is done: the rest must be, too
            server.log("ERR", f"Internal error: {type(error).__name__}: {error}")


def _tell_changes(reload: Reload) -> None:
    for change in reload.changes:
        reload.server.log("INF", change.text)


def _set_limits(server: Server) -> None:
    options = server.options
    for connection in server.clients.all():
        connection.max_control_line = options.max_control_line
        connection.max_pending = options.max_pending
        connection.set_tracing(options.trace)


def _close_surplus(server: Server, found: list[Change]) -> None:
    if not any(change.option == "max_connections" for change in found):
        return
    surplus = len(server.clients.connections) - max(server.options.max_connections, 0)
    if server.options.max_connections < 0 or surplus <= 0:
        return
    for connection in server.clients.all()[:surplus]:
        connection.refuse("maximum connections exceeded", ClosedReason.MAX_CONNECTIONS)
    server.log("INF", f"Closed {surplus} connections to fall within max_connections")


def _close_unpinned(server: Server) -> None:
    closed = 0
    for connection in server.clients.all():
        terms = server.websockets.tls if connection.kind == "websocket" else server.tls
        if connection.tls_version and not is_pinned(connection, terms):
            connection.close(ClosedReason.TLS_HANDSHAKE_ERROR)
            closed += 1
    if closed:
        server.log("INF", f"Disconnect {closed} clients due to pinned certs reload")


async def _check_client(server: Server, connection: Connection) -> None:
    # A client on hold is checked with the new users when its answer is there, and a client that
    # has not sent CONNECT yet will be.
    if connection.closed or connection.is_on_hold or connection.identity is None:
        return
    try:
        await reauthorize_client(server, connection)
    except Exception as error:  # noqa: BLE001 - the others must be checked, too
        server.log("ERR", f"{connection} - authentication failed: {error!r}")
        server.admission.refuse_unknown(connection)
