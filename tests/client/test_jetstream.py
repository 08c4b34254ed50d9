"""JetStream over the wire client, against the real server and ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock import error_codes
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, FormatError, NoAnswer
from penstock.limits import CLIENT_REQUESTS_MAX
from penstock.testing.servers import BOTH, server_process, start_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("streams")
    with server_process(request.param, store_dir=folder) as server:
        yield server.url


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    """Return JetStream with a stream S of the subjects s.>."""
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        # In memory: on a busy machine the real server counted messages of a removed stream of the
        # same name that had been on disk.
        config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
        made.call("STREAM.CREATE.S", config)
        yield made
        made.call("STREAM.DELETE.S")


def test_what_is_refused_has_the_server_s_code_and_text(streams: JetStream) -> None:
    with pytest.raises(ApiError) as refused:
        streams.call("STREAM.INFO.NONE")

    assert refused.value.document() == ApiError(error_codes.STREAM_NOT_FOUND).document()


def test_a_text_of_the_server_may_look_like_a_placeholder(streams: JetStream) -> None:
    config = {
        "name": "T",
        "subjects": ["t.*"],
        "subject_transform": {"src": "t.*", "dest": "{{x}}"},
    }

    with pytest.raises(ApiError) as refused:
        streams.call("STREAM.CREATE.T", config)

    assert refused.value.description


def test_nobody_answers_where_there_is_no_jetstream() -> None:
    with start_server() as server, Client.connect(server.url) as client, pytest.raises(NoAnswer):
        JetStream(client).call("INFO")


@pytest.mark.parametrize("body", [b"no json", b"[1]", b""])
def test_what_is_no_document_is_refused(body: bytes) -> None:
    with (
        start_server() as server,
        Client.connect(server.url) as client,
        Client.connect(server.url) as other,
    ):
        sid = other.subscribe(b"$JS.API.INFO")
        other.flush()

        def answer() -> None:
            other.publish(other.next_message(sid).reply, body)
            other.flush()

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(FormatError):
            JetStream(client).call("INFO")
        answering.join()


def test_messages_are_given_in_their_order_and_from_anywhere(streams: JetStream) -> None:
    for number in range(4):
        streams.publish(b"s.%d" % (number % 2), b"%d" % number, headers=b"NATS/1.0\r\nA: b\r\n\r\n")

    every = list(streams.each("S"))

    assert [(each.seq, each.subject, each.payload) for each in every] == [
        (1, b"s.0", b"0"),
        (2, b"s.1", b"1"),
        (3, b"s.0", b"2"),
        (4, b"s.1", b"3"),
    ]
    assert {each.headers for each in every} == {b"NATS/1.0\r\nA: b\r\n\r\n"}
    assert [each.seq for each in streams.each("S", "s.1", 3)] == [4]
    assert streams.find("S", seq=9) is None


def test_many_are_published_and_looked_for_at_a_time(streams: JetStream) -> None:
    count = 3 * CLIENT_REQUESTS_MAX
    for number in range(count):
        assert list(streams.publish_all(b"s.%d" % number, [b"x" * number])) == [number]
    sizes = list(streams.publish_all(b"s.all", (b"x" * size for size in range(count))))

    subjects = [f"s.{number}" for number in range(count)]
    found = list(streams.find_last("S", ["s.none", *subjects]))

    assert sizes == list(range(count))
    assert found[0] is None
    assert [each and len(each.payload) for each in found[1:]] == list(range(count))
    assert dict(streams.subjects("S", "s.*")) == dict.fromkeys(subjects, 1) | {"s.all": count}
    assert dict(streams.subjects("S", "t.>")) == {}
