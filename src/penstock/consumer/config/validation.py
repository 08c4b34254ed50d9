"""The rules that every configuration of a consumer keeps, and its defaults.

`checked_config` returns the configuration as it is kept and echoed back, or refuses it with the
code and the text of the reference server. If several rules are broken, it reports the same one
first: the order of the checks is part of the contract.

Defaults: a negative number without a meaning becomes the one for "no limit"; limits that were left
open are those of the stream, then of the server and the account. A pedantic request is refused
where something would be corrected.

Pure; any thread.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from msgspec.structs import replace

from penstock import error_codes
from penstock.consumer.config.config import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from penstock.consumer.extensions.options import check_extensions
from penstock.errors import ApiError
from penstock.limits import DESCRIPTION_BYTES_MAX, KIB, METADATA_BYTES_MAX
from penstock.stream.config.config import RetentionPolicy, StreamConfig
from penstock.stream.config.subjects import (
    check_pairs,
    invalid,
    is_name,
    is_subject,
    pedantic_refusal,
)
from penstock.stream.quota import ServerLimits, TierLimits
from penstock.subjects import is_literal, is_subset, is_valid_subject
from penstock.text.quoting import quoted_bytes
from penstock.text.times import format_duration

ACK_WAIT_NS_DEFAULT: Final = 30_000_000_000
WAITING_MAX_DEFAULT: Final = 512
ACK_PENDING_MAX_DEFAULT: Final = 1000
PIN_NS_DEFAULT: Final = 120_000_000_000
INACTIVE_NS_DEFAULT: Final = 5_000_000_000
SOURCING_HEARTBEAT_NS: Final = 1_000_000_000
"""Heartbeats of a consumer with acknowledgement by flow control: its client relies on them."""

_LOWEST: Final = {
    "max_deliver": -1,
    "max_waiting": 0,
    "max_ack_pending": -1,
    "max_batch": 0,
    "max_expires": 0,
    "max_bytes": 0,
    "idle_heartbeat": 0,
    "inactive_threshold": 0,
    "priority_timeout": 0,
}


def with_defaults(
    config: ConsumerConfig,
    stream: StreamConfig,
    server: ServerLimits,
    tier: TierLimits,
    *,
    pedantic: bool,
) -> ConsumerConfig:
    """Return a configuration with defaults filled in; raise ApiError instead if pedantic."""
    config = _with_lowest(config, pedantic)
    config = _with_waits(config, pedantic)
    config = _with_stream_limits(config, stream, pedantic)
    if config.max_ack_pending == 0 and config.ack_policy is not AckPolicy.NONE:
        bounds = (ACK_PENDING_MAX_DEFAULT, server.ack_pending_max, tier.max_ack_pending)
        config = replace(config, max_ack_pending=min(bound for bound in bounds if bound > 0))
    if not config.is_push and config.max_batch == 0 and server.request_batch_max > 0:
        if pedantic:
            raise pedantic_refusal("max_request_batch must be set if it's JetStream limits are set")
        config = replace(config, max_batch=server.request_batch_max)
    is_pinned = config.priority_policy is PriorityPolicy.PINNED_CLIENT
    if is_pinned and config.priority_timeout == 0:
        config = replace(config, priority_timeout=PIN_NS_DEFAULT)
    if config.ack_policy is AckPolicy.FLOW_CONTROL and not pedantic:
        config = replace(config, flow_control=True, idle_heartbeat=SOURCING_HEARTBEAT_NS)
    return config


def _with_lowest(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    changes: dict[str, Any] = {}
    for name, lowest in _LOWEST.items():
        if getattr(config, name) < lowest:
            if pedantic:
                rule = "be set to -1" if lowest else "not be negative"
                raise pedantic_refusal(f"{name} must {rule}")
            changes[name] = lowest
    if config.max_deliver == 0:
        changes["max_deliver"] = -1
    return replace(config, **changes)


def _with_waits(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    if not config.is_push and config.max_waiting == 0:
        config = replace(config, max_waiting=WAITING_MAX_DEFAULT)
    if config.ack_wait == 0 and config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        config = replace(config, ack_wait=ACK_WAIT_NS_DEFAULT)
    if config.backoff:
        if pedantic and config.ack_wait != config.backoff[0]:
            raise pedantic_refusal("first backoff value has to equal batch AckWait")
        config = replace(config, ack_wait=config.backoff[0])
    return config


def _with_stream_limits(
    config: ConsumerConfig, stream: StreamConfig, pedantic: bool
) -> ConsumerConfig:
    for name in ("max_ack_pending", "inactive_threshold"):
        limit = getattr(stream.consumer_limits, name)
        if getattr(config, name) == 0:
            if pedantic and limit > 0:
                raise pedantic_refusal(f"{name} must be set if it's configured in stream limits")
            config = replace(config, **{name: limit})
    return config


def with_threshold(config: ConsumerConfig, *, is_durable: bool) -> ConsumerConfig:
    """Return the configuration with the time after which an unused consumer is removed.

    A durable one has none, unless it asks for it.
    """
    if is_durable or config.inactive_threshold > 0:
        return config
    return replace(config, inactive_threshold=INACTIVE_NS_DEFAULT)


HEARTBEAT_NS_MIN: Final = 100_000_000
EXPIRES_NS_MIN: Final = 1_000_000

_GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?0*([0-9]*)", re.ASCII)
_NUMBER_DIGITS_MAX: Final = 20
"""Of a number of 64 bits: Go's strconv reads no more of one."""


