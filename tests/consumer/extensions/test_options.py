"""What a consumer's metadata may ask for, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import error_codes
from penstock.consumer.config.config import AckPolicy, ConsumerConfig, DeliverPolicy, ReplayPolicy
from penstock.consumer.extensions.options import (
    check_extensions,
    check_extensions_update,
    dead_letter_subject,
    key_token,
)
from penstock.errors import ApiError
from penstock.stream.config.config import StreamConfig

STREAM = StreamConfig(name="S", subjects=("s.>",))


def config(metadata: dict[str, str], **fields: Any) -> ConsumerConfig:
    usual: dict[str, Any] = {"ack_policy": AckPolicy.EXPLICIT, "max_ack_pending": 1_000}
    return ConsumerConfig(metadata=metadata, **(usual | fields))


def refusal(metadata: dict[str, str], **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check_extensions(config(metadata, **fields), STREAM)
    return caught.value


def test_nothing_is_asked_for_unless_it_is_said() -> None:
    plain = config({"owner": "somebody"}, ack_policy=AckPolicy.NONE)

    check_extensions(plain, STREAM)

    assert (dead_letter_subject(plain), key_token(plain)) == (b"", 0)


def test_both_are_read_from_the_metadata() -> None:
    both = config({"penstock.dead_letter": "dead.s", "penstock.key_token": "12"})

    check_extensions(both, STREAM)

    assert (dead_letter_subject(both), key_token(both)) == (b"dead.s", 12)


def test_what_is_not_known_is_refused() -> None:
    error = refusal({"penstock.deadletter": "dead"})

    assert error.err_code == error_codes.STREAM_INVALID_CONFIG.err_code
    assert "penstock.deadletter is not known" in error.description


@pytest.mark.parametrize("subject", ["", "dead.*", ">", "a..b", "a b", ".a"])
def test_a_dead_letter_has_a_subject_without_wildcards(subject: str) -> None:
    assert "without wildcards" in refusal({"penstock.dead_letter": subject}).description


@pytest.mark.parametrize("subject", ["$JS.API.STREAM.DELETE.S", "$SYS.REQ.X", "$NRG.x"])
def test_a_dead_letter_does_not_make_the_server_do_something(subject: str) -> None:
    assert "of the server's own" in refusal({"penstock.dead_letter": subject}).description


def test_a_dead_letter_does_not_come_back_to_its_own_consumer() -> None:
    metadata = {"penstock.dead_letter": "s.dead"}

    assert "cycle" in refusal(metadata).description
    assert "cycle" in refusal(metadata, filter_subjects=("s.a", "s.*")).description
    check_extensions(config(metadata, filter_subject="s.work.>"), STREAM)


@pytest.mark.parametrize("text", ["", "0", "-1", "+1", "1.0", " 1", "65", "100", "one", "²", "٣"])
def test_a_key_is_a_token_at_a_position(text: str) -> None:
    assert "position of a token, 1 to 64" in refusal({"penstock.key_token": text}).description


@pytest.mark.parametrize("name", ["penstock.dead_letter", "penstock.key_token"])
@pytest.mark.parametrize("policy", [AckPolicy.NONE, AckPolicy.ALL])
def test_both_need_explicit_acknowledgements(name: str, policy: AckPolicy) -> None:
    assert "explicit acks" in refusal({name: "1"}, ack_policy=policy).description


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("deliver_subject", "to", "pull based"),
        ("max_ack_pending", -1, "max ack pending"),
        ("replay_policy", ReplayPolicy.ORIGINAL, "replay policy instant"),
        ("deliver_policy", DeliverPolicy.LAST_PER_SUBJECT, "last per subject"),
    ],
)
def test_keys_are_not_ordered_where_that_cannot_be(field: str, value: Any, words: str) -> None:
    assert words in refusal({"penstock.key_token": "1"}, **{field: value}).description


def test_the_key_is_for_life_and_the_dead_letter_is_not() -> None:
    old = config({"penstock.key_token": "1"})

    check_extensions_update(old, config({"penstock.key_token": "1", "penstock.dead_letter": "d"}))
    for metadata in ({}, {"penstock.key_token": "2"}):
        with pytest.raises(ApiError) as caught:
            check_extensions_update(old, config(metadata))
        assert caught.value.err_code == error_codes.CONSUMER_CREATE.err_code
        assert caught.value.description == "metadata penstock.key_token can not be updated"
