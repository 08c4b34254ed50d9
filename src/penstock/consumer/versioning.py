"""API levels: what a consumer needs of a server, kept in its metadata. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.consumer.config import AckPolicy, ConsumerConfig, PriorityPolicy
from penstock.documents.times import ZERO_TIME_NS
from penstock.stream.versioning import answered_metadata, kept_metadata, metadata_with_level_of


def required_level(config: ConsumerConfig) -> int:
    """Give the lowest level of a server that can keep such a consumer."""
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
    """Put the required level into the metadata, and take out what is for answers only."""
    return replace(config, metadata=kept_metadata(config.metadata, required_level(config)))


def with_level_of(config: ConsumerConfig, other: ConsumerConfig) -> ConsumerConfig:
    """Take over the required level of another configuration, so that it makes no difference."""
    return replace(config, metadata=metadata_with_level_of(config.metadata, other.metadata))


def for_answer(config: ConsumerConfig, server_version: str) -> ConsumerConfig:
    """Add what answers tell of the server."""
    return replace(config, metadata=answered_metadata(config.metadata, server_version))