def checked_config(
    config: ConsumerConfig,
    *,
    stream: StreamConfig,
    server: ServerLimits,
    tier: TierLimits,
    pedantic: bool = False,
) -> ConsumerConfig:
    """Return a configuration with its defaults; raise ApiError for the first broken rule."""
    config = with_defaults(config, stream, server, tier, pedantic=pedantic)
    _check_names(config)
    _check_replicas(config, stream)
    _check_waits(config)
    if config.is_push:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, server)
    _check_limits(config, stream, server, tier)
    if config.direct:
        _check_direct(config)
    _check_filters(config)
    _check_start(config)
    _check_sampling(config.sample_freq)
    if config.flow_control and config.idle_heartbeat == 0:
        raise ApiError(error_codes.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS)
    _check_metadata(config)
    _check_priorities(config)
    check_extensions(config, stream)
    return config


def _check_names(config: ConsumerConfig) -> None:
    for kind, name in (("name", config.name), ("durable name", config.durable_name)):
        if name and not is_name(name):
            raise invalid(f"consumer {kind} can not contain '.', '*', '>', '\\', '/'")


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    replicas = config.num_replicas
    if replicas > stream.num_replicas and replicas > 0:
        raise ApiError(error_codes.CONSUMER_REPLICAS_EXCEEDS_STREAM)
    if replicas < 0:
        raise ApiError(error_codes.REPLICAS_COUNT_CANNOT_BE_NEGATIVE)
    is_shared = stream.retention is not RetentionPolicy.LIMITS
    if is_shared and replicas not in (0, stream.num_replicas):
        raise ApiError(error_codes.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM)


def _check_waits(config: ConsumerConfig) -> None:
    if any(wait_ns < 0 for wait_ns in config.backoff):
        raise ApiError(error_codes.CONSUMER_BACK_OFF_NEGATIVE)
    if config.ack_wait < 0:
        raise ApiError(error_codes.CONSUMER_ACK_WAIT_NEGATIVE)
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        _check_flow_controlled(config)
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise ApiError(error_codes.CONSUMER_MAX_DELIVER_BACKOFF)
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise ApiError(error_codes.CONSUMER_DESCRIPTION_TOO_LONG, max=DESCRIPTION_BYTES_MAX)


