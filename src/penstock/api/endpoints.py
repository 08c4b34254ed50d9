"""All that can be asked of JetStream: subject, type of the answer, handler.

Not here are messages for a consumer and direct gets, which have subscriptions of their own so that
clients learn at once where there is nobody to answer.
"""

from __future__ import annotations

from typing import Any, Final

from penstock import error_codes
from penstock.api import account, consumers, messages, restores, snapshots, streams
from penstock.api.dispatch import Call, Endpoint, Table
from penstock.errors import ApiError


def _needs_cluster(call: Call) -> dict[str, Any]:
    raise ApiError(error_codes.CLUSTER_REQUIRED)


ENDPOINTS: Final = Table(
    [
        Endpoint("INFO", "account_info_response", account.info),
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
        Endpoint("CONSUMER.CREATE.*", "consumer_create_response", consumers.create),
        Endpoint("CONSUMER.CREATE.*.*", "consumer_create_response", consumers.create_named),
        Endpoint("CONSUMER.CREATE.*.*.>", "consumer_create_response", consumers.create_named),
        Endpoint(
            "CONSUMER.DURABLE.CREATE.*.*", "consumer_create_response", consumers.create_durable
        ),
        Endpoint("CONSUMER.NAMES.*", "consumer_names_response", consumers.names),
        Endpoint("CONSUMER.LIST.*", "consumer_list_response", consumers.list_all),
        Endpoint("CONSUMER.INFO.*.*", "consumer_info_response", consumers.info),
        Endpoint("CONSUMER.DELETE.*.*", "consumer_delete_response", consumers.delete),
        Endpoint("CONSUMER.PAUSE.*.*", "consumer_pause_response", consumers.pause),
        Endpoint("CONSUMER.UNPIN.*.*", "consumer_unpin_response", consumers.unpin),
        Endpoint("CONSUMER.RESET.*.*", "consumer_reset_response", consumers.reset, is_quiet=True),
        Endpoint(
            "CONSUMER.LEADER.STEPDOWN.*.*", "consumer_leader_stepdown_response", _needs_cluster
        ),
    ]
)
