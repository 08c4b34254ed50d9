"""The pages of connections and of subscriptions, /connz and /subsz, and the facts that they show.

The facts of a connection are made when a page asks or the connection closes. Invariant: those of a
closed connection hold no reference to it, so that its memory is freed. A page decides which ones
are shown, in which order, and which part of them.

Thread: the event loop's. Called by `monitor.pages`, by the server's `ServerSource`, and by the
events and services of the system account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import UsageError
from penstock.limits import CLOSED_SUBSCRIPTIONS_KEPT_MAX
from penstock.monitor.facts import ConnectionFacts, Counts, Source, SublistFacts, SubscriptionFacts
from penstock.monitor.query import Query, age, number, shown, timestamp, without_empty
from penstock.subjects import is_literal, is_valid_subject, matches, patterns_overlap
from penstock.text.times import format_duration

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.routing.sublist import Subscription


# Facts


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


# Pages

PAGE_SIZE = 1024
"""Connections or subscriptions on a page where the request does not say: Go's value."""

GLOBAL_ACCOUNT = "$G"
OPEN, CLOSED, ANY = 0, 1, 2

_SORTS: dict[str, tuple[Callable[[ConnectionFacts], Any], bool]] = {
    "cid": (lambda each: each.cid, False),
    "start": (lambda each: each.cid, False),
    "subs": (lambda each: each.subscription_count, True),
    "pending": (lambda each: each.pending_bytes, True),
    "msgs_to": (lambda each: each.sent.msgs, True),
    "msgs_from": (lambda each: each.received.msgs, True),
    "bytes_to": (lambda each: each.sent.bytes, True),
    "bytes_from": (lambda each: each.received.bytes, True),
    "last": (lambda each: each.last_activity_ns, True),
    "idle": (lambda each: each.last_activity_ns, False),
    "uptime": (lambda each: each.start_ns, True),
    "stop": (lambda each: each.stop_ns, True),
    "reason": (lambda each: each.reason, False),
    "rtt": (lambda each: each.rtt_ns, True),
}
"""{sort: (what connections are ordered by, True if the largest comes first)}."""


class ConnzOptions(msgspec.Struct, frozen=True):
    """What a request for connections may ask; the names are those of the wire."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""

    @classmethod
    def from_query(cls, query: Query) -> ConnzOptions:
        """Read a query string; raise UsageError if a value cannot be read."""
        auth = query.boolean("auth")
        subscriptions, detail = query.subscriptions()
        return cls(
            sort=query.text("sort"),
            auth=auth,
            subscriptions=subscriptions,
            subscriptions_detail=detail,
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            cid=query.unsigned("cid"),
            state=query.state(),
            user=query.text("user"),
            acc=query.text("acc"),
            mqtt_client=query.text("mqtt_client"),
        )


def connz(source: Source, options: ConnzOptions) -> dict[str, Any]:
    """Return the page; raise UsageError for options that do not fit together."""
    _check(options)
    offset = max(options.offset, 0)
    limit = 1 if options.cid > 0 else options.limit if options.limit > 0 else PAGE_SIZE
    now_ns = source.now_ns()
    page: dict[str, Any] = {
        "server_id": source.server().id,
        "now": timestamp(now_ns),
        "num_connections": 0,
        "total": 0,
        "offset": offset,
        "limit": limit,
        "connections": [],
    }
    if options.acc and all(account.name != options.acc for account in source.accounts()):
        # For an account that does not exist the reference server leaves its own id out.
        return page | {"server_id": "", "connections": None}
    candidates = _candidates(source, options)
    found = _selected(candidates, options)
    key, largest_first = _SORTS[options.sort or "cid"]
    found.sort(key=key, reverse=largest_first)
    part = found[offset : offset + limit]
    page["num_connections"] = len(part)
    page["total"] = len(candidates)
    page["connections"] = [_connection(each, now_ns, options) for each in part]
    return page


def _check(options: ConnzOptions) -> None:
    if options.sort and options.sort not in _SORTS:
        raise UsageError(f"invalid sorting option: {options.sort}")
    if options.sort in ("stop", "reason") and options.state != CLOSED:
        raise UsageError(f"sort by {options.sort} only valid on closed connections")
    if options.filter_subject not in ("", ">") and not options.acc:
        raise UsageError("filter by subject only valid with account filtering")


def _candidates(source: Source, options: ConnzOptions) -> list[ConnectionFacts]:
    """Return the connections of the requested state and account: the page's total."""
    found: list[ConnectionFacts] = []
    if options.state in (OPEN, ANY):
        found += source.open_connections()
    if options.state in (CLOSED, ANY):
        found += source.closed_connections()
    return [each for each in found if not options.acc or each.account == options.acc]


def _selected(candidates: list[ConnectionFacts], options: ConnzOptions) -> list[ConnectionFacts]:
    if options.cid > 0:
        return [each for each in candidates if each.cid == options.cid][:1]
    if options.mqtt_client:
        return []
    found = [each for each in candidates if not options.user or each.user == options.user]
    if options.filter_subject in ("", ">"):
        return found
    subject = options.filter_subject.encode("utf-8", "replace")
    return [each for each in found if each.stop_ns or _has_interest(each, subject)]