def _check_flow_controlled(config: ConsumerConfig) -> None:
    if not config.is_push:
        raise ApiError(error_codes.CONSUMER_ACK_FC_REQUIRES_PUSH)
    if not config.flow_control:
        raise ApiError(error_codes.CONSUMER_ACK_FC_REQUIRES_FC)
    if config.idle_heartbeat != SOURCING_HEARTBEAT_NS:
        raise invalid("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise ApiError(error_codes.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING)
    if config.ack_wait != 0 or config.backoff:
        raise ApiError(error_codes.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT)
    if config.max_deliver > 0:
        raise ApiError(error_codes.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER)


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    subject = config.deliver_subject
    if not is_literal(subject.encode()):
        raise ApiError(error_codes.CONSUMER_DELIVER_TO_WILDCARDS)
    if not is_subject(subject):
        raise ApiError(error_codes.CONSUMER_INVALID_DELIVER_SUBJECT)
    if any(is_subset(subject.encode(), taken.encode()) for taken in stream.subjects):
        raise ApiError(error_codes.CONSUMER_DELIVER_CYCLE)
    if config.max_waiting != 0:
        raise ApiError(error_codes.CONSUMER_PUSH_MAX_WAITING)
    if config.max_ack_pending > 0 and config.ack_policy is AckPolicy.NONE:
        raise ApiError(error_codes.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED)
    if 0 < config.idle_heartbeat < HEARTBEAT_NS_MIN:
        raise ApiError(error_codes.CONSUMER_SMALL_HEARTBEAT)


def _check_pull(config: ConsumerConfig, stream: StreamConfig, server: ServerLimits) -> None:
    is_queue = stream.retention is RetentionPolicy.WORK_QUEUE
    if config.ack_policy is AckPolicy.NONE and is_queue:
        raise ApiError(error_codes.CONSUMER_PULL_REQUIRES_ACK)
    if config.rate_limit_bps > 0:
        raise ApiError(error_codes.CONSUMER_PULL_WITH_RATE_LIMIT)
    if config.idle_heartbeat > 0:
        raise ApiError(error_codes.CONSUMER_HB_REQUIRES_PUSH)
    if config.flow_control:
        raise ApiError(error_codes.CONSUMER_FC_REQUIRES_PUSH)
    if 0 < config.max_expires < EXPIRES_NS_MIN:
        raise ApiError(error_codes.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL)
    if 0 < server.request_batch_max < config.max_batch:
        limit = server.request_batch_max
        raise ApiError(error_codes.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED, limit=limit)


def _check_limits(
    config: ConsumerConfig, stream: StreamConfig, server: ServerLimits, tier: TierLimits
) -> None:
    limits = stream.consumer_limits
    for limit in (server.ack_pending_max, tier.max_ack_pending, limits.max_ack_pending):
        if 0 < limit < config.max_ack_pending:
            raise ApiError(error_codes.CONSUMER_MAX_PENDING_ACK_EXCESS, limit=limit)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        longest = format_duration(limits.inactive_threshold)
        raise ApiError(error_codes.CONSUMER_INACTIVE_THRESHOLD_EXCESS, limit=longest)


def _check_direct(config: ConsumerConfig) -> None:
    if not config.is_push:
        raise ApiError(error_codes.CONSUMER_DIRECT_REQUIRES_PUSH)
    if config.is_durable:
        raise ApiError(error_codes.CONSUMER_DIRECT_REQUIRES_EPHEMERAL)


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise ApiError(error_codes.CONSUMER_DUPLICATE_FILTER_SUBJECTS)
    if "" in config.filter_subjects:
        raise ApiError(error_codes.CONSUMER_EMPTY_FILTER)
    filters = [subject.encode() for subject in config.filters]
    # A filter without wildcards contains only itself, so there are seldom many pairs.
    patterns = [pattern for pattern in filters if not is_literal(pattern)]
    check_pairs(len(filters) * len(patterns))
    counts = Counter(filters)
    for subject in filters:
        if not is_valid_subject(subject):
            raise invalid("invalid subject")
        within = (pattern for pattern in patterns if is_subset(subject, pattern))
        if counts[subject] > 1 or any(pattern != subject for pattern in within):
            raise ApiError(error_codes.CONSUMER_OVERLAPPING_SUBJECT_FILTERS)


def _check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy
    has_seq, has_time = config.opt_start_seq > 0, config.opt_start_time is not None
    fault = None
    if policy is DeliverPolicy.BY_START_SEQUENCE:
        if not has_seq:
            fault = "optional start sequence is not set"
        elif has_time:
            fault = "optional start time is also set"
    elif policy is DeliverPolicy.BY_START_TIME:
        if not has_time:
            fault = "optional start time is not set"
        elif has_seq:
            fault = "optional start start sequence is also set"
    elif has_seq:
        fault = "optional start sequence is also set"
    elif has_time:
        fault = "optional start time is also set"
    elif policy is DeliverPolicy.LAST_PER_SUBJECT and not config.filters:
        fault = "optional filter subject is not set"
    if fault is not None:
        shown = policy.replace("_", " ")
        reason = f"consumer delivery policy is deliver {shown}, but {fault}"
        raise ApiError(error_codes.CONSUMER_INVALID_POLICY, err=reason)


def _check_sampling(frequency: str) -> None:
    if not frequency:
        return
    text = frequency.removesuffix("%")
    found = _NUMBER.match(text)
    assert found is not None
    # Digits are read from the left; the first fault is reported.
    digits = found[1][: _NUMBER_DIGITS_MAX + 1]
    number = int(digits or 0)
    fault = None
    if number > 2**64 - 1:
        fault = "value out of range"
    elif found.end() != len(text) or not text.lstrip("+-"):
        fault = "invalid syntax"
    elif number > 2**63 - (not text.startswith("-")):
        fault = "value out of range"
    shown = quoted_bytes(text.encode())
    reason = "<nil>" if fault is None else f"strconv.Atoi: parsing {shown}: {fault}"
    if fault is not None or (text.startswith("-") and number):
        raise ApiError(error_codes.CONSUMER_INVALID_SAMPLING, err=reason)


def _check_metadata(config: ConsumerConfig) -> None:
    metadata_bytes = sum(
        len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()
    )
    if metadata_bytes > METADATA_BYTES_MAX:
        limit = f"{METADATA_BYTES_MAX // KIB}KB"
        raise ApiError(error_codes.CONSUMER_METADATA_LENGTH, limit=limit)


def _check_priorities(config: ConsumerConfig) -> None:
    if config.priority_policy is PriorityPolicy.NONE:
        if config.priority_groups:
            raise ApiError(error_codes.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE)
        if config.priority_timeout > 0:
            raise ApiError(error_codes.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE)
        return
    if config.is_push:
        raise ApiError(error_codes.CONSUMER_PUSH_WITH_PRIORITY_GROUP)
    if not config.priority_groups:
        raise ApiError(error_codes.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP)
    for group in config.priority_groups:
        check_group_name(group)


def check_group_name(group: str) -> None:
    """Raise ApiError if a priority group has no valid name."""
    if not group:
        raise ApiError(error_codes.CONSUMER_EMPTY_GROUP_NAME)
    if _GROUP_NAME.fullmatch(group) is None:
        raise ApiError(error_codes.CONSUMER_INVALID_GROUP_NAME)
