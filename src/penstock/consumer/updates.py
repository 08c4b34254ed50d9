"""A consumer that is there and another configuration for it: what may be changed.

Where a consumer starts, what an acknowledgement means, whether it is pushed or pulled, and where
its state is kept are for life. The rest may change while messages are on their way.

The order of the checks is the reference server's. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock import error_codes
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.defaults import with_threshold
from penstock.consumer.extensions import check_extensions_update
from penstock.consumer.versioning import with_required_level
from penstock.documents.times import ZERO_TIME_NS, Instant
from penstock.errors import ApiError


def checked_update(
    old: ConsumerConfig, new: ConsumerConfig, *, has_interest: Callable[[str], bool]
) -> ConsumerConfig:
    """Give the new configuration of a consumer; raise ApiError.

    `new` keeps the rules of every configuration already. `has_interest` tells whether anybody
    listens to a subject: somebody who is being served is not left without messages.
    """
    _check_lasting(old, new)
    _check_delivery(old, new, has_interest)
    check_extensions_update(old, new)
    if new.max_waiting != old.max_waiting:
        raise _refusal("max waiting can not be updated")
    if new.pause_until is not None:
        new = replace(new, pause_until=Instant(new.pause_until.time_ns))
    if new.inactive_threshold != old.inactive_threshold:
        new = with_threshold(new, is_durable=old.is_durable)
    return new


def paused_until(config: ConsumerConfig, until: Instant) -> ConsumerConfig:
    """Give the configuration of a consumer that pauses; no time at all ends a pause."""
    is_pause = until.time_ns != ZERO_TIME_NS
    paused = replace(config, pause_until=Instant(until.time_ns) if is_pause else None)
    return with_required_level(paused)


def _check_lasting(old: ConsumerConfig, new: ConsumerConfig) -> None:
    if new.deliver_policy is not old.deliver_policy:
        raise _refusal("deliver policy can not be updated")
    if new.mem_storage != old.mem_storage:
        raise _refusal("storage type can not be updated")
    if new.direct != old.direct:
        raise _refusal("direct can not be updated")
    if new.sourcing != old.sourcing:
        raise _refusal("sourcing can not be updated")
    if new.opt_start_seq != old.opt_start_seq:
        raise _refusal("start sequence can not be updated")
    if _time_ns(new.opt_start_time) != _time_ns(old.opt_start_time):
        raise _refusal("start time can not be updated")
    if new.ack_policy is not old.ack_policy:
        raise _refusal("ack policy can not be updated")
    if new.replay_policy is not old.replay_policy:
        raise _refusal("replay policy can not be updated")
    if new.idle_heartbeat != old.idle_heartbeat:
        raise _refusal("heart beats can not be updated")
    if new.flow_control != old.flow_control:
        raise _refusal("flow control can not be updated")


def _check_delivery(
    old: ConsumerConfig, new: ConsumerConfig, has_interest: Callable[[str], bool]
) -> None:
    if new.deliver_subject == old.deliver_subject:
        return
    if not old.is_push:
        raise _refusal("can not update pull consumer to push based")
    if not new.is_push:
        raise _refusal("can not update push consumer to pull based")
    if has_interest(old.deliver_subject):
        raise ApiError(error_codes.CONSUMER_NAME_EXIST)


def _time_ns(instant: Instant | None) -> int | None:
    return None if instant is None else instant.time_ns


def _refusal(reason: str) -> ApiError:
    return ApiError(error_codes.CONSUMER_CREATE, err=reason)
