"""A request to make a stream: what is made of it, or why it is refused.

The order of the checks is the reference server's. Asking for a stream that is there, with the same
configuration, is no error: the answer is that stream.

Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock import error_codes
from penstock.errors import ApiError
from penstock.stream.addressing import overlaps
from penstock.stream.allowances import (
    AccountLimits,
    ServerLimits,
    check_reservation,
    check_stream_count,
    tier_of,
)
from penstock.stream.config import StreamConfig, StreamConfigRequest
from penstock.stream.rules import invalid, is_subject
from penstock.stream.validation import checked_config
from penstock.stream.versioning import with_level_of, with_required_level


def checked_creation(
    request: StreamConfigRequest,
    *,
    name: str,
    server: ServerLimits,
    account: AccountLimits,
    existing: Collection[StreamConfig],
) -> StreamConfig:
    """Give the configuration of the stream to make, or of the one that is there; raise ApiError.

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
    for other in existing:
        if other.name == config.name:
            if with_level_of(config, other) != other:
                raise ApiError(error_codes.STREAM_NAME_EXIST)
            return other
    tier = tier_of(account, config.num_replicas)
    check_reservation(config, server, tier, existing, added_bytes=config.max_bytes)
    _check_filters(config)
    if overlaps(config, existing):
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
