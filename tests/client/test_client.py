"""The small client against the real server and against ours: each does what it says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.bench.loops import publish_many
from penstock.client import client as client_module
from penstock.client.client import Client
from penstock.client.jetstream import pull
from penstock.errors import (
    AuthorizationError,
    CannotConnect,
    FormatError,
    RefusedByServer,
    UsageError,
)
from penstock.testing.servers import BOTH, ServerProcess, reference_server, server_process

CONFIG = "no_auth_user: guest, authorization { users: [ {user: guest}, {user: u, password: p} ] }"


@pytest.fixture(scope="module", params=BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Return a running server."""
    with server_process(request.param, settings=CONFIG) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """Return a connected client."""
    with Client.connect(f"127.0.0.1:{server.port}") as connected:
        yield connected


def test_messages_of_several_subscriptions_are_told_apart(client: Client) -> None:
    one, other = client.subscribe(b"a.*"), client.subscribe(b"b")

    client.publish(b"b", b"1")
    client.publish(b"a.x", b"2", reply=b"re", headers=b"NATS/1.0\r\n\r\n")
    client.flush()

    second = client.next_message(one)
    assert (second.subject, second.reply, second.headers) == (b"a.x", b"re", b"NATS/1.0\r\n\r\n")
    assert client.next_message(other).payload == b"1"


def test_a_subscription_may_end_by_itself(client: Client) -> None:
    sid = client.subscribe(b"few", max_messages=2)

    publish_many(client.wire, b"few", b"x", 5)
    client.publish(b"few", b"late")
    client.flush()

    assert [client.next_message(sid).payload for _ in range(2)] == [b"x", b"x"]
    assert client.errors == []


def test_what_was_unsubscribed_from_is_not_kept(client: Client) -> None:
    gone, stays = client.subscribe(b"a"), client.subscribe(b"a")
    client.publish(b"a", b"1")
    client.flush()

    client.unsubscribe(gone)
    client.publish(b"a", b"2")
    client.flush()

    assert [client.next_message(stays).payload for _ in range(2)] == [b"1", b"2"]


def test_requests_get_their_own_answers(server: ServerProcess, client: Client) -> None:
    with Client.connect(f"127.0.0.1:{server.port}") as answering:
        sid = answering.subscribe(b"svc")
        answering.flush()

        def answer() -> None:
            for _ in range(3):
                request = answering.next_message(sid)
                answering.publish(request.reply, request.payload[::-1])
                answering.send()

        thread = threading.Thread(target=answer)
        thread.start()
        answers = [client.request(b"svc", b"%d!" % number).payload for number in range(3)]
        thread.join()

    assert answers == [b"!0", b"!1", b"!2"]


def test_answers_may_come_in_another_order_than_the_requests(
    server: ServerProcess, client: Client
) -> None:
    with Client.connect(f"127.0.0.1:{server.port}") as answering:
        sid = answering.subscribe(b"svc")
        answering.flush()
        replies = [client.begin_request(b"svc", b"%d" % number) for number in range(5)]

        asked = [answering.next_message(sid) for _ in replies]
        for request in reversed(asked):
            answering.publish(request.reply, request.payload)
            answering.publish(request.reply, b"a second answer that nobody waits for")
        answering.flush()

        assert [client.next_answer(each).payload for each in replies] == [
            b"%d" % number for number in range(5)
        ]


def test_a_request_that_nobody_takes_is_answered_at_once(client: Client) -> None:
    assert client.request(b"nobody").headers.startswith(b"NATS/1.0 503\r\n")


def test_messages_of_a_consumer_are_fetched_and_acknowledged(tmp_path: Path) -> None:
    with reference_server(store_dir=tmp_path) as real, Client.connect(real.url) as client:
        client.request(b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s.*"]}')
        consumer = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}'
        client.request(b"$JS.API.CONSUMER.DURABLE.CREATE.S.C", consumer)
        for number in range(5):
            client.request(b"s.%d" % number, b"%d" % number)

        fetched = pull(client, b"S", b"C", 3)
        for message in fetched:
            client.publish(message.reply, b"+ACK")
        client.flush()

        assert [(each.subject, each.payload) for each in fetched] == [
            (b"s.0", b"0"),
            (b"s.1", b"1"),
            (b"s.2", b"2"),
        ]
        assert [each.payload for each in pull(client, b"S", b"C", 9, expires_s=0.2)] == [b"3", b"4"]
        state = json.loads(client.request(b"$JS.API.CONSUMER.INFO.S.C").payload)
        assert (state["ack_floor"]["stream_seq"], state["num_ack_pending"]) == (3, 2)
        with pytest.raises(RefusedByServer, match="503"):
            pull(client, b"S", b"NONE", 1)


def test_wrong_credentials_are_refused(server: ServerProcess) -> None:
    with pytest.raises(AuthorizationError, match="Authorization Violation"):
        Client.connect(f"nats://u:wrong@127.0.0.1:{server.port}")
    with Client.connect(f"nats://u:p@127.0.0.1:{server.port}") as client:
        client.flush()


def test_messages_that_nobody_reads_are_bounded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CLIENT_KEPT_MESSAGES_MAX", 3)
    client.subscribe(b"a")
    publish_many(client.wire, b"a", b"x", 4)

    with pytest.raises(UsageError, match="nobody reads"):
        client.flush()


@pytest.mark.parametrize(
    ("greeting", "error"),
    [
        (b"INFO nonsense\r\n", FormatError),
        (b"INFO []\r\n", FormatError),
        (b'INFO {"tls_required":true}\r\n', CannotConnect),
        (b"220 mail.example.org\r\n", FormatError),
        (b"", CannotConnect),
    ],
)
def test_a_peer_that_does_not_greet_like_a_server_is_refused(
    greeting: bytes, error: type[Exception]
) -> None:
    def greet(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(greeting)
            accepted.shutdown(socket.SHUT_WR)
            while accepted.recv(1000):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        try:
            with pytest.raises(error):
                Client.connect(f"127.0.0.1:{listener.getsockname()[1]}")
        finally:
            thread.join()


def test_a_server_that_says_nothing_is_not_waited_for_forever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(TimeoutError):
        Client.connect(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.05)
