"""A request to create or update a consumer: the resulting configuration, or why it is refused.

The subject of a request has one of three forms, and its tokens must agree with the body:

    CONSUMER.CREATE.<stream>                      the name is random, unless the body has one
    CONSUMER.CREATE.<stream>.<name>[.<filter>]    durable or not
    CONSUMER.DURABLE.CREATE.<stream>.<name>       durable

For an update: where a consumer starts, what an acknowledgement means, push or pull, and where its
state is kept are for life. The rest may change while messages are on their way.

A consumer may need an API level of the server; the level stands in its metadata.

The order of the checks is the reference server's. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock import error_codes
from penstock.consumer.config.config import (
    AckPolicy,
    ConsumerAction,
    ConsumerConfig,
    CreateConsumerRequest,
    DeliverPolicy,
    PriorityPolicy,
)
from penstock.consumer.config.validation import checked_config, with_threshold
from penstock.consumer.extensions.options import check_extensions_update
from penstock.errors import ApiError
from penstock.limits import STREAM_NAME_LENGTH_MAX
from penstock.stream.config.config import (
    RetentionPolicy,
    StreamConfig,
    answered_metadata,
    kept_metadata,
    metadata_with_level_of,
)
from penstock.stream.config.subjects import SubjectIndex
from penstock.stream.quota import AccountLimits, ServerLimits, TierLimits, tier_of
from penstock.text.times import ZERO_TIME_NS, Instant


def required_level(config: ConsumerConfig) -> int:
    """Return the lowest API level of a server that can run a consumer."""
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        return 4
    until = config.pause_until
    is_paused = until is not None and until.time_ns != ZERO_TIME_NS
    has_priorities = (
        config.priority_policy is not PriorityPolicy.NONE
        or config.priority_timeout != 0
        or bool(config.priority_groups)
    )
    return 1 if is_paused or has_priorities else 0


def with_required_level(config: ConsumerConfig) -> ConsumerConfig:
    """Put the required level into the metadata, and remove what is for answers only."""
    return replace(config, metadata=kept_metadata(config.metadata, required_level(config)))


def with_level_of(config: ConsumerConfig, other: ConsumerConfig) -> ConsumerConfig:
    """Take over the required level of another configuration, to compare the two."""
    return replace(config, metadata=metadata_with_level_of(config.metadata, other.metadata))


def for_answer(config: ConsumerConfig, server_version: str) -> ConsumerConfig:
    """Add the server's version and level to the metadata, for an answer."""
    return replace(config, metadata=answered_metadata(config.metadata, server_version))


def checked_update(
    old: ConsumerConfig, new: ConsumerConfig, *, has_interest: Callable[[str], bool]
) -> ConsumerConfig:
    """Return the new configuration of a consumer; raise ApiError if it may not be updated so.

    `new` was checked by `checked_config`. `has_interest` returns True if a subject has subscribers:
    a deliver subject that is in use stays.
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
    """Return the configuration of a consumer that pauses until a time; a zero time ends it."""
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


class Form(Enum):
    """The form of subject that a request was sent to."""

    UNNAMED = auto()
    NAMED = auto()
    DURABLE = auto()


class Address(NamedTuple):
    """The tokens in the subject of a request."""

    form: Form
    stream: str
    consumer: str = ""
    filter: str = ""


class Checked(NamedTuple):
    """A consumer to create, or to update."""

    name: str
    config: ConsumerConfig
    is_new: bool


class CreationContext(msgspec.Struct, frozen=True):
    """What a request is checked against: the stream, the limits, the other consumers."""

    stream: StreamConfig
    consumers: Mapping[str, ConsumerConfig]
    server: ServerLimits
    account: AccountLimits
    has_interest: Callable[[str], bool]
    """Returns True if a subject has subscribers."""

    new_name: Callable[[], str]
    """Returns a random name."""


def addressed_config(
    request: CreateConsumerRequest, address: Address, *, is_clustered: bool
) -> ConsumerConfig:
    """Return the configuration with the name of the subject; raise ApiError if they disagree."""
    config = request.config
    name = address.consumer or config.name
    if address.stream != request.stream_name:
        raise ApiError(error_codes.STREAM_MISMATCH)
    if "\\" in name or "/" in name:
        raise ApiError(error_codes.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS)
    if address.form is Form.DURABLE and not config.is_durable:
        raise ApiError(error_codes.CONSUMER_DURABLE_NAME_NOT_SET)
    if config.is_durable:
        if address.form is Form.UNNAMED:
            raise ApiError(error_codes.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME)
        if name != config.durable_name:
            raise ApiError(error_codes.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT)
    if address.filter and config.filter_subjects:
        raise ApiError(error_codes.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED)
    if address.filter and config.filter_subject != address.filter:
        raise ApiError(error_codes.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH)
    if not is_clustered and config.num_replicas > 1:
        raise ApiError(error_codes.STREAM_REPLICAS_NOT_SUPPORTED)
    return replace(config, name=name)


def checked_creation(
    config: ConsumerConfig,
    around: CreationContext,
    *,
    action: ConsumerAction = ConsumerAction.CREATE_OR_UPDATE,
    pedantic: bool = False,
) -> Checked:
    """Return the consumer to create or to update; raise ApiError if the request is refused.

    `config` is what `addressed_config` returned.
    """
    stream = around.stream
    config = _for_sourcing(config, around)
    config = _as_before(config, around.consumers.get(config.name))
    config = with_required_level(config)
    _, tier = tier_of(around.account, replicas_of(config, stream))
    config = checked_config(
        config, stream=stream, server=around.server, tier=tier, pedantic=pedantic
    )
    name = config.durable_name or config.name
    old = around.consumers.get(name)
    if old is not None:
        return Checked(name, _changed(old, config, name, around, action), is_new=False)
    if action is ConsumerAction.UPDATE:
        raise ApiError(error_codes.CONSUMER_DOES_NOT_EXIST)
    _check_count(around, tier)
    if stream.retention is RetentionPolicy.WORK_QUEUE and not config.is_internal:
        _check_queue(config, name, around)
    if len(name.encode()) > STREAM_NAME_LENGTH_MAX:
        raise ApiError(error_codes.CONSUMER_NAME_TOO_LONG, max=STREAM_NAME_LENGTH_MAX)
    return Checked(
        name or _new_name(around),
        with_threshold(config, is_durable=config.is_durable),
        is_new=True,
    )


def replicas_of(config: ConsumerConfig, stream: StreamConfig) -> int:
    """Return how many replicas a consumer's state has."""
    if 0 < config.num_replicas <= stream.num_replicas:
        return config.num_replicas
    is_passing = not config.is_durable and config.num_replicas == 0
    if is_passing and stream.retention is RetentionPolicy.LIMITS:
        return 1
    return stream.num_replicas


