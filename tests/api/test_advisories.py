"""Advisories: every kind of event, checked against its published schema."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StoreReadOnly
from penstock.server.jetstream.request_queue import RequestQueue
from penstock.store.health import StoreHealth
from penstock.testing.servers import PENSTOCK, REFERENCE, server_process, start_server
from tests.api.schema_checks import FOLDER, faults_of
from tests.support.nats_client import NatsClient

HOUR_NS = 3600 * 10**9
GROUP = {"priority_groups": ["G"], "priority_policy": "pinned_client"}
IN_NEED = {"api_limit_reached", "server_out_of_space"}
"""Kinds that only a server in trouble publishes."""


class Watcher(NatsClient):
    """A client that receives all events."""

    def __init__(self, port: int, **fields: Any) -> None:
        super().__init__(port, **fields)
        self.subscribe("$JS.EVENT.>")
        self.request("$JS.API.INFO")

    def until(self, kind: str) -> list[dict[str, Any]]:
        """Return events up to the first of a kind."""
        found: list[dict[str, Any]] = []
        while not found or not found[-1]["type"].endswith(f".{kind}"):
            event = self.next_delivery()
            if event.subject.startswith("$JS.EVENT."):
                found.append(json.loads(event.payload))
        return found


def next_message(client: NatsClient, consumer: str, **request: Any) -> str:
    """Pull a message; return its reply subject."""
    body = json.dumps({"batch": 1, "expires": HOUR_NS} | request).encode()
    return client.request(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", body).reply


def consumer(client: NatsClient, name: str, **config: Any) -> None:
    fields = {"durable_name": name, "ack_policy": "explicit"} | config
    client.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": fields})


def act(client: NatsClient, watcher: Watcher) -> Iterator[dict[str, Any]]:
    """Do what causes events, and return them."""
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_atomic": True})
    client.request("s", b"1")
    yield from watcher.until("stream_action")
    consumer(client, "C", sample_freq="100%", max_deliver=1, ack_wait=10**8)
    yield from watcher.until("consumer_action")
    client.publish(next_message(client, "C"), b"+ACK")
    yield from watcher.until("consumer_ack")
    client.request("s", b"2")
    next_message(client, "C")
    yield from watcher.until("max_deliver")
    consumer(client, "N")
    client.publish(next_message(client, "N"), b"-NAK")
    yield from watcher.until("nak")
    client.publish(next_message(client, "N"), b"+TERM because")
    yield from watcher.until("terminated")
    client.api("CONSUMER.PAUSE.S.N", {"pause_until": "2101-02-03T04:05:06Z"})
    yield from watcher.until("consumer_pause")
    consumer(client, "P", **GROUP)
    next_message(client, "P", group="G")
    yield from watcher.until("consumer_group_pinned")
    client.api("CONSUMER.UNPIN.S.P", {"group": "G"})
    yield from watcher.until("consumer_group_unpinned")
    batch = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n\r\n"
    client.request("s", headers=batch % 1)
    client.request("s", headers=batch % 3)
    yield from watcher.until("stream_batch_abandoned")
    snapshot = json.dumps({"deliver_subject": "pieces"}).encode()
    client.publish("$JS.API.STREAM.SNAPSHOT.S", snapshot, reply="_IN.snapshot")
    yield from watcher.until("snapshot_complete")
    restore = {"config": {"name": "R", "storage": "file"}}
    body = json.dumps(restore).encode()
    client.publish("$JS.API.STREAM.RESTORE.R", body, reply="_IN.restore")
    yield from watcher.until("restore_create")
    while (answer := client.next_delivery()).subject != "_IN.restore":
        pass
    client.publish(json.loads(answer.payload)["deliver_subject"], reply="_IN.end")
    yield from watcher.until("restore_complete")
    client.publish("$JS.API.STREAM.DELETE.S", reply="_IN.deleted")
    yield from watcher.until("stream_action")


def told_by(command: str, folder: Path) -> list[dict[str, Any]]:
    with (
        server_process(command, store_dir=folder) as server,
        Watcher(server.port) as watcher,
        NatsClient(server.port) as client,
    ):
        client.subscribe("pieces")
        return list(act(client, watcher))


def kinds_of(events: list[dict[str, Any]]) -> set[str]:
    return {each["type"].rpartition(".")[2] for each in events}


@pytest.mark.oracle
def test_every_kind_of_event_is_as_the_real_servers_and_its_schema_have_it(tmp_path: Path) -> None:
    real, ours = (told_by(command, tmp_path / command) for command in (REFERENCE, PENSTOCK))

    kinds = {path.stem for path in (FOLDER / "advisory").glob("*.json")} - IN_NEED
    assert kinds_of(ours) == kinds_of(real) == kinds | {"consumer_ack"}
    fields = [{each["type"]: list(each) for each in events} for events in (real, ours)]
    assert fields[0] == fields[1]
    # If the real server violates a schema, the schema is wrong.
    faults = [{fault for each in events for fault in faults_of(each)} for events in (real, ours)]
    assert faults[1] <= faults[0]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[NatsClient, NatsClient]]:
    """Return a client of an account with streams, and one that watches the server."""
    settings = f"""
        jetstream {{ store_dir: "{tmp_path}" }}
        accounts {{
            A {{ jetstream: enabled, users: [ {{ user: a, password: a }} ] }}
            $SYS {{ users: [ {{ user: sys, password: sys }} ] }}
        }}
    """
    with (
        start_server(settings=settings) as server,
        NatsClient(server.port, user="sys", **{"pass": "sys"}) as watcher,
        NatsClient(server.port, user="a", **{"pass": "a"}) as client,
    ):
        watcher.subscribe("$JS.EVENT.ADVISORY.>")
        watcher.request("$SYS.REQ.USER.INFO")
        yield client, watcher


def test_requests_that_come_while_too_many_wait_are_dropped_and_told_of(
    watched: tuple[NatsClient, NatsClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestQueue, "is_full", True)
    client, watcher = watched
    client.publish("$JS.API.STREAM.CREATE.S", b'{"name":"S"}', reply="_IN.dropped")
    event = json.loads(watcher.next_delivery().payload)
    # In a later turn: one that is over lets nobody in, and on a busy machine it soon is.
    answer = client.request("$JS.API.STREAM.NAMES")

    assert answer.subject == "_IN.reply"
    assert json.loads(answer.payload)["total"] == 0
    assert faults_of(event) == []
    assert (event["type"].rpartition(".")[2], event["dropped"]) == ("api_limit_reached", 1)


def test_a_full_disk_is_told_of_once_for_a_stream(
    watched: tuple[NatsClient, NatsClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(health: StoreHealth) -> None:
        raise StoreReadOnly("the store", f"[Errno 28] {os.strerror(errno.ENOSPC)}")

    client, watcher = watched
    for name in ("S", "T"):
        client.api(f"STREAM.CREATE.{name}", {"name": name})
    monkeypatch.setattr(StoreHealth, "check_writable", is_full)
    answers = [json.loads(client.request(each).payload) for each in ("S", "S", "T")]
    events = [json.loads(watcher.next_delivery().payload) for _ in range(2)]

    assert {each["error"]["err_code"] for each in answers} == {10077}
    assert [fault for each in events for fault in faults_of(each)] == []
    assert [each["stream"] for each in events] == ["S", "T"]
