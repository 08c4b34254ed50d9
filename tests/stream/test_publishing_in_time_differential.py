"""What streams publish by themselves, compared with the real server: copies, markers, schedules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.clock import FakeClock
from penstock.testing.servers import reference_server
from tests.stream.hosts import StreamHouse
from tests.stream.published import Publish, block, pub
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SECOND_NS = 1_000_000_000
COPIES = {"republish": {"src": ">", "dest": "r.>"}}

Copy = tuple[str, bytes, bytes]


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[NatsClient]:
    with (
        reference_server(store_dir=tmp_path / "reference") as server,
        NatsClient(server.port) as client,
    ):
        client.subscribe("r.>")
        yield client


def copy_of(subject: str, headers: bytes, body: bytes) -> Copy:
    return subject, _TIME.sub(b"<time>", headers), body


def their_copies(
    client: NatsClient, config: dict[str, Any], messages: list[Publish], count: int
) -> list[Copy]:
    """Publish to the real server and wait for as many copies."""
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]} | COPIES | config)
    for message in messages:
        client.publish(message.subject, message.body, headers=block(message.headers))
    found: list[Copy] = []
    while len(found) < count:
        taken = client.next_delivery()
        found.append(copy_of(taken.subject, taken.headers, taken.payload))
    client.api("STREAM.DELETE.S")
    return found


def our_copies(
    path: Path, config: dict[str, Any], messages: list[Publish], *, seconds: int = 0
) -> list[Copy]:
    """Publish to a stream of ours, and let time pass."""
    clock = FakeClock(int(datetime.now(UTC).timestamp()) * SECOND_NS)
    with StreamHouse(path, clock) as house:
        house.listen("r.>")
        house.create(**{"name": "S", "subjects": ["s.>"]} | COPIES | config)
        for message in messages:
            house.publish(message.subject, message.body, headers=block(message.headers))
        house.settle()
        for _ in range(seconds):
            clock.advance_seconds(1)
            house.settle()
        return [copy_of(*answer) for answer in house.answers()]


@pytest.mark.parametrize("headers_only", [False, True])
def test_copies_tell_of_the_original(
    reference: NatsClient, tmp_path: Path, headers_only: bool
) -> None:
    messages = [pub("s.a", b"one"), pub("s.b", b""), pub("s.a", b"two", Msg_Id="1", Own="x")]
    config = {"republish": {"src": "s.*", "dest": "r.$1", "headers_only": headers_only}}

    theirs = their_copies(reference, config, messages, 3)

    assert our_copies(tmp_path, config, messages) == theirs


def test_markers_follow_what_has_expired(reference: NatsClient, tmp_path: Path) -> None:
    config = {
        "max_age": SECOND_NS,
        "duplicate_window": SECOND_NS,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 60 * SECOND_NS,
    }
    messages = [pub("s.a", b"one"), pub("s.a", b"two"), pub("s.b", b"three")]

    theirs = their_copies(reference, config, messages, 5)

    assert our_copies(tmp_path, config, messages, seconds=2) == theirs


@pytest.mark.parametrize(
    "more",
    [
        {"Schedule_TTL": "1h", "Own": "x", "Expected_Stream": "S"},
        {"Schedule_Rollup": "sub", "Schedule_Source": "s.source"},
        {"Schedule_Source": "s.nothing"},
    ],
)
@pytest.mark.parametrize("is_repeated", [False, True])
def test_schedules_publish_the_same(
    reference: NatsClient, tmp_path: Path, more: dict[str, str], is_repeated: bool
) -> None:
    config = {"allow_msg_schedules": True, "allow_msg_ttl": True}
    at = (datetime.now(UTC) + timedelta(seconds=1)).strftime("@at %Y-%m-%dT%H:%M:%SZ")
    pattern = "@every 1s" if is_repeated else at
    message = pub("s.a", b"body", Schedule=pattern, Schedule_Target="s.target", **more)
    source = pub("s.source", b"source", Msg_Id="1", TTL="1h", Its="own")

    theirs = their_copies(reference, config, [source, message], 3)

    assert our_copies(tmp_path, config, [source, message], seconds=2)[:3] == theirs
