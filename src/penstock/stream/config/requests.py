"""Requests to create or update a stream: the resulting configuration, or why it is refused.

Creating a stream that exists, with the same configuration, is no error: the answer is that stream.

An update cannot take back what clients rely on: a sealed stream stays sealed, a denied deletion
stays denied, messages with a time to live or a schedule stay possible. Storage, work queues,
counters and a mirror's origin are for life; a mirror may become an ordinary stream.

The order of the checks is the reference server's. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from penstock import error_codes
from penstock.errors import ApiError
from penstock.stream.config.config import (
    DiscardPolicy,
    RetentionPolicy,
    StreamConfig,
    StreamConfigRequest,
    with_level_of,
    with_required_level,
)
from penstock.stream.config.known import KnownStreams
from penstock.stream.config.subjects import invalid, is_subject
from penstock.stream.config.validation import check_counter, checked_config
from penstock.stream.quota import (
    AccountLimits,
    ServerLimits,
    check_reservation,
    check_stream_count,
    tier_of,
)


def checked_creation(
    request: StreamConfigRequest,
    *,
    name: str,
    server: ServerLimits,
    account: AccountLimits,
    existing: KnownStreams,
) -> StreamConfig:
    """Return the configuration of the stream to create, or of the existing one; raise ApiError.

    `name` is the one in the subject of the request, `existing` are the streams of the account.
    """
    config = with_required_level(request.config())
    _check_request(config, name)
    check_stream_count(config, account, existing)
    tier = tier_of(account, config.num_replicas)
    check_reservation(config, server, tier, existing, added_bytes=config.max_bytes)
    config = checked_config(
        config, server=server, account=account, existing=existing, pedantic=request.pedantic
    )
    if not server.is_clustered and config.num_replicas > 1:
        raise ApiError(error_codes.STREAM_REPLICAS_NOT_SUPPORTED)
    other = existing.get(config.name)
    if other is not None:
        if with_level_of(config, other) != other:
            raise ApiError(error_codes.STREAM_NAME_EXIST)
        return other
    tier = tier_of(account, config.num_replicas)
    check_reservation(config, server, tier, existing, added_bytes=config.max_bytes)
    _check_filters(config)
    if existing.overlaps(config):
        raise ApiError(error_codes.STREAM_SUBJECT_OVERLAP)
    return config


def _check_request(config: StreamConfig, name: str) -> None:
    if config.name != name:
        raise ApiError(error_codes.STREAM_MISMATCH)
    if "\\" in name or "/" in name:
        raise ApiError(error_codes.STREAM_NAME_CONTAINS_PATH_SEPARATORS)
    if config.sealed:
        raise invalid("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise invalid("stream has no mirror but does have mirror direct")


def _check_filters(config: StreamConfig) -> None:
    mirror = config.mirror
    if mirror is not None and mirror.filter_subject and not is_subject(mirror.filter_subject):
        reason = f"subject filter '{mirror.filter_subject}' for the mirror invalid subject"
        raise ApiError(error_codes.STREAM_CREATE, err=reason)
    for source in config.sources:
        if source.filter_subject and not is_subject(source.filter_subject):
            reason = f"subject filter '{source.filter_subject}' for the source: invalid subject"
            raise ApiError(error_codes.STREAM_CREATE, err=reason)


class ConsumerBounds(NamedTuple):
    """The fields of a consumer that a stream's limits for consumers bound."""

    inactive_threshold_ns: int
    max_ack_pending: int


def checked_update(
    request: StreamConfigRequest,
    *,
    name: str,
    server: ServerLimits,
    account: AccountLimits,
    existing: KnownStreams,
    consumers: Mapping[str, ConsumerBounds],
) -> StreamConfig:
    """Return the new configuration of a stream; raise ApiError.

    `name` is the one in the subject of the request, `existing` are the streams of the account, the
    one to change among them, and `consumers` are that one's.
    """
    config = checked_config(
        request.config(),
        server=server,
        account=account,
        existing=existing,
        pedantic=request.pedantic,
    )
    if config.name != name:
        raise ApiError(error_codes.STREAM_MISMATCH)
    old = existing.get(name)
    if old is None:
        raise ApiError(error_codes.STREAM_NOT_FOUND)
    config = with_required_level(config)
    if not server.is_clustered and config.num_replicas > 1:
        raise ApiError(error_codes.STREAM_REPLICAS_NOT_SUPPORTED)
    # Once more: delete markers may have enabled TTLs, which only a new stream may have so.
    check_counter(config)
    _check_lasting(old, config)
    if config.sealed:
        config = _sealed(config)
    _check_reservation(old, config, server, account, existing)
    _check_consumers(old, config, consumers)
    if existing.overlaps(config):
        raise ApiError(error_codes.STREAM_SUBJECT_OVERLAP)
    if config.republish is not None and not config.republish.dest:
        config = replace(config, republish=replace(config.republish, dest=">"))
    return config


def _check_lasting(old: StreamConfig, new: StreamConfig) -> None:
    if new.storage is not old.storage:
        raise invalid("stream configuration update can not change storage type")
    if new.retention is not old.retention and RetentionPolicy.WORK_QUEUE in (
        old.retention,
        new.retention,
    ):
        raise invalid(
            "stream configuration update can not change retention policy to/from workqueue"
        )
    if old.sealed and not new.sealed:
        raise invalid("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise invalid("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise invalid("stream configuration update can not cancel deny purge")
    if new.mirror is not None and new.mirror != old.mirror:
        raise ApiError(error_codes.STREAM_MIRROR_NOT_UPDATABLE)
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise invalid("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        raise invalid("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise invalid("message schedules can not be disabled")
    if new.persist_mode is not old.persist_mode:
        raise invalid("stream configuration update can not change persist mode")


def _sealed(config: StreamConfig) -> StreamConfig:
    return replace(
        config,
        max_age=0,
        discard=DiscardPolicy.NEW,
        deny_delete=True,
        deny_purge=True,
        allow_rollup_hdrs=False,
    )


def _check_reservation(
    old: StreamConfig,
    new: StreamConfig,
    server: ServerLimits,
    account: AccountLimits,
    existing: KnownStreams,
) -> None:
    tier = account.find(new.num_replicas) or tier_of(account, old.num_replicas)
    added_bytes = max(max(new.max_bytes, 0) - max(old.max_bytes, 0), 0)
    check_reservation(
        new,
        server,
        tier,
        existing,
        added_bytes=added_bytes,
        kept_bytes=new.max_bytes - added_bytes,
    )


def _check_consumers(
    old: StreamConfig, new: StreamConfig, consumers: Mapping[str, ConsumerBounds]
) -> None:
    if new.consumer_limits == old.consumer_limits:
        return
    threshold_ns = new.consumer_limits.inactive_threshold
    ack_pending = new.consumer_limits.max_ack_pending
    beyond = [
        name
        for name, bounds in sorted(consumers.items())
        if 0 < threshold_ns < bounds.inactive_threshold_ns
        or 0 < ack_pending < bounds.max_ack_pending
    ]
    if beyond:
        reason = f"change to limits violates consumers: {', '.join(beyond)}"
        raise ApiError(error_codes.STREAM_UPDATE, err=reason)
