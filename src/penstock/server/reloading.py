"""Other options for a running server: what changes, and for whom.

All or nothing: options that cannot be are refused before anything has changed. Then each client is
looked at again: one that may no longer connect is cut off, one whose user moved to another account
must come anew, and the others go on with their new rights; of a subscription that is no longer
allowed the client is told.

One thread: the event loop's. One reload at a time.
"""

from __future__ import annotations

from penstock.config.options import ServerOptions
from penstock.config.reload import Change, changes, with_ports_kept
from penstock.errors import UsageError
from penstock.net.closing import ClosedReason
from penstock.net.connection import Connection
from penstock.routing.sublist import Subscription
from penstock.server.encryption import is_pinned, tls_terms
from penstock.server.rights import Rights
from penstock.server.server import Server
from penstock.server.unavailable import check_available
from penstock.server.websockets import websocket_terms


async def take_options(server: Server, wanted: ServerOptions) -> None:
    """Go on with other options; raises ConfigError, UsageError or OSError if that cannot be."""
    wanted = with_ports_kept(server.options, wanted)
    found = changes(server.options, wanted)
    check_available(wanted)
    try:
        server.advertised_by(wanted)
    except ValueError as error:
        what = f"invalid ClientAdvertise value of {wanted.client_advertise}, err={error}"
        raise UsageError(what) from None
    tls = tls_terms(wanted.tls, server.clock, is_optional=wanted.allow_non_tls)
    websocket_tls = websocket_terms(wanted, server.clock)
    server.logger.configure(wanted)
    server.identities.apply(wanted)
    server.options, server.tls, server.websockets.tls = wanted, tls, websocket_tls
    server.config_load_ns = server.clock.now_ns()
    server.system.serve_accounts()
    server.serve_sharing()
    server.serve_jetstream()
    for change in found:
        server.log("INF", change.text)
    for connection in server.clients():
        connection.max_control_line = wanted.max_control_line
        connection.max_pending = wanted.max_pending
        connection.set_tracing(wanted.trace)
    _close_surplus(server, found)
    _close_unpinned(server)
    for connection in server.clients():
        # One on hold is looked at with the new users when the answer is there, and one that has
        # not said yet who it is will be met with them.
        if not (connection.closed or connection.is_on_hold or connection.identity is None):
            await _look_again(server, connection)
    server.hub.flush()


def _close_surplus(server: Server, found: list[Change]) -> None:
    if not any(change.option == "max_connections" for change in found):
        return
    surplus = len(server.connections) - max(server.options.max_connections, 0)
    if server.options.max_connections < 0 or surplus <= 0:
        return
    for connection in server.clients()[:surplus]:
        connection.refuse("maximum connections exceeded", ClosedReason.MAX_CONNECTIONS)
    server.log("INF", f"Closed {surplus} connections to fall within max_connections")


def _close_unpinned(server: Server) -> None:
    closed = 0
    for connection in server.clients():
        terms = server.websockets.tls if connection.kind == "websocket" else server.tls
        if connection.tls_version and not is_pinned(connection, terms):
            connection.close(ClosedReason.TLS_HANDSHAKE_ERROR)
            closed += 1
    if closed:
        server.log("INF", f"Disconnect {closed} clients due to pinned certs reload")


async def _look_again(server: Server, connection: Connection) -> None:
    if server.identities.is_slow:
        identity = await server.admission.identify_later(connection)
        if connection.closed:
            return
    else:
        identity = server.identities.identify(connection, connection.options)
    rights = server.identities.rights_of(identity)
    if rights is None:
        _cut_off(server, connection)
    elif connection.identity is not None and connection.identity.account is not rights.account:
        connection.close(ClosedReason.CLIENT_CLOSED)
    elif not server.identities.join(connection, rights):
        connection.refuse(
            "maximum account active connections exceeded", ClosedReason.MAX_ACCOUNT_CONNECTIONS
        )
    else:
        connection.become(rights)
        connection.cancel_timer("auth")
        look_again_at_subscriptions(server, connection, rights)


def look_again_at_subscriptions(server: Server, connection: Connection, rights: Rights) -> None:
    """Take away what a client may no longer subscribe to, and tell it so."""
    for subscription in list(connection.subscriptions.values()):
        _look_again_at(server, connection, rights, subscription)


def _cut_off(server: Server, connection: Connection) -> None:
    options = connection.options
    if (options.user or options.nkey) and not server.identities.authenticator.has_user(options):
        # Nobody of that name is left: the reference server says so when the client comes anew.
        connection.close(ClosedReason.CLIENT_CLOSED)
    else:
        server.admission.refuse_unknown(connection)


def _look_again_at(
    server: Server, connection: Connection, rights: Rights, subscription: Subscription
) -> None:
    subject, queue = subscription.subject, subscription.queue
    if rights.may_subscribe(subject, queue):
        subscription.deny = rights.delivery_deny(subject, queue)
        return
    connection.on_auto_unsubscribed(subscription)
    using = f' using queue "{_shown(queue)}"' if queue is not None else ""
    which = f'"{_shown(subject)}"{using} (sid "{_shown(subscription.sid)}")'
    connection.error(f"Permissions Violation for Subscription to {which}")
    server.log("INF", f"Removed sub {which} for {rights.user} - not authorized")


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
