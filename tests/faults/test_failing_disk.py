"""A server whose disk fails: who publishes hears of it at once, and the stream heals by itself.

Only the calls of a stream's files fail. Each fault is met by the path that servers run: the disk
threads write and sync, and clients are answered over the wire.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from penstock.server.jetstream import service
from penstock.store.vfs import OsFileSystem
from penstock.testing.faults import FaultPlan, FaultyFileSystem, Operation, every_fault
from penstock.testing.servers import ServerThread, start_server
from tests.support.nats_client import NatsClient

PATIENCE_S = 30
"""Only a test that fails waits this long."""

FULL = "no space left on device"
BROKEN = "input/output error"


class StreamFiles(FaultyFileSystem):
    """Fails the calls on files of streams' messages alone."""

    only = "/msgs"
    """A part of the paths that fail."""

    def note(self, operation: Operation, path: str) -> FaultPlan | None:
        return super().note(operation, path) if self.only in path else None


class House:
    """A server on a disk that fails, a client, and what the server logs."""

    def __init__(self, server: ServerThread, files: StreamFiles) -> None:
        self.server = server
        self.files = files
        self.client = NatsClient(server.port)

    def publish(self, body: bytes, *, subject: str = "S", headers: bytes = b"") -> dict[str, Any]:
        """Publish, and return the answer."""
        answer: dict[str, Any] = json.loads(
            self.client.request(subject, body, headers=headers).payload
        )
        return answer

    def publish_until_taken(self, body: bytes) -> int:
        """Publish until a message is taken; return its sequence."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            answer = self.publish(body)
            if "error" not in answer:
                return int(answer["seq"])
        raise AssertionError("the stream does not heal")

    def bodies(self, stream: str = "S") -> list[bytes]:
        """Return the stream's messages, in order, each with its own sequence."""
        state = self.client.api(f"STREAM.INFO.{stream}")["state"]
        return [
            self.client.request(f"$JS.API.DIRECT.GET.{stream}", b'{"seq":%d}' % seq).payload
            for seq in range(state["first_seq"], state["last_seq"] + 1)
        ]

    def health(self) -> dict[str, Any]:
        """Return what /healthz says."""
        try:
            with urlopen(f"{self.server.monitor_url}/healthz") as answer:
                told: dict[str, Any] = json.load(answer)
        except HTTPError as error:
            told = {"code": error.code} | json.load(error)
        return told


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    files = StreamFiles(OsFileSystem())
    monkeypatch.setattr(service, "OsFileSystem", lambda: files)
    settings = f'jetstream {{ store_dir: "{tmp_path}" }}'
    with start_server(settings=settings, monitor_port=-1) as server:
        house = House(server, files)
        house.client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
        # The next commit is a job of the disk threads.
        assert house.publish(b"first")["seq"] == 1
        yield house
        files.plan = None
        house.client.close()


