"""A disk that is full: publishers hear of it, people can make room, and publishing goes on."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import start_server
from tests.support.loop_disk import LoopDisk, loop_disk
from tests.support.nats_client import NatsClient

PATIENCE_S = 30
"""Only a test that fails waits this long."""

BODY = bytes(60_000)

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path, 32 * 2**20) as made:
        yield made


@pytest.fixture
def client(disk: LoopDisk) -> Iterator[NatsClient]:
    with (
        start_server(settings=f'jetstream {{ store_dir: "{disk.path}", max_file: 1G }}') as server,
        NatsClient(server.port) as client,
    ):
        for name in ("S", "T"):
            client.api(f"STREAM.CREATE.{name}", {"name": name, "allow_direct": True})
            assert publish(client, name)["seq"] == 1
        yield client


def publish(client: NatsClient, stream: str = "S") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(client.request(stream, BODY).payload)
    return answer


def fill(client: NatsClient) -> int:
    """Publish until the disk is full; return the last sequence that was acknowledged."""
    last_seq = 1
    while "error" not in (answer := publish(client)):
        last_seq = answer["seq"]
    assert answer["error"]["err_code"] == 10077
    assert answer["error"]["description"] == "no space left on device"
    return last_seq


def fill_the_rest(disk: LoopDisk) -> None:
    """Leave not a byte free."""
    with contextlib.suppress(OSError), (disk.path / "rest").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


def publish_until_taken(client: NatsClient, stream: str = "S") -> int:
    until = time.monotonic() + PATIENCE_S
    while "error" in (answer := publish(client, stream)):
        assert time.monotonic() < until
    return int(answer["seq"])


def test_a_purge_makes_room_on_a_full_disk_and_publishing_goes_on(
    client: NatsClient, disk: LoopDisk
) -> None:
    last_seq = fill(client)
    fill_the_rest(disk)
    state = client.api("STREAM.INFO.S")["state"]
    for seq in (1, last_seq):
        assert client.request("$JS.API.DIRECT.GET.S", b'{"seq":%d}' % seq).payload == BODY

    assert client.api("STREAM.PURGE.S")["purged"] == last_seq
    assert publish_until_taken(client) == last_seq + 1
    assert publish_until_taken(client, "T") == 2
    assert state["last_seq"] in (last_seq, last_seq + 1)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_deleted_messages_and_streams_make_room_on_a_full_disk(
    client: NatsClient, disk: LoopDisk
) -> None:
    last_seq = fill(client)
    fill_the_rest(disk)

    for seq in range(1, last_seq):
        assert client.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": seq % 2 == 0})["success"]
    assert client.api("STREAM.DELETE.S")["success"]
    assert publish_until_taken(client, "T") == 2


def test_room_that_others_make_is_found_without_a_restart(
    client: NatsClient, disk: LoopDisk
) -> None:
    (disk.path / "ballast").write_bytes(bytes(4 * 2**20))
    last_seq = fill(client)

    (disk.path / "ballast").unlink()
    assert publish_until_taken(client) == last_seq + 1


def test_a_server_on_a_full_disk_can_be_stopped_and_started(disk: LoopDisk) -> None:
    settings = f'jetstream {{ store_dir: "{disk.path}", max_file: 1G }}'
    with start_server(settings=settings) as server, NatsClient(server.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
        last_seq = fill(client)
        fill_the_rest(disk)
    with start_server(settings=settings) as server, NatsClient(server.port) as client:
        state = client.api("STREAM.INFO.S")["state"]
        assert (state["messages"], state["last_seq"]) == (last_seq, last_seq)
        assert client.api("STREAM.PURGE.S")["purged"] == last_seq
        assert publish_until_taken(client) == last_seq + 1