def _has_interest(connection: ConnectionFacts, subject: bytes) -> bool:
    return any(
        patterns_overlap(subject, each.subject.encode("utf-8", "replace"))
        for each in connection.subscriptions()
    )


def _connection(each: ConnectionFacts, now_ns: int, options: ConnzOptions) -> dict[str, Any]:
    end_ns = each.stop_ns or now_ns
    fields: dict[str, Any] = {
        "cid": each.cid,
        "kind": "Client",
        "type": each.type,
        "ip": each.ip,
        "port": each.port,
        "start": timestamp(each.start_ns),
        "last_activity": timestamp(each.last_activity_ns),
        "stop": timestamp(each.stop_ns) if each.stop_ns else None,
        "reason": each.reason,
        "rtt": format_duration(each.rtt_ns // 1000 * 1000),
        "uptime": age(end_ns - each.start_ns),
        "idle": age(end_ns - each.last_activity_ns),
        "pending_bytes": each.pending_bytes,
        "in_msgs": each.received.msgs,
        "out_msgs": each.sent.msgs,
        "in_bytes": each.received.bytes,
        "out_bytes": each.sent.bytes,
        "stalls": each.stalls,
        "subscriptions": each.subscription_count,
        "name": each.name,
        "lang": each.lang,
        "version": each.version,
        "tls_version": each.tls_version,
        "tls_cipher_suite": each.tls_cipher,
        "tls_first": each.tls_first,
    }
    own_account = each.account if each.account != GLOBAL_ACCOUNT else ""
    if options.auth:
        fields |= {"authorized_user": each.user, "account": own_account}
    if options.subscriptions_detail:
        # Of a closed connection each subscription has its account.
        detail = subscription_in_account if each.stop_ns else subscription
        fields["subscriptions_list_detail"] = [detail(one) for one in each.subscriptions()]
    elif options.subscriptions:
        fields["subscriptions_list"] = [one.subject for one in each.subscriptions()]
    if options.auth:
        fields |= {"jwt": each.jwt, "issuer_key": each.issuer_key}
        fields["name_tag"] = each.account_tag or (own_account if each.stop_ns else each.account)
        fields["tags"] = list(each.tags)
    return without_empty(
        fields,
        "stop", "reason", "name", "lang", "version", "tls_version", "tls_cipher_suite", "tls_first",
        "stalls",
        "authorized_user", "account", "subscriptions_list", "subscriptions_list_detail", "name_tag",
        "jwt", "issuer_key", "tags",
    )  # fmt: skip


def subscription_in_account(each: SubscriptionFacts) -> dict[str, Any]:
    """Return a subscription in detail, with its account."""
    tag = each.account_tag or each.account
    return {"account": each.account, "account_tag": tag, **subscription(each)}


def subscription(each: SubscriptionFacts) -> dict[str, Any]:
    """Return a subscription in detail."""
    return without_empty(
        {
            "subject": each.subject,
            "qgroup": each.queue,
            "sid": each.sid,
            "msgs": each.delivered,
            "max": each.max_messages,
            "cid": each.cid,
        },
        "qgroup",
        "max",
    )


# /subsz


class SubszOptions(msgspec.Struct, frozen=True):
    """What a request for subscriptions may ask; the names are those of the wire."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""

    @classmethod
    def from_query(cls, query: Query) -> SubszOptions:
        """Read a query string; raise UsageError if a value cannot be read."""
        return cls(
            subscriptions=query.boolean("subs"),
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            account=query.text("acc"),
            test=query.text("test"),
        )


def subsz(source: Source, options: SubszOptions) -> dict[str, Any]:
    """Return the page; raise UsageError for options that do not fit together."""
    test = options.test.encode("utf-8", "replace")
    if test and not (is_valid_subject(test) and is_literal(test)):
        raise UsageError(f"invalid test subject, must be valid publish subject: {options.test}")
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else PAGE_SIZE
    chosen = [
        each for each in source.accounts() if not options.account or each.name == options.account
    ]
    totals = sum((each.sublist() for each in chosen), SublistFacts())
    page: dict[str, Any] = {
        "server_id": source.server().id,
        "now": timestamp(source.now_ns()),
        **statistics(totals),
        "total": 0,
        "offset": offset,
        "limit": limit,
    }
    if not options.subscriptions:
        return page
    found = [
        each
        for account in chosen
        for each in source.subscriptions(account.name)
        if not test or matches(each.subject.encode("utf-8", "replace"), test)
    ]
    page["total"] = len(found)
    part = found[offset : offset + limit]
    if part:
        page["subscriptions_list"] = [subscription_in_account(each) for each in part]
    return page


def statistics(facts: SublistFacts) -> dict[str, Any]:
    """Return the statistics of a sublist, or of several that were added up."""
    return {
        "num_subscriptions": facts.count,
        "num_cache": facts.cached,
        "num_inserts": facts.inserts,
        "num_removes": facts.removes,
        "num_matches": facts.matches,
        # Hits are not counted: that would cost every publish.
        "cache_hit_rate": 0,
        "max_fanout": facts.fanout_max,
        "avg_fanout": number(facts.fanout_total / facts.cached if facts.cached else 0),
    }
