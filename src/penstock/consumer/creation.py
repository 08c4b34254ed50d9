"""A request to make or change a consumer: what is made of it, or why it is refused.

The subject of a request has one of three forms, and what stands in it must agree with the body:

    CONSUMER.CREATE.<stream>                      a name is made up, unless the body has one
    CONSUMER.CREATE.<stream>.<name>[.<filter>]    durable or not
    CONSUMER.DURABLE.CREATE.<stream>.<name>       durable

The order of the checks is the reference server's. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock import error_codes
from penstock.consumer.config import (
    AckPolicy,
    ConsumerAction,
    ConsumerConfig,
    CreateConsumerRequest,
    DeliverPolicy,
)
from penstock.consumer.defaults import with_threshold
from penstock.consumer.updates import checked_update
from penstock.consumer.validation import checked_config
from penstock.consumer.versioning import with_level_of, with_required_level
from penstock.errors import ApiError
from penstock.limits import STREAM_NAME_LENGTH_MAX
from penstock.stream.allowances import AccountLimits, ServerLimits, TierLimits, tier_of
from penstock.stream.config import RetentionPolicy, StreamConfig
from penstock.stream.subject_index import SubjectIndex


class Form(Enum):
    """Which subject a request was sent to."""

    UNNAMED = auto()
    NAMED = auto()
    DURABLE = auto()


class Address(NamedTuple):
    """What stands in the subject of a request."""

    form: Form
    stream: str
    consumer: str = ""
    filter: str = ""


class Checked(NamedTuple):
    """A consumer to make, or to go on with another configuration."""

    name: str
    config: ConsumerConfig
    is_new: bool


class Surroundings(msgspec.Struct, frozen=True):
    """What a consumer will live in: its stream, the limits, the stream's other consumers."""

    stream: StreamConfig
    consumers: Mapping[str, ConsumerConfig]
    server: ServerLimits
    account: AccountLimits
    has_interest: Callable[[str], bool]
    """Whether anybody listens to a subject."""

    new_name: Callable[[], str]
    """Makes up a name that hardly any other consumer has."""


def addressed_config(
    request: CreateConsumerRequest, address: Address, *, is_clustered: bool
) -> ConsumerConfig:
    """Give the configuration with the name in the subject; raise ApiError where they disagree."""
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
    around: Surroundings,
    *,
    action: ConsumerAction = ConsumerAction.CREATE_OR_UPDATE,
    pedantic: bool = False,
) -> Checked:
    """Give the consumer to make or to change; raise ApiError.

    `config` is what `addressed_config` gave.
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
    """Give how many copies of a consumer's state there are."""
    if 0 < config.num_replicas <= stream.num_replicas:
        return config.num_replicas
    is_passing = not config.is_durable and config.num_replicas == 0
    if is_passing and stream.retention is RetentionPolicy.LIMITS:
        return 1
    return stream.num_replicas


def _for_sourcing(config: ConsumerConfig, around: Surroundings) -> ConsumerConfig:
    """Make of a consumer that feeds another stream what its own stream needs of it."""
    if not (config.direct and config.sourcing and config.name):
        return config
    if around.stream.retention is RetentionPolicy.LIMITS or around.server.is_clustered:
        # Several may come with the same name, each for a short life.
        return replace(config, name=f"{config.name}-{around.new_name()}")
    # Here messages are kept for its sake, so it has to stay and say what it got.
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
    """Keep what a request cannot change in a consumer that is there, whatever it says."""
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
    around: Surroundings,
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


def _check_count(around: Surroundings, tier: TierLimits) -> None:
    count_max = around.stream.max_consumers
    if count_max <= 0 or 0 < tier.max_consumers < count_max:
        count_max = tier.max_consumers
    if count_max <= 0:
        count_max = around.server.consumers_max
    # Those that are not counted are few: as long as all are below the limit, nobody counts.
    if 0 < count_max <= len(around.consumers) and count_max <= _counted(around.consumers):
        raise ApiError(error_codes.MAXIMUM_CONSUMERS_LIMIT)


def _check_queue(config: ConsumerConfig, name: str, around: Surroundings) -> None:
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
    """Tell whether no other consumer takes a message that a filter wants."""
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


def _new_name(around: Surroundings) -> str:
    while (name := around.new_name()) in around.consumers:
        pass
    return name
