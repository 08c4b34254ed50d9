"""What changed claims mean for those who are connected already.

A member that may no longer be there is told so and let go, in the reference server's words; the
others go on with the account's limits and permissions as they are now.

One thread: the event loop's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import UsageError
from penstock.net.closing import ClosedReason
from penstock.net.connection import Connection
from penstock.security.claims import is_revoked
from penstock.security.token_authenticator import Grant, claimed_permissions
from penstock.server.reloading import look_again_at_subscriptions
from penstock.server.rights import Rights

if TYPE_CHECKING:
    from penstock.server.claimed_accounts import KnownAccount
    from penstock.server.server import Server


def look_again_at_members(server: Server, account: KnownAccount) -> None:
    """Have an account's clients go on with its claims, or end them."""
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


def let_members_go(server: Server, account: KnownAccount) -> None:
    """End the clients of an account whose claims hold no more."""
    for connection in _members(server, account.name):
        connection.refuse("Account Authentication Expired", ClosedReason.AUTHENTICATION_EXPIRED)
    server.hub.flush()


def _members(server: Server, name: str) -> list[Connection]:
    account = server.identities.accounts.find(name)
    members = account.clients() if account is not None else ()
    return [each for each in members if isinstance(each, Connection)]


def _is_issuer_as_before(grant: Grant, account: KnownAccount) -> bool:
    issuer = grant.claims.issuer
    if issuer not in account.signing_keys:
        return False
    scope = account.signing_keys[issuer]
    return scope is None if grant.scope is None else scope == grant.scope


def _go_on(server: Server, connection: Connection, grant: Grant, account: KnownAccount) -> None:
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
    allowed = rights.max_subscriptions(server.limits.max_subscriptions)
    if rights.forbids_subscriptions or 0 < allowed < len(connection.subscriptions):
        connection.refuse("maximum subscriptions exceeded", ClosedReason.MAX_SUBSCRIPTIONS)
        return
    changed = permissions != before.permissions
    connection.become(rights)
    if changed:
        look_again_at_subscriptions(server, connection, rights)
