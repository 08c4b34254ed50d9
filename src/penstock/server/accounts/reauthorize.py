"""Connected clients are checked again after users, permissions or claims have changed.

A client that may no longer be connected is told so and closed, in the reference server's words. A
client whose user moved to another account is closed and must reconnect. The others continue with
their new rights; a subscription that is no longer allowed is removed, and its client is told.

Thread: the event loop's. Called by reload and when an account's claims change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import UsageError
from penstock.net.connection import Connection
from penstock.net.host import ClosedReason
from penstock.routing.sublist import Subscription
from penstock.server.accounts.admission import Rights

if TYPE_CHECKING:
    # A server without operators reloads without loading what is about tokens.
    from penstock.security.jwt.authenticator import Grant
    from penstock.server.accounts.jwt_accounts import JwtAccount
    from penstock.server.server import Server


def reauthorize_members(server: Server, account: JwtAccount) -> None:
    """Apply changed claims to an account's clients: new rights, or the end of the connection."""
    from penstock.security.jwt.claims import is_revoked

    for place, connection in enumerate(_members(server, account.name)):
        grant: Grant | None = connection.identity.grant
        if grant is None or connection.closed:
            continue
        limit = account.claims.limits.conn
        if 0 <= limit <= place:
            connection.refuse(
                "maximum account active connections exceeded",
                ClosedReason.MAX_ACCOUNT_CONNECTIONS,
            )
        elif grant.grants.bearer_token and account.claims.limits.disallow_bearer:
            server.admission.refuse_unknown(connection)
        elif is_revoked(account.claims.revocations, grant.claims.subject, grant.claims.issued_at):
            connection.refuse("User Authentication Revoked", ClosedReason.CREDENTIALS_REVOKED)
        elif not _is_issuer_as_before(grant, account):
            connection.close(ClosedReason.AUTHENTICATION_VIOLATION)
        else:
            _go_on(server, connection, grant, account)
    server.hub.flush()


def expire_members(server: Server, account: JwtAccount) -> None:
    """Close the clients of an account whose claims have ended."""
    for connection in _members(server, account.name):
        connection.refuse("Account Authentication Expired", ClosedReason.AUTHENTICATION_EXPIRED)
    server.hub.flush()


def _members(server: Server, name: str) -> list[Connection]:
    account = server.identities.accounts.find(name)
    members = account.clients() if account is not None else ()
    return [each for each in members if isinstance(each, Connection)]


def _is_issuer_as_before(grant: Grant, account: JwtAccount) -> bool:
    issuer = grant.claims.issuer
    if issuer not in account.signing_keys:
        return False
    scope = account.signing_keys[issuer]
    return scope is None if grant.scope is None else scope == grant.scope


def _go_on(server: Server, connection: Connection, grant: Grant, account: JwtAccount) -> None:
    from penstock.security.jwt.authenticator import claimed_permissions

    permissions = grant.permissions
    if grant.uses_default_permissions:
        try:
            permissions = claimed_permissions(account.claims.default_permissions)
        except UsageError:
            connection.close(ClosedReason.AUTHENTICATION_VIOLATION)
            return
    before: Rights = connection.identity
    rights = Rights(
        before.account,
        user=before.user,
        permissions=permissions,
        clock=server.clock,
        grant=msgspec.structs.replace(grant, permissions=permissions),
    )
    allowed = rights.max_subscriptions(server.options.max_subscriptions)
    if rights.forbids_subscriptions or 0 < allowed < len(connection.subscriptions):
        connection.refuse("maximum subscriptions exceeded", ClosedReason.MAX_SUBSCRIPTIONS)
        return
    changed = permissions != before.permissions
    connection.become(rights)
    if changed:
        reauthorize_subscriptions(server, connection, rights)


async def reauthorize_client(server: Server, connection: Connection) -> None:
    """Check a client against the users as they are now: admit it again, or close it."""
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
        reauthorize_subscriptions(server, connection, rights)


def reauthorize_subscriptions(server: Server, connection: Connection, rights: Rights) -> None:
    """Remove the subscriptions that a client may no longer have, and tell it."""
    for subscription in list(connection.subscriptions.values()):
        _reauthorize_subscription(server, connection, rights, subscription)


def _cut_off(server: Server, connection: Connection) -> None:
    options = connection.options
    if (options.user or options.nkey) and not server.identities.authenticator.has_user(options):
        # The user is gone: the reference server says so when the client reconnects.
        connection.close(ClosedReason.CLIENT_CLOSED)
    else:
        server.admission.refuse_unknown(connection)


def _reauthorize_subscription(
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
