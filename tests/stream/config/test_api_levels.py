"""API levels: what a configuration needs, what is stored of it and what answers add."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.stream.config.config import (
    PersistModeType,
    StreamConfig,
    for_answer,
    is_level_known,
    is_supported,
    required_level,
    with_level_of,
    with_required_level,
)


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({}, 0),
        ({"allow_msg_ttl": True}, 1),
        ({"subject_delete_marker_ttl": 1}, 1),
        ({"allow_msg_counter": True}, 2),
        ({"allow_atomic": True, "allow_msg_ttl": True}, 2),
        ({"allow_msg_schedules": True}, 2),
        ({"persist_mode": PersistModeType.ASYNC}, 2),
        ({"allow_batched": True, "allow_atomic": True}, 4),
    ],
)
def test_the_newest_feature_decides_the_level(fields: dict[str, Any], level: int) -> None:
    assert required_level(StreamConfig(**fields)) == level


def test_what_answers_tell_is_never_kept() -> None:
    config = StreamConfig(metadata={"a": "1"})

    answer = for_answer(config, "2.15.1")

    assert answer.metadata == {"a": "1", "_nats.ver": "2.15.1", "_nats.level": "5"}
    assert with_required_level(answer).metadata == {"a": "1", "_nats.req.level": "0"}
    assert config.metadata == {"a": "1"}


def test_a_level_taken_over_makes_no_difference() -> None:
    old = StreamConfig(metadata={"_nats.req.level": "3"})

    assert with_level_of(StreamConfig(), old) == old
    assert with_level_of(old, StreamConfig()) == StreamConfig()


@pytest.mark.parametrize(("level", "known"), [("5", True), ("6", False), ("x", False), ("", False)])
def test_a_level_is_known_or_not(level: str, known: bool) -> None:
    assert is_level_known(level) is known


@pytest.mark.parametrize(
    ("metadata", "supported"),
    [({}, True), ({"_nats.req.level": ""}, True), ({"_nats.req.level": "6"}, False)],
)
def test_a_stream_of_a_newer_server_is_not_supported(
    metadata: dict[str, str], supported: bool
) -> None:
    assert is_supported(metadata) is supported
