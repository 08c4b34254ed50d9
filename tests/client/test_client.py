"""The small client against the real server and against ours: each does what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.client import client as client_module
from penstock.client.client import Address, Client, parse_url
from penstock.errors import AuthorizationError, FormatError, UsageError
from tests.conformance.servers import OURS, REFERENCE, RunningServer

CONFIG = "no_auth_user: guest, authorization { users: [ {user: guest}, {user: u, password: p} ] }"


@pytest.fixture(scope="module", params=[REFERENCE, OURS], ids=["reference", "ours"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """Give a running server."""
    config = tmp_path_factory.mktemp("client") / "server.conf"
    config.write_text(CONFIG)
    with RunningServer(request.param, config) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    """Give a connected client."""
    with Client.connect(f"127.0.0.1:{server.port}") as connected:
        yield connected


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("nats://h:1", Address("h", 1)),
        ("h", Address("h", 4222)),
        ("tcp://u:p@h", Address("h", 4222, "u", "p")),
        ("nats://t%40ken@h", Address("h", 4222, token="t@ken")),
        ("nats://[::1]:7", Address("::1", 7)),
    ],
)
def test_addresses_are_read(url: str, address: Address) -> None:
    assert parse_url(url) == address


@pytest.mark.parametrize("url", ["http://h", "nats://h:port", "nats://h:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_url(url)


def test_an_address_does_not_show_its_secrets() -> None:
    assert "s3cret" not in repr(parse_url("nats://u:s3cret@h")) + repr(parse_url("s3cret@h"))


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

    client.publish_many(b"few", b"x", 5)
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


def test_requests_get_their_own_answers(server: RunningServer, client: Client) -> None:
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


def test_a_request_that_nobody_takes_is_answered_at_once(client: Client) -> None:
    assert client.request(b"nobody").headers.startswith(b"NATS/1.0 503\r\n")


def test_wrong_credentials_are_refused(server: RunningServer) -> None:
    with pytest.raises(AuthorizationError, match="Authorization Violation"):
        Client.connect(f"nats://u:wrong@127.0.0.1:{server.port}")
    with Client.connect(f"nats://u:p@127.0.0.1:{server.port}") as client:
        client.flush()


def test_messages_that_nobody_reads_are_bounded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "KEPT_MESSAGES_MAX", 3)
    client.subscribe(b"a")
    client.publish_many(b"a", b"x", 4)

    with pytest.raises(UsageError, match="nobody reads"):
        client.flush()


@pytest.mark.parametrize(
    ("greeting", "error"),
    [
        (b"INFO nonsense\r\n", FormatError),
        (b"INFO []\r\n", FormatError),
        (b'INFO {"tls_required":true}\r\n', UsageError),
        (b"220 mail.example.org\r\n", FormatError),
        (b"", ConnectionError),
    ],
)
def test_whoever_does_not_greet_like_a_server_is_left(
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
