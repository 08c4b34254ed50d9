"""The rules for every configuration of a stream, and its defaults.

`checked_config` returns the configuration as it is stored and echoed back, or refuses it with code
and text of the reference server. If several things are wrong it names the same one first, so the
order of the checks is part of the contract. For a pedantic request it refuses where it would
otherwise correct.

Pure; any thread.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock import error_codes
from penstock.errors import ApiError
from penstock.limits import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    REPLICAS_MAX,
    STREAM_NAME_LENGTH_MAX,
)
from penstock.stream.config.config import (
    DiscardPolicy,
    PersistModeType,
    Placement,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from penstock.stream.config.known import KnownStreams
from penstock.stream.config.origins import with_origins
from penstock.stream.config.subjects import (
    check_transform,
    invalid,
    is_name,
    pedantic_refusal,
    with_republish,
    with_subjects,
)
from penstock.stream.quota import AccountLimits, ServerLimits, check_stream_bytes
from penstock.text.times import format_duration

DUPLICATE_WINDOW_NS_DEFAULT: Final = 120_000_000_000
AGE_NS_MIN: Final = 100_000_000
MARKER_TTL_NS_MIN: Final = 1_000_000_000

_COUNTS: Final = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)


def checked_config(
    config: StreamConfig,
    *,
    server: ServerLimits,
    account: AccountLimits,
    existing: KnownStreams,
    pedantic: bool = False,
) -> StreamConfig:
    """Return a configuration with its defaults; raise ApiError.

    `existing` are the streams of the account, the one to change included.
    """
    _check_texts(config)
    config = _with_counts(config, pedantic)
    config = _with_window(config, server, pedantic)
    config = _with_message_features(config, pedantic)
    config = with_origins(config, existing, pedantic)
    config = with_subjects(config)
    check_stream_bytes(config, account)
    check_transform(config)
    config = with_republish(config, pedantic)
    return _with_placement(config)


def _check_texts(config: StreamConfig) -> None:
    if not is_name(config.name):
        raise invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode()) > STREAM_NAME_LENGTH_MAX:
        raise invalid(f"stream name is too long, maximum allowed is {STREAM_NAME_LENGTH_MAX}")
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise invalid(f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}")
    metadata_bytes = sum(
        len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()
    )
    if metadata_bytes > METADATA_BYTES_MAX:
        raise invalid(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")


def _with_counts(config: StreamConfig, pedantic: bool) -> StreamConfig:
    if config.num_replicas > REPLICAS_MAX:
        raise invalid(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise ApiError(error_codes.REPLICAS_COUNT_CANNOT_BE_NEGATIVE)
    changes = {"num_replicas": config.num_replicas or 1}
    for name in _COUNTS:
        value = getattr(config, name)
        if pedantic and value < -1:
            raise pedantic_refusal(f"{name} must be set to -1")
        changes[name] = value if value > 0 else -1
    return replace(config, **changes)


def _with_window(config: StreamConfig, server: ServerLimits, pedantic: bool) -> StreamConfig:
    if config.max_age < 0:
        raise invalid("max age can not be negative")
    if 0 < config.max_age < AGE_NS_MIN:
        raise invalid("max age needs to be >= 100ms")
    window_ns_max = server.duplicate_window_ns_max
    window_ns = config.duplicate_window
    if window_ns == 0 and config.mirror is None and not config.sources:
        window_ns = _default_window_ns(config.max_age, window_ns_max, pedantic)
    if window_ns < 0:
        raise invalid("duplicates window can not be negative")
    if 0 < config.max_age < window_ns:
        raise invalid("duplicates window can not be larger then max age")
    if 0 < window_ns_max < window_ns:
        limit = format_duration(window_ns_max)
        raise invalid(f"duplicates window can not be larger then server limit of {limit}")
    if 0 < window_ns < AGE_NS_MIN:
        raise invalid("duplicates window needs to be >= 100ms")
    return replace(config, duplicate_window=window_ns)


def _default_window_ns(age_ns_max: int, window_ns_max: int, pedantic: bool) -> int:
    window_ns = DUPLICATE_WINDOW_NS_DEFAULT
    if 0 < window_ns_max < window_ns:
        if pedantic:
            raise pedantic_refusal("duplicate window limits are higher than current limits")
        window_ns = window_ns_max
    if 0 < age_ns_max < window_ns:
        if pedantic:
            raise pedantic_refusal("duplicate window cannot be bigger than max age")
        window_ns = age_ns_max
    return window_ns


def _with_message_features(config: StreamConfig, pedantic: bool) -> StreamConfig:
    if config.deny_purge and config.allow_rollup_hdrs:
        raise invalid("roll-ups require the purge permission")
    check_counter(config)
    check_discard_new_per_subject(config)
    config = _with_markers(config, pedantic)
    config = _with_schedules(config, pedantic)
    _check_persist_mode(config)
    return config


def check_counter(config: StreamConfig) -> None:
    """Raise ApiError for a stream of counters with options that counters exclude."""
    if not config.allow_msg_counter:
        return
    if config.discard is DiscardPolicy.NEW:
        raise invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise invalid("counter stream cannot use message schedules")
    if config.retention is not RetentionPolicy.LIMITS:
        raise invalid("counter stream can only use limits retention")


def check_discard_new_per_subject(config: StreamConfig) -> None:
    """Raise ApiError for `discard_new_per_subject` without its conditions."""
    if not config.discard_new_per_subject:
        return
    if config.discard is not DiscardPolicy.NEW:
        raise invalid("discard new per subject requires discard new policy to be set")
    if config.max_msgs_per_subject <= 0:
        raise invalid("discard new per subject requires max msgs per subject > 0")


def _with_markers(config: StreamConfig, pedantic: bool) -> StreamConfig:
    ttl_ns = config.subject_delete_marker_ttl
    if ttl_ns < 0:
        raise invalid("subject delete marker TTL must not be negative")
    if ttl_ns == 0:
        return config
    if ttl_ns < MARKER_TTL_NS_MIN:
        raise invalid("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl and pedantic:
        raise invalid("subject delete marker cannot be set if message TTLs are disabled")
    if not config.allow_rollup_hdrs and pedantic:
        raise invalid("subject delete marker cannot be set if roll-ups are disabled")
    return _with_rollups(replace(config, allow_msg_ttl=True))


def _with_schedules(config: StreamConfig, pedantic: bool) -> StreamConfig:
    if not config.allow_msg_schedules:
        return config
    if config.discard is DiscardPolicy.NEW:
        raise invalid("message scheduling cannot use discard new")
    if not config.allow_rollup_hdrs and pedantic:
        raise invalid("message scheduling cannot be set if roll-ups are disabled")
    return _with_rollups(config)


def _with_rollups(config: StreamConfig) -> StreamConfig:
    if config.allow_rollup_hdrs:
        return config
    return replace(config, allow_rollup_hdrs=True, deny_purge=False)


def _check_persist_mode(config: StreamConfig) -> None:
    if config.persist_mode is not PersistModeType.ASYNC:
        return
    if config.storage is not StorageType.FILE:
        raise invalid("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        raise invalid("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        raise invalid("async persist mode is not supported with atomic batch publish")


def _with_placement(config: StreamConfig) -> StreamConfig:
    if config.placement == Placement():
        return replace(config, placement=None)
    if config.placement is not None and config.placement.preferred:
        raise invalid("preferred server not permitted in placement")
    return config
