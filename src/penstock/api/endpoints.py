"""The table of API requests: subject, type of the answer and handler of each.

Two kinds of request are not in it: pulls from a consumer and direct gets. Each consumer and stream
subscribes to its own, so that a client gets "no responders" at once if there is none. The handler
of account information is here too, since it is the only one about an account.

Thread: the event loop's. `dispatch` calls the handlers.
"""

from __future__ import annotations

from typing import Any, Final

from penstock import error_codes
from penstock.api import consumers, messages, restores, snapshots, streams
from penstock.api.dispatch import Call, Documents, Endpoint, Table
from penstock.api.documents import AccountInfo, ApiStatistics, LimitsInfo, TierInfo
from penstock.errors import ApiError
from penstock.stream.account import AccountStreams
from penstock.stream.config.config import API_LEVEL, StorageType


def _needs_cluster(call: Call) -> Documents:
    raise ApiError(error_codes.CLUSTER_REQUIRED)


def _account_info(call: Call) -> Documents:
    """Show what the account uses, and what it may use."""
    account = call.account
    used = _used(account)
    return AccountInfo(
        **used,
        domain=call.service.domain,
        api=ApiStatistics(API_LEVEL, account.api_total, account.api_errors),
        tiers={
            # All streams of a server without a cluster have one replica, so that tier has them all.
            name: TierInfo(**(used if name == "R1" else {}) | {"limits": LimitsInfo.of(limits)})
            for name, limits in account.limits.tiers.items()
            if name
        },
    )


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


ENDPOINTS: Final = Table(
    [
        Endpoint("INFO", "account_info_response", _account_info),
        Endpoint("STREAM.CREATE.*", "stream_create_response", streams.create),
        Endpoint("STREAM.UPDATE.*", "stream_update_response", streams.update),
        Endpoint("STREAM.NAMES", "stream_names_response", streams.names),
        Endpoint("STREAM.LIST", "stream_list_response", streams.list_all),
        Endpoint("STREAM.INFO.*", "stream_info_response", streams.info),
        Endpoint("STREAM.DELETE.*", "stream_delete_response", streams.delete),
        Endpoint("STREAM.PURGE.*", "stream_purge_response", streams.purge),
        Endpoint("STREAM.MSG.GET.*", "stream_msg_get_response", messages.get, is_quiet=True),
        Endpoint("STREAM.MSG.DELETE.*", "stream_msg_delete_response", messages.delete),
        Endpoint("STREAM.SNAPSHOT.*", "stream_snapshot_response", snapshots.snapshot),
        Endpoint("STREAM.RESTORE.*", "stream_restore_response", restores.restore),
        Endpoint("STREAM.LEADER.STEPDOWN.*", "stream_leader_stepdown_response", _needs_cluster),
        Endpoint("STREAM.PEER.REMOVE.*", "stream_remove_peer_response", _needs_cluster),
        Endpoint("STREAM.PEER.EVACUATE.*", "stream_evacuate_peer_response", _needs_cluster),
        Endpoint("STREAM.CANCEL_MOVE.*", "stream_cancel_move_response", _needs_cluster),
        Endpoint("CONSUMER.CREATE.*", "consumer_create_response", consumers.create, is_change=True),
        Endpoint(
            "CONSUMER.CREATE.*.*",
            "consumer_create_response",
            consumers.create_named,
            is_change=True,
        ),
        Endpoint(
            "CONSUMER.CREATE.*.*.>",
            "consumer_create_response",
            consumers.create_named,
            is_change=True,
        ),
        Endpoint(
            "CONSUMER.DURABLE.CREATE.*.*",
            "consumer_create_response",
            consumers.create_durable,
            is_change=True,
        ),
        Endpoint("CONSUMER.NAMES.*", "consumer_names_response", consumers.names),
        Endpoint("CONSUMER.LIST.*", "consumer_list_response", consumers.list_all),
        Endpoint("CONSUMER.INFO.*.*", "consumer_info_response", consumers.info),
        Endpoint(
            "CONSUMER.DELETE.*.*", "consumer_delete_response", consumers.delete, is_change=True
        ),
        Endpoint("CONSUMER.PAUSE.*.*", "consumer_pause_response", consumers.pause, is_change=True),
        Endpoint("CONSUMER.UNPIN.*.*", "consumer_unpin_response", consumers.unpin),
        Endpoint(
            "CONSUMER.RESET.*.*",
            "consumer_reset_response",
            consumers.reset,
            is_quiet=True,
            is_change=True,
        ),
        Endpoint(
            "CONSUMER.LEADER.STEPDOWN.*.*", "consumer_leader_stepdown_response", _needs_cluster
        ),
    ]
)
