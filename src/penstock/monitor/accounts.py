"""The pages of accounts: their names, one in detail, and what each has done. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import UsageError
from penstock.monitor.facts import AccountFacts, ClaimFacts, Counts, Source
from penstock.monitor.rendering import timestamp, without_empty
from penstock.monitor.subsz import statistics

EXPORTS = (
    ("$SYS.REQ.ACCOUNT.*.CONNZ", "Streamed"),
    ("$SYS.REQ.ACCOUNT.*.STATZ", "Streamed"),
    ("$SYS.DEBUG.SUBSCRIBERS", "Singleton"),
    ("$SYS.REQ.USER.*.INFO", "Singleton"),
)
"""Services that the system account lets others use, and how they answer."""


def accountz(source: Source, name: str) -> dict[str, Any]:
    """Give the names of all accounts, or one in detail; raises UsageError for an unknown one."""
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
    """Give one account in detail; raises UsageError for an unknown one."""
    account = next((each for each in source.accounts() if each.name == name), None)
    if account is None:
        raise UsageError(f"Account {name} does not exist")
    system_account = source.server().system_account
    claims = account.claims()
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
            "exports": _exports() if account.is_system else None,
            "imports": [_import(to, own, system_account) for own, to in account.services],
            **_claimed(claims),
            "name_tag": account.tag or account.name,
            **_decoded(claims),
            "sublist_stats": statistics(account.sublist()),
        },
        "is_system",
        "exports",
        "imports",
    )


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


def _exports() -> list[dict[str, Any]]:
    return [
        {"subject": subject, "type": "service", "response_type": response}
        for subject, response in EXPORTS
    ]


def _import(subject: str, local: str, account: str) -> dict[str, Any]:
    return {
        "subject": subject,
        "account": account,
        "to": local,
        "local_subject": local,
        "type": "service",
        "invalid": False,
        "share": local == "$SYS.REQ.USER.INFO",
        "tracking": False,
    }


def accstatz(source: Source, names: Sequence[str] = (), *, unused: bool = False) -> dict[str, Any]:
    """Give what accounts have done: those that are named, or those in use, or all."""
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
    """Give what one account has done."""
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
