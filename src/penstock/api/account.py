"""Handlers about an account: what it uses and what it may use.

Called by the dispatch, on the event loop's thread.
"""

from __future__ import annotations

from typing import Any

from penstock.api.dispatch import Call
from penstock.api.responses import AccountInfo, ApiStatistics, LimitsInfo, TierInfo
from penstock.documents.encoding import document_of
from penstock.stream.account import AccountStreams
from penstock.stream.config import StorageType
from penstock.stream.versioning import API_LEVEL


def info(call: Call) -> dict[str, Any]:
    """Show what the account uses, and what it may use."""
    account = call.account
    used = _used(account)
    told = AccountInfo(
        **used,
        domain=call.service.domain,
        api=ApiStatistics(API_LEVEL, account.api_total, account.api_errors),
        tiers={
            # All streams of a server alone have one replica, so that tier has them all.
            name: TierInfo(**(used if name == "R1" else {}) | {"limits": LimitsInfo.of(limits)})
            for name, limits in account.limits.tiers.items()
            if name
        },
    )
    return document_of(told)


def _used(account: AccountStreams) -> dict[str, Any]:
    common = account.limits.tiers.get("")
    return {
        "memory": account.bytes_used(StorageType.MEMORY),
        "storage": account.bytes_used(StorageType.FILE),
        "reserved_memory": account.bytes_reserved(StorageType.MEMORY),
        "reserved_storage": account.bytes_reserved(StorageType.FILE),
        "streams": len(account.streams) + len(account.offline),
        "consumers": account.consumer_count,
        "limits": LimitsInfo() if common is None else LimitsInfo.of(common),
    }
