"""Limits of the account and the server: exact to the byte, though few messages ask for quota."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.quota import UNBOUNDED, StorageQuota
from penstock.stream.stream import Stream
from tests.stream.hosts import StreamHouse
from tests.stream.published import block

SIZE = 30 + len("s.a") + 100


def publish_many(house: StreamHouse, headers: bytes = b"") -> list[int]:
    """Publish more than there is room for; return the errors."""
    for _ in range(100):
        house.publish("s.a", b"x" * 100, headers=headers, reply="_IN.r")
    answers = [json.loads(answer.body) for answer in house.answers()]
    return [answer["error"]["err_code"] for answer in answers if "error" in answer]


def limit_account(stream: Stream, bytes_max: int) -> None:
    stream.limit_by(
        lambda: StorageQuota(account_bytes=bytes_max - stream.store.state().bytes, stream_count=3)
    )


@pytest.mark.parametrize("count", [0, 1, 37, 99, 100])
def test_an_account_stores_as_much_as_it_may(tmp_path: Path, count: int) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        limit_account(stream, count * SIZE)

        assert publish_many(house) == [10002] * (100 - count)
        assert stream.store.state().messages == count


def test_headers_count_too(tmp_path: Path) -> None:
    headers = block({"Nats-Expected-Stream": "S"})
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        limit_account(stream, 10 * (SIZE + 4 + len(headers)))
        publish_many(house, headers)

        assert stream.store.state().messages == 10


def test_a_full_server_takes_nothing_more(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        stream.limit_by(lambda: StorageQuota(server_bytes=10 * SIZE - stream.store.state().bytes))

        # The message that passes the limit is still stored: what was stored before it counts.
        assert publish_many(house) == [10023] * 89


def test_there_is_room_again_when_messages_are_gone(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s.>"])
        limit_account(stream, 10 * SIZE)
        publish_many(house)
        house.purge(stream)

        assert publish_many(house) == [10002] * 90


@given(
    st.integers(-(2**40), UNBOUNDED),
    st.integers(-(2**40), UNBOUNDED),
    st.integers(1, 1000),
    st.integers(0, 2**20),
)
def test_all_streams_together_are_granted_no_more_than_is_left(
    server_bytes: int, account_bytes: int, stream_count: int, size: int
) -> None:
    room = StorageQuota(server_bytes, account_bytes, stream_count)
    left = min(server_bytes, account_bytes) - size

    if left < UNBOUNDED // 2:
        assert 0 <= room.grant(size) * stream_count <= max(left, 0)
