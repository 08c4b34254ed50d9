"""Following a stream as it grows: the last message of each subject, then every new one.

By a push consumer of its own, which is not acknowledged and which the server forgets when nobody
listens any more. The server says that it is still there every few seconds; one that does not is a
TimeoutError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.cli.output import rfc3339
from penstock.client.delivered import is_delivered, read_delivered
from penstock.client.jetstream import JetStream, Stored
from penstock.client.wire import Message

HEARTBEAT_S = 5
HEARTBEATS_MISSED_MAX = 3
SECOND_NS = 10**9


def follow(streams: JetStream, stream: str, pattern: str) -> Iterator[Stored]:
    """Give the last message of each subject that matches, and then what comes, for ever."""
    client = streams.client
    inbox = client.new_inbox() + b".follow"
    sid = client.subscribe(inbox)
    config: dict[str, Any] = {
        "deliver_subject": inbox.decode(),
        "deliver_policy": "last_per_subject",
        "ack_policy": "none",
        "filter_subject": pattern,
        "idle_heartbeat": HEARTBEAT_S * SECOND_NS,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 60 * SECOND_NS,
    }
    asked = {"stream_name": stream, "config": config}
    streams.call(f"CONSUMER.CREATE.{stream}", asked)
    client.set_timeout(HEARTBEAT_S * HEARTBEATS_MISSED_MAX)
    while True:
        message = client.next_message(sid)
        if is_delivered(message):
            yield _stored(message)


def _stored(message: Message) -> Stored:
    """Give a delivered message with what its reply subject tells of it."""
    told = read_delivered(message)
    time = rfc3339(told.time_ns) or ""
    return Stored(message.subject, told.seq, message.headers, message.payload, time)
