"""Changes that a stream's consumers forbid, and what becomes of a request to change."""

from __future__ import annotations

import pytest

from penstock import error_codes
from penstock.errors import ApiError
from penstock.stream.config.config import StreamConfig, StreamConfigRequest, StreamConsumerLimits
from penstock.stream.config.known import KnownStreams
from penstock.stream.config.requests import ConsumerBounds, checked_creation, checked_update
from penstock.stream.quota import AccountLimits, ServerLimits, TierLimits

CONSUMERS = {"slow": ConsumerBounds(50, 5), "busy": ConsumerBounds(5, 50)}


def made() -> StreamConfig:
    return checked_creation(
        StreamConfigRequest(name="S"),
        name="S",
        server=ServerLimits(is_clustered=True),
        account=AccountLimits(),
        existing=KnownStreams(),
    )


def changed(
    request: StreamConfigRequest, old: StreamConfig, account: AccountLimits | None = None
) -> StreamConfig:
    return checked_update(
        request,
        name="S",
        server=ServerLimits(is_clustered=True),
        account=account or AccountLimits(),
        existing=KnownStreams([old]),
        consumers=CONSUMERS,
    )


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        (StreamConsumerLimits(inactive_threshold=10), "slow"),
        (StreamConsumerLimits(max_ack_pending=10), "busy"),
        (StreamConsumerLimits(inactive_threshold=1, max_ack_pending=1), "busy, slow"),
    ],
)
def test_limits_that_a_consumer_is_beyond_are_refused_by_its_name(
    limits: StreamConsumerLimits, names: str
) -> None:
    with pytest.raises(ApiError) as caught:
        changed(StreamConfigRequest(name="S", consumer_limits=limits), made())

    assert caught.value.err_code == error_codes.STREAM_UPDATE.err_code
    assert caught.value.description == f"change to limits violates consumers: {names}"


def test_limits_that_all_consumers_keep_are_taken() -> None:
    limits = StreamConsumerLimits(inactive_threshold=50, max_ack_pending=50)

    config = changed(StreamConfigRequest(name="S", consumer_limits=limits), made())

    assert config.consumer_limits == limits


def test_a_number_of_replicas_without_a_tier_is_judged_by_the_old_one() -> None:
    account = AccountLimits({"R1": TierLimits(max_storage=100)})

    config = changed(StreamConfigRequest(name="S", num_replicas=3), made(), account)

    assert config.num_replicas == 3


def test_what_is_asked_for_is_not_part_of_the_configuration() -> None:
    config = changed(StreamConfigRequest(name="S", pedantic=True), made())

    assert type(config) is StreamConfig
