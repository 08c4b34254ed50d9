"""Where our rules go further than the real server's, and what holds for every configuration."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock import error_codes
from penstock.consumer.config.config import (
    AckPolicy,
    ConsumerAction,
    ConsumerConfig,
    CreateConsumerRequest,
    PriorityPolicy,
)
from penstock.consumer.config.create import (
    Address,
    Checked,
    CreationContext,
    Form,
    addressed_config,
    checked_creation,
    checked_update,
    paused_until,
    replicas_of,
)
from penstock.errors import ApiError, ErrorCode
from penstock.limits import SUBJECT_PAIRS_MAX
from penstock.stream.config.config import RetentionPolicy, StreamConfig
from penstock.stream.quota import AccountLimits, ServerLimits
from penstock.text.json.codec import decode, encode
from penstock.text.times import ZERO_TIME, Instant

STREAM = StreamConfig(name="S", subjects=("s.>",), num_replicas=1)


def checked(
    config: ConsumerConfig,
    *,
    stream: StreamConfig = STREAM,
    action: ConsumerAction = ConsumerAction.CREATE_OR_UPDATE,
    names: tuple[str, ...] = ("made",),
    **consumers: ConsumerConfig,
) -> Checked:
    left = iter(names)
    around = CreationContext(
        stream,
        consumers,
        ServerLimits(),
        AccountLimits(),
        has_interest=lambda subject: False,
        new_name=lambda: next(left),
    )
    return checked_creation(config, around, action=action)


@pytest.mark.parametrize(
    "config",
    [
        ConsumerConfig(name="C", durable_name="C", ack_policy=AckPolicy.EXPLICIT),
        ConsumerConfig(name="C", backoff=(1, 2), max_deliver=3, filter_subjects=("s.a", "s.b")),
        ConsumerConfig(name="C", deliver_subject="to", ack_policy=AckPolicy.FLOW_CONTROL),
        ConsumerConfig(
            name="C", priority_policy=PriorityPolicy.PINNED_CLIENT, priority_groups=("a",)
        ),
    ],
)
def test_a_checked_configuration_checks_out_again_unchanged(config: ConsumerConfig) -> None:
    first = checked(config)

    assert checked(first.config, C=first.config) == first._replace(is_new=False)
    assert checked(first.config, action=ConsumerAction.CREATE, C=first.config).is_new is False


def test_a_configuration_is_read_again_as_it_was_written() -> None:
    config = checked(
        ConsumerConfig(
            name="C",
            ack_policy=AckPolicy.EXPLICIT,
            backoff=(5,),
            filter_subjects=("s.a",),
            metadata={"a": "b"},
            pause_until=Instant(5, 3600),
        )
    ).config

    assert decode(ConsumerConfig, encode(config)) == config


def test_a_name_that_is_taken_is_not_made_up_again() -> None:
    other = checked(ConsumerConfig(name="taken")).config

    made = checked(ConsumerConfig(), names=("taken", "taken", "free"), taken=other)

    assert made.name == "free"
    assert made.is_new


@pytest.mark.parametrize("durable_name", ["", "x" * 256])
def test_a_name_that_is_too_long_for_a_folder_is_refused(durable_name: str) -> None:
    with pytest.raises(ApiError) as caught:
        checked(ConsumerConfig(name="x" * 256, durable_name=durable_name))

    assert caught.value.err_code == error_codes.CONSUMER_NAME_TOO_LONG.err_code


@pytest.mark.parametrize("name", ["a\0b", "..", "../x", "a/b"])
def test_a_name_that_is_no_name_of_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ApiError):
        checked(addressed(ConsumerConfig(name=name), Address(Form.UNNAMED, "S")))


def addressed(config: ConsumerConfig, address: Address) -> ConsumerConfig:
    request = CreateConsumerRequest("S", config)
    return addressed_config(request, address, is_clustered=False)


def test_work_that_grows_with_the_square_of_a_request_is_bounded() -> None:
    count = int(SUBJECT_PAIRS_MAX**0.5) + 1
    filters = tuple(f"s.{place}.*" for place in range(count))

    with pytest.raises(ApiError, match="too many subjects to compare"):
        checked(ConsumerConfig(name="C", filter_subjects=filters))


def test_many_filters_without_wildcards_are_no_work() -> None:
    filters = tuple(f"s.{place}" for place in range(20_000))

    assert checked(ConsumerConfig(name="C", filter_subjects=filters)).config.filters == filters


@given(st.text(alphabet="0123456789+-%x", max_size=25))
def test_a_frequency_that_was_let_through_is_a_number(text: str) -> None:
    config = ConsumerConfig(name="C", sample_freq=text)
    number = re.fullmatch(r"[+]?[0-9]+|-0+", text.removesuffix("%"))
    is_fine = not text or (number is not None and int(number[0]) < 2**63)

    with nullcontext() if is_fine else pytest.raises(ApiError, match="sampling"):
        assert checked(config).config.sample_percent >= 0


def test_consumers_of_a_work_queue_do_not_count_those_that_feed_streams() -> None:
    queue = replace(STREAM, retention=RetentionPolicy.WORK_QUEUE)
    feed = ConsumerConfig(name="F", deliver_subject="to", direct=True, sourcing=True)
    durable = ConsumerConfig(name="C", durable_name="C", ack_policy=AckPolicy.EXPLICIT)

    made = checked(feed, stream=queue)

    assert made.config.ack_policy is AckPolicy.FLOW_CONTROL
    assert made.config.durable_name == "F"
    assert checked(durable, stream=queue, F=made.config).is_new


@pytest.mark.parametrize(
    ("retention", "replicas", "durable_name", "expected"),
    [
        (RetentionPolicy.LIMITS, 0, "", 1),
        (RetentionPolicy.LIMITS, 0, "C", 3),
        (RetentionPolicy.LIMITS, 1, "C", 1),
        (RetentionPolicy.LIMITS, 2, "", 2),
        (RetentionPolicy.INTEREST, 0, "", 3),
        (RetentionPolicy.INTEREST, 3, "", 3),
    ],
)
def test_a_consumer_counts_for_the_limits_of_its_copies(
    retention: RetentionPolicy, replicas: int, durable_name: str, expected: int
) -> None:
    stream = replace(STREAM, num_replicas=3, retention=retention)
    config = ConsumerConfig(name="C", durable_name=durable_name, num_replicas=replicas)

    assert replicas_of(config, stream) == expected
    assert checked(config, stream=stream).config.num_replicas == replicas


@pytest.mark.parametrize(
    ("retention", "replicas", "code"),
    [
        (RetentionPolicy.LIMITS, 4, error_codes.CONSUMER_REPLICAS_EXCEEDS_STREAM),
        (RetentionPolicy.INTEREST, 2, error_codes.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM),
    ],
)
def test_a_consumer_has_no_other_copies_than_its_stream_can_give(
    retention: RetentionPolicy, replicas: int, code: ErrorCode
) -> None:
    stream = replace(STREAM, num_replicas=3, retention=retention)

    with pytest.raises(ApiError) as caught:
        checked(ConsumerConfig(name="C", num_replicas=replicas), stream=stream)

    assert caught.value.err_code == code.err_code


def test_a_pause_needs_a_newer_server_for_as_long_as_it_is_there() -> None:
    config = checked(ConsumerConfig(name="C")).config

    paused = paused_until(config, Instant(10**18, 7200))

    assert paused.pause_until == Instant(10**18)
    assert paused.metadata["_nats.req.level"] == "1"
    assert paused_until(paused, ZERO_TIME) == config


def test_a_deliver_subject_with_subscribers_stays() -> None:
    old = checked(ConsumerConfig(name="C", deliver_subject="to")).config
    new = replace(old, deliver_subject="elsewhere")

    assert checked_update(old, new, has_interest=lambda subject: subject == "elsewhere") == new
    with pytest.raises(ApiError) as caught:
        checked_update(old, new, has_interest=lambda subject: subject == "to")
    assert caught.value.err_code == error_codes.CONSUMER_NAME_EXIST.err_code
