"""Direct gets: who answers, and when nobody does. The answers are compared in the stories."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from penstock.testing.servers import server_process
from tests.support.nats_client import NatsClient

NOBODY = b"NATS/1.0 503"


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsClient]:
    folder = tmp_path_factory.mktemp("direct")
    with server_process(store_dir=folder) as server, NatsClient(server.port) as client:
        yield client


def wait_for_messages(client: NatsClient, stream: str, count: int) -> None:
    while client.api(f"STREAM.INFO.{stream}")["state"]["messages"] < count:
        pass


def test_a_mirror_answers_for_its_origin_if_it_may(client: NatsClient) -> None:
    client.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o"], "allow_direct": True})
    client.request("o", b"hello")
    mirror = {"name": "M", "mirror": {"name": "O"}, "mirror_direct": True}
    client.api("STREAM.CREATE.M", mirror)
    wait_for_messages(client, "M", 1)

    client.api("STREAM.DELETE.O")
    by_seq = client.request("$JS.API.DIRECT.GET.O", b'{"seq":1}')
    by_subject = client.request("$JS.API.DIRECT.GET.O.o")

    for answer in (by_seq, by_subject):
        assert b"\r\nNats-Stream: M\r\n" in answer.headers
        assert answer.payload == b"hello"


def test_nobody_answers_for_a_stream_that_is_gone_or_may_not_be_asked(client: NatsClient) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    client.request("S", b"hello")
    asked = ("$JS.API.DIRECT.GET.S", "$JS.API.DIRECT.GET.S.S")

    for change in ("STREAM.UPDATE.S", "STREAM.DELETE.S"):
        assert not client.request(asked[1]).headers.startswith(NOBODY)
        client.api(change, {"name": "S"} if change == "STREAM.UPDATE.S" else None)
        assert all(client.request(each).headers.startswith(NOBODY) for each in asked)
        if change == "STREAM.UPDATE.S":
            client.api(change, {"name": "S", "allow_direct": True})


def test_too_many_last_messages_are_refused(client: NatsClient) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "allow_direct": True})
    for place in range(1025):
        client.request(f"s.{place}", b"")

    refused = client.request("$JS.API.DIRECT.GET.S", b'{"multi_last":["s.*"]}')

    assert refused.headers == b"NATS/1.0 413 Too Many Results\r\n\r\n"


def test_requests_without_a_reply_are_done_and_not_answered(client: NatsClient) -> None:
    client.publish("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    client.publish("$JS.API.DIRECT.GET.S", b'{"seq":1}')

    answer = json.loads(client.request("$JS.API.STREAM.NAMES").payload)

    assert answer["streams"] == ["S"]