def _for_sourcing(config: ConsumerConfig, around: CreationContext) -> ConsumerConfig:
    """Adjust the configuration of a consumer that feeds another stream."""
    if not (config.direct and config.sourcing and config.name):
        return config
    if around.stream.retention is RetentionPolicy.LIMITS or around.server.is_clustered:
        # Several may be created with the same name, each for a short time.
        return replace(config, name=f"{config.name}-{around.new_name()}")
    # The stream keeps messages for it, so it has to stay and to acknowledge them.
    return replace(
        config,
        direct=False,
        durable_name=config.name,
        ack_policy=AckPolicy.FLOW_CONTROL,
        ack_wait=0,
        max_deliver=0,
        inactive_threshold=0,
    )


def _as_before(config: ConsumerConfig, old: ConsumerConfig | None) -> ConsumerConfig:
    """Keep the settings of an existing consumer that a request cannot change."""
    if old is None:
        return config
    config = replace(config, pause_until=old.pause_until)
    if config.sourcing and config.is_durable:
        config = replace(
            config,
            deliver_policy=old.deliver_policy,
            opt_start_seq=old.opt_start_seq,
            opt_start_time=old.opt_start_time,
        )
    return config


def _changed(
    old: ConsumerConfig,
    config: ConsumerConfig,
    name: str,
    around: CreationContext,
    action: ConsumerAction,
) -> ConsumerConfig:
    if action is ConsumerAction.CREATE:
        config = with_level_of(config, old)
        if config != old:
            raise ApiError(error_codes.CONSUMER_ALREADY_EXISTS)
    is_queue = around.stream.retention is RetentionPolicy.WORK_QUEUE
    if is_queue and not _is_alone(name, config.filters, around.consumers):
        raise ApiError(error_codes.CONSUMER_WQ_CONSUMER_NOT_UNIQUE)
    return checked_update(old, config, has_interest=around.has_interest)


def _counted(consumers: Mapping[str, ConsumerConfig]) -> int:
    return sum(not each.is_internal for each in consumers.values())


def _check_count(around: CreationContext, tier: TierLimits) -> None:
    count_max = around.stream.max_consumers
    if count_max <= 0 or 0 < tier.max_consumers < count_max:
        count_max = tier.max_consumers
    if count_max <= 0:
        count_max = around.server.consumers_max
    # Few consumers are not counted: below the limit there is no need to count.
    if 0 < count_max <= len(around.consumers) and count_max <= _counted(around.consumers):
        raise ApiError(error_codes.MAXIMUM_CONSUMERS_LIMIT)


def _check_queue(config: ConsumerConfig, name: str, around: CreationContext) -> None:
    if config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL):
        raise ApiError(error_codes.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK)
    if config.deliver_policy is not DeliverPolicy.ALL:
        raise ApiError(error_codes.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL)
    if _counted(around.consumers) == 0:
        return
    if not config.filters:
        raise ApiError(error_codes.CONSUMER_WQ_MULTIPLE_UNFILTERED)
    if not _is_alone(name, config.filters, around.consumers):
        raise ApiError(error_codes.CONSUMER_WQ_CONSUMER_NOT_UNIQUE)


def _is_alone(name: str, filters: tuple[str, ...], consumers: Mapping[str, ConsumerConfig]) -> bool:
    """Return True if no other consumer takes messages of these filters."""
    index = SubjectIndex()
    place = 0
    for other, config in consumers.items():
        if other == name or config.is_internal:
            continue
        if not config.filters:
            return not filters
        for subject in config.filters:
            index.add(place, subject)
            place += 1
    return all(index.find(subject) is None for subject in filters)


def _new_name(around: CreationContext) -> str:
    while (name := around.new_name()) in around.consumers:
        pass
    return name
