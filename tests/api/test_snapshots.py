"""When a snapshot is sent: it waits for the client to subscribe, and ends when the client goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import BOTH, server_process, start_server
from tests.support.nats_client import Delivery, NatsClient

# Below the wildcard that every NatsClient has for its answers, as with the `nats` tool.
PIECES = "_IN.pieces"
COMPLETE = "$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S"
NARROW = {"chunk_size": 1024, "window_size": 1024}


def fill(client: NatsClient) -> None:
    client.api("STREAM.CREATE.S", {"name": "S"})
    for place in range(20):
        client.request("S", bytes((place * 7 + step * step) % 256 for step in range(500)))


def ask(client: NatsClient, **request: Any) -> None:
    body = json.dumps({"deliver_subject": PIECES} | request).encode()
    client.publish("$JS.API.STREAM.SNAPSHOT.S", body, reply="_IN.answer")


def outcome(client: NatsClient) -> tuple[str | None, bytes, int]:
    """Return the advisory's error, the last status line, and how many pieces arrived.

    Nothing is confirmed. The real server's advisory may overtake its pieces.
    """
    error: list[str | None] = []
    status: list[bytes] = []
    count = 0
    while not error or not status:
        found = client.next_delivery()
        if found.subject == COMPLETE:
            error.append(json.loads(found.payload).get("error"))
        elif found.subject == PIECES and not found.payload:
            status.append(found.headers)
        elif found.subject == PIECES:
            count += 1
    return error[0], status[0], count


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    settings = f"port: -1, jetstream {{ store_dir: {json.dumps(str(tmp_path))} }}"
    with start_server(settings=settings) as server:
        yield server.port


@pytest.mark.slow
def test_a_client_that_subscribes_after_the_answer_gets_every_piece(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.api.snapshots.SNAPSHOT_INTEREST_S_MAX", 60.0)
    with NatsClient(port) as client:
        fill(client)
        ask(client)
        assert client.next_delivery().subject == "_IN.answer"
        # A server that does not wait sends while these are stored.
        while_waiting = [client.request("S").subject for _ in range(5)]
        client.subscribe(PIECES)
        pieces: list[Delivery] = []
        while not pieces or pieces[-1].payload:
            # Once for the wildcard, once for the subscription.
            pieces.append(client.next_delivery())
            assert client.next_delivery() == pieces[-1]

    assert PIECES not in while_waiting
    assert len(pieces) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, (None, b"", 1)),
        (NARROW, ("no flow response", b"NATS/1.0 408 No Flow Response\r\n\r\n", 1)),
    ],
    ids=["small", "narrow"],
)
def test_without_a_subscription_it_is_sent_all_the_same(
    port: int, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int], told: tuple[Any, ...]
) -> None:
    monkeypatch.setattr("penstock.api.snapshots.SNAPSHOT_INTEREST_S_MAX", 0.01)
    monkeypatch.setattr("penstock.api.snapshots.SNAPSHOT_IDLE_S_MAX", 0.01)
    with NatsClient(port) as client:
        fill(client)
        client.subscribe(COMPLETE)
        ask(client, **fields)

        assert outcome(client) == told


@pytest.mark.oracle
@pytest.mark.exhaustive
@pytest.mark.parametrize("fields", [{}, NARROW], ids=["small", "narrow"])
def test_without_a_subscription_the_outcome_is_the_real_servers(
    tmp_path: Path, fields: dict[str, int]
) -> None:
    with ExitStack() as stack:
        clients = []
        for kind in BOTH:
            server = stack.enter_context(server_process(kind, store_dir=tmp_path / kind))
            client = stack.enter_context(NatsClient(server.port))
            fill(client)
            client.subscribe(COMPLETE)
            ask(client, **fields)
            clients.append(client)

        ours, real = (outcome(each) for each in clients)

    assert ours == real


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("kind", BOTH)
def test_a_client_that_goes_ends_it(tmp_path: Path, kind: str) -> None:
    with (
        server_process(kind, store_dir=tmp_path) as server,
        NatsClient(server.port) as watcher,
    ):
        fill(watcher)
        watcher.subscribe(COMPLETE)
        with NatsClient(server.port) as client:
            client.subscribe(PIECES)
            ask(client, **NARROW)
            while client.next_delivery().subject != PIECES:
                pass

        error, status, count = outcome(watcher)

    assert error == "no interest"
    assert status == b"NATS/1.0 408 No Interest\r\n\r\n"
    assert count == 1
