"""A connection as monitoring shows it: plain facts, made when a page asks or the connection closes.

Invariant: the facts of a closed connection hold no reference to it, so that its memory is freed.

Thread: the event loop's. Called by the server's `ServerSource` and by its system events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.limits import CLOSED_SUBSCRIPTIONS_KEPT_MAX
from penstock.monitor.facts import ConnectionFacts, Counts, SubscriptionFacts
from penstock.monitor.query import shown

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.routing.sublist import Subscription


def subscription_facts(each: Subscription, account: Any) -> SubscriptionFacts:
    """Return the facts of one subscription; `account` is None before the client is admitted."""
    return SubscriptionFacts(
        account=account.name if account is not None else "",
        subject=shown(each.subject),
        queue=shown(each.queue),
        sid=shown(each.sid),
        delivered=each.delivered,
        max_messages=each.max_messages,
        cid=getattr(each.receiver, "cid", 0),
        account_tag=account.name_tag if account is not None else "",
    )


def open_facts(connection: Connection) -> ConnectionFacts:
    """Return the facts of an open connection."""
    return _facts(connection, connection.subscriptions.values())


def closed_facts(connection: Connection) -> ConnectionFacts:
    """Return what is kept of a connection that has closed."""
    return _facts(connection, connection.last_subscriptions)


def _facts(connection: Connection, subscriptions: Iterable[Subscription]) -> ConnectionFacts:
    options, rights = connection.options, connection.identity
    account = rights.account if rights is not None else None
    is_closed = connection.close_reason is not None
    held = list(subscriptions)
    # A closed connection's facts must not refer to it, and its subscriptions would.
    shown_now = held[:CLOSED_SUBSCRIPTIONS_KEPT_MAX] if is_closed else []
    kept = [subscription_facts(each, account) for each in shown_now]
    live = [] if is_closed else held
    return ConnectionFacts(
        cid=connection.cid,
        type=connection.kind,
        ip=connection.ip,
        port=connection.port,
        start_ns=connection.start_ns,
        last_activity_ns=max(connection.last_activity_ns, connection.last_publish_ns),
        rtt_ns=connection.rtt_ns,
        pending_bytes=len(connection.out),
        stalls=connection.stalls,
        received=Counts(connection.in_msgs, connection.in_bytes),
        sent=Counts(connection.out_msgs, connection.out_bytes),
        name=options.name,
        lang=options.lang,
        version=options.version,
        tls_version=connection.tls_version,
        tls_cipher=connection.tls_cipher,
        tls_first=connection.did_tls_first,
        user=user_of(connection),
        account=account.name if account is not None else "",
        subscription_count=len(held),
        subscriptions=lambda: kept or [subscription_facts(each, account) for each in live],
        stop_ns=connection.stop_ns,
        reason=str(connection.close_reason or ""),
        account_tag=account.name_tag if account is not None else "",
        **_of_token(rights),
    )


def _of_token(rights: Any) -> dict[str, Any]:
    """Return what is shown of a client's JWT. A bearer token is a secret and is left out."""
    grant = rights.grant if rights is not None else None
    if grant is None:
        return {}
    return {
        "jwt": "" if grant.grants.bearer_token else grant.token,
        "issuer_key": grant.claims.signing_key or grant.claims.issuer,
        "tags": grant.claims.tags,
    }


def user_of(connection: Connection) -> str:
    """Return the name of a connection's user, without anything secret."""
    options = connection.options
    if options.nkey:
        return options.nkey
    if options.user:
        return options.user
    if options.jwt and connection.identity is not None and connection.identity.token_user:
        return str(connection.identity.token_user)
    if options.auth_token:
        return "[REDACTED]"
    return connection.identity.user if connection.identity is not None else ""
