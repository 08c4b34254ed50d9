"""What is acknowledged on a stream that keeps only what is needed is gone at once.

Acknowledgements and the question for what is left come in one piece, as a client that does not wait
sends them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.testing.servers import PENSTOCK, server_process

COUNT = 20


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[JetStream]:
    with (
        server_process(PENSTOCK, store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        yield JetStream(client)


def make(streams: JetStream, retention: str, **consumers: str) -> None:
    """Make a stream with consumers, by name with their filters, and fill it."""
    asked = {"name": "S", "subjects": ["s.*"], "retention": retention}
    streams.call("STREAM.CREATE.S", asked)
    for name, pattern in consumers.items():
        config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": pattern}
        streams.call(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    for number in range(COUNT):
        streams.publish(b"s.%d" % (number % 2), b"body")


def take(streams: JetStream, name: str, count: int) -> list[bytes]:
    """Have messages delivered; give their reply subjects."""
    client = streams.client
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    subject = b"$JS.API.CONSUMER.MSG.NEXT.S.%b" % name.encode()
    client.publish(subject, b"%d" % count, reply=inbox)
    client.send()
    replies = [client.next_message(sid).reply for _ in range(count)]
    client.unsubscribe(sid)
    return replies


def left_after(streams: JetStream, replies: list[bytes]) -> int:
    """Acknowledge, and give how many messages the stream has, as asked in the same breath."""
    for reply in replies:
        streams.client.publish(reply, b"+ACK")
    left: int = streams.call("STREAM.INFO.S")["state"]["messages"]
    return left


def test_a_work_queue_loses_what_is_done(streams: JetStream) -> None:
    make(streams, "workqueue", a="")
    replies = take(streams, "a", COUNT)

    assert left_after(streams, replies[1::2]) == COUNT // 2
    assert left_after(streams, replies[::2]) == 0
    # Done twice is done.
    assert left_after(streams, replies) == 0


def test_a_message_of_interest_goes_with_the_last_who_needs_it(streams: JetStream) -> None:
    make(streams, "interest", a="", b="")
    of_a, of_b = take(streams, "a", COUNT), take(streams, "b", COUNT // 2)

    assert left_after(streams, of_a) == COUNT
    assert left_after(streams, of_b) == COUNT // 2
    assert left_after(streams, take(streams, "b", COUNT // 2)) == 0


def test_filters_tell_who_needs_a_message_of_interest(streams: JetStream) -> None:
    make(streams, "interest", a="", even="s.0")
    of_a = take(streams, "a", COUNT)

    assert left_after(streams, of_a) == COUNT // 2
    assert left_after(streams, take(streams, "even", COUNT // 2)) == 0


def test_a_consumer_that_begins_behind_a_message_does_not_need_it(streams: JetStream) -> None:
    make(streams, "interest", a="")
    config = {"durable_name": "late", "ack_policy": "explicit", "deliver_policy": "new"}
    streams.call("CONSUMER.CREATE.S.late", {"stream_name": "S", "config": config})

    assert left_after(streams, take(streams, "a", COUNT)) == 0


def test_what_outlives_a_restart_is_not_what_was_done(tmp_path: Path) -> None:
    with (
        server_process(PENSTOCK, store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        make(streams, "workqueue", a="")
        assert left_after(streams, take(streams, "a", COUNT)[:5]) == COUNT - 5
    with (
        server_process(PENSTOCK, store_dir=tmp_path) as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        state = JetStream(client).call("STREAM.INFO.S")["state"]
        assert (state["messages"], state["first_seq"]) == (COUNT - 5, 6)


def test_what_lies_between_chosen_messages_goes(streams: JetStream) -> None:
    # The real server keeps it until the consumer that has passed it goes.
    asked = {"name": "S", "subjects": ["s.*"], "retention": "interest"}
    streams.call("STREAM.CREATE.S", asked)
    config: dict[str, object] = {"durable_name": "a", "ack_policy": "explicit"}
    streams.call("CONSUMER.CREATE.S.a", {"stream_name": "S", "config": config})
    for token in (b"a", b"b", b"c", b"b", b"b"):
        streams.publish(b"s.%b" % token)
    config |= {
        "durable_name": "last",
        "deliver_policy": "last_per_subject",
        "filter_subject": "s.*",
    }
    streams.call("CONSUMER.CREATE.S.last", {"stream_name": "S", "config": config})

    assert left_after(streams, take(streams, "a", 5)) == 3
    streams.call("STREAM.MSG.DELETE.S", {"seq": 3})
    replies = take(streams, "last", 2)
    assert [reply.split(b".")[5] for reply in replies] == [b"1", b"5"]
    assert left_after(streams, replies) == 0
