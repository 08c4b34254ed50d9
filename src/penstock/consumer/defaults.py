"""What a consumer's configuration says where its client said nothing.

A negative number that means nothing becomes the one that means "no limit"; limits that the client
left open are those of the stream, then of the server and the account. Pedantic, what would be
corrected is refused instead. The order is the reference server's.

Pure; any thread. Only the rules of this package call it.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from penstock.consumer.config import AckPolicy, ConsumerConfig, PriorityPolicy
from penstock.stream.allowances import ServerLimits, TierLimits
from penstock.stream.config import StreamConfig
from penstock.stream.rules import pedantic_refusal

ACK_WAIT_NS_DEFAULT: Final = 30_000_000_000
WAITING_MAX_DEFAULT: Final = 512
ACK_PENDING_MAX_DEFAULT: Final = 1000
PIN_NS_DEFAULT: Final = 120_000_000_000
INACTIVE_NS_DEFAULT: Final = 5_000_000_000
SOURCING_HEARTBEAT_NS: Final = 1_000_000_000
"""Heartbeats of a consumer that is acknowledged by flow control: the other side counts on it."""

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
    """Give a configuration with what was left open filled in; raise ApiError where pedantic."""
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
    """Give a consumer that is not durable a time after which it goes when nobody uses it."""
    if is_durable or config.inactive_threshold > 0:
        return config
    return replace(config, inactive_threshold=INACTIVE_NS_DEFAULT)
