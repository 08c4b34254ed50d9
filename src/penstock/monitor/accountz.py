"""The pages of accounts, /accountz and /accstatz: names, details, and statistics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import UsageError
from penstock.monitor.connz import statistics
from penstock.monitor.facts import (
    AccountFacts,
    ClaimFacts,
    Counts,
    ImportFacts,
    SharedFacts,
    Source,
)
from penstock.monitor.query import timestamp, without_empty

Destination = tuple[str, int, str]
"""Where a mapping goes, its share in percent, and in which cluster."""

EXPORTS = (
    ("$SYS.REQ.ACCOUNT.*.CONNZ", "Streamed"),
    ("$SYS.REQ.ACCOUNT.*.STATZ", "Streamed"),
    ("$SYS.DEBUG.SUBSCRIBERS", "Singleton"),
    ("$SYS.REQ.USER.*.INFO", "Singleton"),
)
"""Services that the system account exports, and how they answer."""

JETSTREAM_API = "$JS.API.>"
"""What the system account exports besides, where there is JetStream."""


def accountz(source: Source, name: str) -> dict[str, Any]:
    """Return the names of all accounts, or one in detail; raise UsageError if it is unknown."""
    server = source.server()
    page: dict[str, Any] = {
        "server_id": server.id,
        "now": timestamp(source.now_ns()),
        "system_account": server.system_account,
    }
    if name:
        page["account_detail"] = account_detail(source, name)
    else:
        page["accounts"] = [each.name for each in source.accounts()]
    return without_empty(page, "system_account")


def account_detail(source: Source, name: str) -> dict[str, Any]:
    """Return one account in detail; raise UsageError if it is unknown."""
    account = next((each for each in source.accounts() if each.name == name), None)
    if account is None:
        raise UsageError(f"Account {name} does not exist")
    server = source.server()
    services = account.services
    if server.has_jetstream and not account.is_system:
        services = (*services, (JETSTREAM_API, JETSTREAM_API))
    claims, shared = account.claims(), account.shared()
    return without_empty(
        {
            "account_name": account.name,
            "update_time": timestamp(account.update_ns),
            "is_system": account.is_system,
            "expired": claims is not None and claims.is_expired,
            "complete": claims is None or claims.is_complete,
            "jetstream_enabled": account.has_jetstream,
            "leafnode_connections": account.leafnode_count,
            "client_connections": account.client_count,
            "subscriptions": account.subscription_count,
            "mappings": _mappings(shared),
            "exports": [
                *(_exports(server.has_jetstream) if account.is_system else ()),
                *_own_exports(shared),
            ],
            "imports": [
                *map(_own_import, shared.imports),
                *(_import(to, own, server.system_account) for own, to in services),
            ],
            **_claimed(claims),
            "name_tag": account.tag or account.name,
            **_decoded(claims),
            "sublist_stats": statistics(account.sublist()),
        },
        "is_system",
        "mappings",
        "exports",
        "imports",
    )


def _mappings(shared: SharedFacts) -> dict[str, Any]:
    return {
        source: [
            without_empty({"subject": to, "weight": share, "cluster": cluster}, "cluster")
            for to, share, cluster in _added_up(destinations)
        ]
        for source, destinations in shared.mappings.items()
    }


def _added_up(destinations: Sequence[Destination]) -> Iterator[Destination]:
    # The reference server shows the smallest share first, and with each the sum of those before.
    totals: dict[str, int] = {}
    for to, percent, cluster in sorted(destinations, key=lambda each: (each[2], each[1])):
        totals[cluster] = totals.get(cluster, 0) + percent
        yield to, totals[cluster], cluster


def _own_exports(shared: SharedFacts) -> list[dict[str, Any]]:
    found = []
    for each in sorted(shared.exports, key=lambda export: export.kind):
        revoked = {key: timestamp(at_s * 10**9) for key, at_s in each.revocations.items()}
        fields = {
            "subject": each.subject,
            "type": each.kind,
            "token_req": each.needs_token,
            "response_type": each.response if each.kind == "service" else "",
            "approved_accounts": list(each.accounts),
            "revoked_activations": revoked,
        }
        optional = ("token_req", "response_type", "approved_accounts", "revoked_activations")
        found.append(without_empty(fields, *optional))
    return found


def _own_import(each: ImportFacts) -> dict[str, Any]:
    fields = {
        "subject": each.subject,
        "account": each.account,
        # The name that services had for it before.
        "to": each.local_subject if each.kind == "service" else "",
        "local_subject": each.local_subject,
        "type": each.kind,
        "invalid": False,
        "share": each.shares_client,
        "tracking": False,
    }
    return without_empty(fields, "to")


def _claimed(claims: ClaimFacts | None) -> dict[str, Any]:
    if claims is None:
        return {}
    return without_empty({"jwt": claims.jwt, "issuer_key": claims.issuer}, "jwt", "issuer_key")


def _decoded(claims: ClaimFacts | None) -> dict[str, Any]:
    if claims is None:
        return {}
    issues = [
        {"description": text, "blocking": is_blocking, "time_check": is_time}
        for text, is_blocking, is_time in claims.issues
    ]
    revoked = {key: timestamp(at_s * 10**9) for key, at_s in claims.revocations.items()}
    fields = {
        "tags": list(claims.tags),
        "decoded_jwt": dict(claims.decoded),
        "validation_result_jwt": issues,
        "revoked_user": revoked,
    }
    return without_empty(fields, *fields)


def _exports(has_jetstream: bool) -> list[dict[str, Any]]:
    offered = (*EXPORTS, (JETSTREAM_API, "Singleton")) if has_jetstream else EXPORTS
    return [
        {"subject": subject, "type": "service", "response_type": response}
        for subject, response in offered
    ]


def _import(subject: str, local: str, account: str) -> dict[str, Any]:
    return {
        "subject": subject,
        "account": account,
        "to": local,
        "local_subject": local,
        "type": "service",
        "invalid": False,
        "share": local in ("$SYS.REQ.USER.INFO", JETSTREAM_API),
        "tracking": False,
    }


def accstatz(source: Source, names: Sequence[str] = (), *, unused: bool = False) -> dict[str, Any]:
    """Return what accounts have done: those that are named, or those in use, or all."""
    return {
        "server_id": source.server().id,
        "now": timestamp(source.now_ns()),
        "account_statz": [
            account_stat(each)
            for each in source.accounts()
            if (not names or each.name in names)
            and (unused or each.client_count + each.leafnode_count > 0)
        ],
    }


def account_stat(account: AccountFacts) -> dict[str, Any]:
    """Return what one account has done."""
    return {
        "acc": account.name,
        "name": account.tag or account.name,
        "conns": account.client_count,
        "leafnodes": account.leafnode_count,
        "total_conns": account.client_count + account.leafnode_count,
        "num_subscriptions": account.subscription_count,
        "sent": _data_stats(account.sent),
        "received": _data_stats(account.received),
        "slow_consumers": account.slow_receivers,
    }


def _data_stats(counts: Counts) -> dict[str, Any]:
    none = {"msgs": 0, "bytes": 0}
    return {
        "msgs": counts.msgs,
        "bytes": counts.bytes,
        "gateways": none,
        "routes": none,
        "leafs": none,
    }
