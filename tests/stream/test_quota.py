"""Tiers: limits by the number of replicas."""

from __future__ import annotations

import pytest

from penstock import error_codes
from penstock.errors import ApiError, ErrorCode
from penstock.stream.config.config import StorageType, StreamConfig
from penstock.stream.config.known import KnownStreams
from penstock.stream.quota import (
    AccountLimits,
    ServerLimits,
    TierLimits,
    check_reservation,
    check_stream_count,
    tier_of,
)

TIERED = AccountLimits(
    {"R1": TierLimits(max_storage=100, max_streams=1), "R3": TierLimits(max_memory=30)}
)
ONE = StreamConfig(name="A", num_replicas=1, max_bytes=60)


def refusal(config: StreamConfig, account: AccountLimits, *existing: StreamConfig) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        check_reservation(
            config,
            ServerLimits(),
            tier_of(account, config.num_replicas),
            KnownStreams(existing),
            added_bytes=config.max_bytes,
        )
    error = caught.value
    return ErrorCode(error.code, error.err_code, error.description)


def test_a_number_of_replicas_without_a_tier_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        tier_of(TIERED, 5)

    assert caught.value.err_code == error_codes.NO_LIMITS.err_code


def test_no_number_of_replicas_is_one() -> None:
    assert tier_of(TIERED, 0) == ("R1", TIERED.tiers["R1"])


def test_only_streams_of_the_same_tier_count() -> None:
    check_stream_count(StreamConfig(name="B", num_replicas=3), TIERED, KnownStreams([ONE]))
    with pytest.raises(ApiError) as caught:
        check_stream_count(StreamConfig(name="B"), TIERED, KnownStreams([ONE]))

    assert caught.value.err_code == error_codes.MAXIMUM_STREAMS_LIMIT.err_code


def test_a_tier_counts_a_stream_once_and_an_account_every_replica() -> None:
    config = StreamConfig(name="B", num_replicas=3, max_bytes=30, storage=StorageType.MEMORY)
    untiered = AccountLimits({"": TierLimits(max_memory=89)})

    check_reservation(config, ServerLimits(), tier_of(TIERED, 3), KnownStreams(), added_bytes=30)

    assert refusal(config, untiered) == error_codes.MEMORY_RESOURCES_EXCEEDED


def test_what_others_have_reserved_is_not_there_any_more() -> None:
    config = StreamConfig(name="B", num_replicas=1, max_bytes=41)

    assert refusal(config, TIERED, ONE) == error_codes.STORAGE_RESOURCES_EXCEEDED
