"""Message ids after a restart: read in slices, while other streams go on and order is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.format.envelope import Cipher, StoreKey
from penstock.stream.storage import StoragePolicy
from penstock.stream.stream import Stream
from tests.stream.hosts import StreamHouse

SLICE = 3
STORED = 20


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.stream.publish.message_id_recovery.MESSAGE_IDS_READ_AT_ONCE", SLICE
    )


def publish(house: StreamHouse, number: int, message_id: str = "", subject: str = "s") -> None:
    headers = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n\r\n".encode() if message_id else b""
    house.publish(subject, headers=headers, reply=f"_IN.{number}")


def restarted(house: StreamHouse, **config: Any) -> Stream:
    """Return a stream with ids from before a restart, 1 to 20, one in each message."""
    stream = house.create(name="S", subjects=["s"], **config)
    for number in range(1, STORED + 1):
        publish(house, 0, str(number))
    house.settle()
    house.answers()
    return house.reopen(stream)


def answered(house: StreamHouse) -> list[tuple[str, int, bool]]:
    """Return (reply, sequence, whether it was a duplicate) of what was answered so far."""
    found = [(each.subject, json.loads(each.body)) for each in house.answers()]
    return [(whom, body["seq"], body.get("duplicate", False)) for whom, body in found]


def wait_for_ids(house: StreamHouse, stream: Stream) -> None:
    while stream.publishing.message_id_recovery.is_under_way:
        house.settle()


def test_messages_wait_for_the_ids_and_are_answered_in_their_order(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = restarted(house)
        publish(house, 1, "7")
        publish(house, 2)
        publish(house, 3, "new")
        publish(house, 4, "new")
        house.hub.flush()

        assert stream.publishing.message_id_recovery.is_under_way
        assert stream.store.last_seq == STORED
        wait_for_ids(house, stream)
        assert answered(house) == [
            ("_IN.1", 7, True),
            ("_IN.2", 21, False),
            ("_IN.3", 22, False),
            ("_IN.4", 22, True),
        ]


def test_other_streams_go_on_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.stream.publish.message_id_recovery.MESSAGE_IDS_READ_AT_ONCE", 1)
    with StreamHouse(tmp_path) as house:
        stream = restarted(house)
        house.create(name="OTHER", subjects=["other"])
        publish(house, 1, "7")
        publish(house, 2, "any", subject="other")

        assert answered(house) == [("_IN.2", 1, False)]
        assert stream.publishing.message_id_recovery.is_under_way
        wait_for_ids(house, stream)
        assert answered(house) == [("_IN.1", 7, True)]


def test_plain_messages_take_the_short_way_again_afterwards(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = restarted(house)
        publish(house, 1, "7")
        before = stream.publishing.is_careful
        house.update(stream, subjects=["s"], max_msgs=100)
        publish(house, 2)
        wait_for_ids(house, stream)

        assert answered(house) == [("_IN.1", 7, True), ("_IN.2", 21, False)]
        assert (before, stream.publishing.is_careful) == (True, False)
        assert not stream.ingest.careful


def test_ids_of_encrypted_messages_are_known_too(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        house.policy = StoragePolicy(cipher=Cipher.AES_256_GCM, key=StoreKey(b"secret"))
        stream = restarted(house)
        publish(house, 1, "20")
        assert stream.publishing.message_id_recovery.is_under_way
        wait_for_ids(house, stream)

        assert answered(house) == [("_IN.1", 20, True)]
        assert len(stream.publishing.message_ids) == STORED


def test_ids_beside_other_headers_and_of_removed_messages(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = house.create(name="S", subjects=["s"])
        for number in range(1, STORED + 1):
            headers = f"NATS/1.0\r\nNats-Expected-Stream: S\r\nNats-Msg-Id: {number}\r\n\r\n"
            house.publish("s", headers=headers.encode())
        house.settle()
        stream = house.reopen(stream)
        publish(house, 1, "20")
        # Some messages that are still to be read are removed meanwhile.
        stream.store.purge(seq=15)
        wait_for_ids(house, stream)
        publish(house, 2, "2")
        publish(house, 3, "10")

        assert answered(house) == [
            ("_IN.1", 20, True),
            ("_IN.2", 2, True),
            ("_IN.3", 21, False),
        ]


def test_when_too_much_waits_the_ids_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.stream.publish.message_id_recovery.HELD_MESSAGES_BYTES_MAX", 1000)
    with StreamHouse(tmp_path) as house:
        stream = restarted(house)
        for number in range(1, 9):
            publish(house, number, str(number))

        assert stream.publishing.message_ids.is_ready
        wait_for_ids(house, stream)
        assert answered(house) == [(f"_IN.{number}", number, True) for number in range(1, 9)]


def test_what_waits_goes_unanswered_when_the_stream_stops(tmp_path: Path) -> None:
    with StreamHouse(tmp_path) as house:
        stream = restarted(house)
        publish(house, 1, "new")
        stream.stop()

        assert answered(house) == []
        assert stream.store.last_seq == STORED