FAULTS = {
    "a sync fails": ({Operation.SYNC}, errno.EIO, BROKEN),
    "a write fails": ({Operation.WRITE}, errno.EIO, BROKEN),
    "a write finds the disk full": ({Operation.WRITE}, errno.ENOSPC, FULL),
    "a sync finds the disk full": ({Operation.SYNC}, errno.ENOSPC, FULL),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_write_is_answered_and_the_stream_goes_on_without_the_message(
    house: House, fault: str
) -> None:
    operations, error, words = FAULTS[fault]
    house.files.plan = FaultPlan(1, operations, error=error)

    answer = house.publish(b"refused", headers=b"NATS/1.0\r\nNats-Msg-Id: same\r\n\r\n")
    assert answer["error"] == {"code": 503, "err_code": 10077, "description": words}
    assert house.files.plan.fired == 1

    assert house.publish_until_taken(b"second") == 2
    # The id of what was refused is not known: sent again, it is no duplicate.
    again = house.publish(b"third", headers=b"NATS/1.0\r\nNats-Msg-Id: same\r\n\r\n")
    assert again == {"stream": "S", "seq": 3}
    assert house.bodies() == [b"first", b"second", b"third"]
    assert house.health()["status"] == "ok"


def test_while_the_disk_fails_all_publishes_are_refused_and_reading_goes_on(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    writes = {Operation.WRITE, Operation.SYNC, Operation.TRUNCATE, Operation.SYNC_DIR}
    house.files.plan = FaultPlan(1, writes, forever=True)
    for number in range(200):
        house.client.publish("S", b"refused", reply=f"_IN.{number}")
    answers = [json.loads(house.client.next_delivery().payload) for _ in range(200)]

    assert {each["error"]["err_code"] for each in answers} == {10077}
    assert house.client.request("$JS.API.DIRECT.GET.S", b'{"seq":1}').payload == b"first"
    ill = house.health()
    assert (ill["status"], ill["code"]) == ("unavailable", 503)
    assert "stream '$G > S' write error" in ill["error"]

    house.files.plan = None
    assert house.publish_until_taken(b"second") == 2
    assert house.bodies() == [b"first", b"second"]
    assert house.health()["status"] == "ok"
    told = [each.message for each in caplog.records if "JetStream stream 'S'" in each.message]
    assert [text.partition(":")[2].split(":")[0] for text in told] == [
        " write failed",
        " can be written again",
    ]


def test_a_purge_that_comes_right_after_a_failure_waits_for_the_store_and_is_done(
    house: House,
) -> None:
    house.files.plan = FaultPlan(1, {Operation.SYNC})
    house.client.publish("S", b"refused", reply="_IN.refused")
    house.client.publish("$JS.API.STREAM.PURGE.S", reply="_IN.purged")
    answers = [json.loads(house.client.next_delivery().payload) for _ in range(2)]

    assert answers[0]["error"]["err_code"] == 10077
    assert (answers[1]["success"], answers[1]["purged"]) == (True, 1)
    assert house.publish_until_taken(b"second") == 2


def test_what_was_acknowledged_to_a_work_queue_while_its_store_had_failed_is_removed(
    house: House,
) -> None:
    client = house.client
    client.api("STREAM.CREATE.W", {"name": "W", "retention": "workqueue"})
    consumer = {"durable_name": "C", "ack_policy": "explicit"}
    client.api("CONSUMER.DURABLE.CREATE.W.C", {"stream_name": "W", "config": consumer})
    assert house.publish(b"work", subject="W")["seq"] == 1
    work = client.request("$JS.API.CONSUMER.MSG.NEXT.W.C")
    writes = {Operation.WRITE, Operation.SYNC, Operation.TRUNCATE, Operation.SYNC_DIR}
    house.files.plan = FaultPlan(1, writes, forever=True)
    assert house.publish(b"refused", subject="W")["error"]["err_code"] == 10077

    assert client.request(work.reply, b"+ACK").payload == b""
    house.files.plan = None
    until = time.monotonic() + PATIENCE_S
    while client.api("STREAM.INFO.W")["state"]["messages"] and time.monotonic() < until:
        pass
    assert client.api("STREAM.INFO.W")["state"]["messages"] == 0


def test_a_mirror_whose_disk_failed_misses_no_message(house: House) -> None:
    client = house.client
    mirror = {"name": "M", "mirror": {"name": "S"}, "allow_direct": True, "mirror_direct": True}
    client.api("STREAM.CREATE.M", mirror)
    until = time.monotonic() + PATIENCE_S
    while client.api("STREAM.INFO.M")["state"]["messages"] < 1:
        assert time.monotonic() < until
    house.files.plan = plan = FaultPlan(1, {Operation.SYNC})
    house.files.only = "/M/"
    for number in range(2, 10):
        assert house.publish(b"%d" % number)["seq"] == number
    while client.api("STREAM.INFO.M")["state"]["messages"] < 9 or not plan.fired:
        assert time.monotonic() < until

    assert house.bodies("M") == house.bodies("S")


def test_every_call_that_fails_under_a_publish_is_answered_and_healed(house: House) -> None:
    taken = [b"first"]
    for error in (errno.EIO, errno.ENOSPC):
        for plan in every_fault(error=error):
            house.files.plan = plan
            body = b"%d at call %d" % (error, plan.nth)
            answer = house.publish(body)
            if "error" in answer:
                assert answer["error"]["err_code"] == 10077
            else:
                taken.append(body)
            # The fault may be met by what follows: reopening, sealing.
            again = b"after " + body
            assert house.publish_until_taken(again) == len(taken) + 1
            taken.append(again)
            house.files.plan = None
    assert house.bodies() == taken


@pytest.mark.parametrize("no_erase", [True, False])
def test_a_deleted_message_does_not_come_back_once_that_is_answered(
    house: House, no_erase: bool
) -> None:
    house.files.plan = plan = FaultPlan(1, {Operation.SYNC})
    answer = house.client.api("STREAM.MSG.DELETE.S", {"seq": 1, "no_erase": no_erase})

    # It was tried again, since the store was reopened meanwhile.
    assert (answer["success"], plan.fired) == (True, 1)
    assert house.publish_until_taken(b"second") == 2
    assert house.client.api("STREAM.INFO.S")["state"]["messages"] == 1
