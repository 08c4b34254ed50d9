"""Streams that the real nats-server writes, and what it says about them before it ends.

`write_streams` makes one stream for each thing that leaves its own trace on disk, asks the server
for every message, state and consumer over its API, and ends it cleanly or by kill -9. Tests compare
a reader with these answers.
"""

from __future__ import annotations

import base64
import calendar
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.format.columns import MessageRow
from penstock.testing.servers import reference_server
from tests.support.nats_client import NatsClient

KEY = "correct horse battery staple"
SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS


@dataclass(frozen=True)
class Answered:
    """What the server said about one stream."""

    config: Mapping[str, Any]
    state: Mapping[str, Any]
    messages: list[MessageRow]
    consumers: list[Mapping[str, Any]]


@dataclass(frozen=True)
class WrittenStore:
    """A store directory whose server has ended."""

    store_dir: Path
    cipher: str | None
    killed: bool
    streams: dict[str, Answered]

    @property
    def key(self) -> str | None:
        """Return the key that opens the store, if one is needed."""
        return KEY if self.cipher else None

    def stream_path(self, name: str) -> Path:
        """Return a stream's folder."""
        return self.store_dir / "jetstream" / "$G" / "streams" / name


def to_ns(text: str) -> int:
    """Read a time as the API writes it; the zero time is 0."""
    if text.startswith("0001-"):
        return 0
    date, _, fraction = text.rstrip("Z").partition(".")
    seconds = calendar.timegm(time.strptime(date, "%Y-%m-%dT%H:%M:%S"))
    return seconds * SECOND_NS + int(fraction.ljust(9, "0") or 0)


def write_streams(store_dir: Path, *, cipher: str | None, killed: bool) -> WrittenStore:
    """Run a server, fill it, note its answers, end it."""
    settings = f'jetstream {{ key: "{KEY}", cipher: {cipher} }}' if cipher else ""
    server = reference_server(store_dir=store_dir, settings=settings)
    try:
        with NatsClient(server.port) as client:
            for write in _WRITERS:
                write(client)
            names = [write.__name__.removeprefix("_write_").upper() for write in _WRITERS]
            streams = {name: _ask(client, name) for name in names}
    finally:
        (server.kill if killed else server.stop)()
    return WrittenStore(store_dir, cipher, killed, streams)


def _ask(client: NatsClient, name: str) -> Answered:
    info = client.api(f"STREAM.INFO.{name}", {"deleted_details": True})
    state = info["state"]
    gone = set(state.get("deleted") or [])
    messages = [
        _get(client, name, seq)
        for seq in range(state["first_seq"], state["last_seq"] + 1)
        if seq not in gone and state["messages"]
    ]
    consumers = client.api(f"CONSUMER.LIST.{name}")["consumers"] or []
    return Answered(info["config"], state, messages, consumers)


def _get(client: NatsClient, name: str, seq: int) -> MessageRow:
    got = client.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
    return MessageRow(
        seq=got["seq"],
        timestamp_ns=to_ns(got["time"]),
        subject=got["subject"].encode(),
        headers=base64.b64decode(got.get("hdrs", "")),
        payload=base64.b64decode(got.get("data", "")),
    )


def _create(client: NatsClient, name: str, **config: Any) -> None:
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **config})


def _write_plain(client: NatsClient) -> None:
    """Messages of every small length, with and without headers, and every way to delete."""
    _create(client, "PLAIN")
    chance = random.Random(1)
    for number in range(140):
        headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 3 == 0 else b""
        subject = f"plain.{'abc'[number % 3]}.{'x' * (number % 7 + 1)}"
        client.request(subject, chance.randbytes(chance.randrange(160)), headers=headers)
    for seq in (1, 7, 8, 60):
        client.api("STREAM.MSG.DELETE.PLAIN", {"seq": seq})
    for seq in (2, 9, 61, 140):
        client.api("STREAM.MSG.DELETE.PLAIN", {"seq": seq, "no_erase": True})
    client.api("STREAM.PURGE.PLAIN", {"filter": "plain.b.xx"})


def _write_latest(client: NatsClient) -> None:
    """More messages per subject than are kept."""
    _create(client, "LATEST", max_msgs_per_subject=2)
    for number in range(60):
        client.request(f"latest.{number % 7}", b"value %d" % number)


def _write_counted(client: NatsClient) -> None:
    """More messages than are kept."""
    _create(client, "COUNTED", max_msgs=25, max_msgs_per_subject=9)
    for number in range(90):
        client.request(f"counted.{number % 4}", b"value %d" % number)


def _write_sized(client: NatsClient) -> None:
    """More bytes than are kept, over many small blocks."""
    _create(client, "SIZED", max_bytes=100_000)
    chance = random.Random(2)
    for number in range(180):
        client.request(f"sized.{number % 5}", chance.randbytes(1000))
        if number == 160:
            client.api("STREAM.MSG.DELETE.SIZED", {"seq": 150, "no_erase": True})


def _write_packed(client: NatsClient) -> None:
    """Sealed blocks compressed with S2, with deletions in them."""
    _create(client, "PACKED", max_bytes=120_000, compression="s2")
    chance = random.Random(3)
    for number in range(200):
        text = b"the same words again and again " * 14
        client.request(f"packed.{number % 5}", text + chance.randbytes(chance.randrange(40)))
    for seq in (20, 21, 22, 110):
        client.api("STREAM.MSG.DELETE.PACKED", {"seq": seq, "no_erase": seq != 22})


def _write_later(client: NatsClient) -> None:
    """A stream whose sequences start late."""
    _create(client, "LATER", first_seq=1000)
    for number in range(5):
        client.request("later.a", b"%d" % number)


def _write_unborn(client: NatsClient) -> None:
    """A stream that starts late and is still empty."""
    _create(client, "UNBORN", first_seq=500)


def _write_purged(client: NatsClient) -> None:
    """A stream of which nothing is left but its last sequence."""
    _create(client, "PURGED")
    for number in range(12):
        client.request("purged.a", b"%d" % number)
    client.api("STREAM.PURGE.PURGED")


def _write_interest(client: NatsClient) -> None:
    """Sequences skipped because nobody wanted the message."""
    _create(client, "INTEREST", retention="interest")
    for number in range(4):
        client.request("interest.a", b"nobody listens %d" % number)
    _create_consumer(client, "INTEREST", "listener", filter_subject="interest.a")
    for number in range(10):
        client.request(f"interest.{'ab'[number % 2]}", b"somebody listens %d" % number)


def _write_work(client: NatsClient) -> None:
    """Messages removed by their acks, others delivered once or twice and pending."""
    _create(client, "WORK", retention="workqueue")
    _create_consumer(client, "WORK", "worker", ack_wait=HOUR_NS)
    for number in range(20):
        client.request("work.a", b"job %d" % number)
    client.subscribe("_WORK")
    replies: list[str] = []
    for count in (10, 1):
        request = b'{"batch": %d, "no_wait": true}' % count
        client.publish("$JS.API.CONSUMER.MSG.NEXT.WORK.worker", request, reply="_WORK")
        replies += [client.next_delivery().reply for _ in range(count)]
        if count > 1:
            for place in (0, 1, 2, 5):
                client.request(replies[place], b"+ACK")
            client.request(replies[3], b"-NAK")


def _write_aged(client: NatsClient) -> None:
    """Messages that grow too old, but for one that never does."""
    _create(client, "AGED", max_age=HOUR_NS, allow_msg_ttl=True)
    for number in range(10):
        headers = b"NATS/1.0\r\nNats-TTL: never\r\n\r\n" if number == 3 else b""
        client.request("aged.a", b"%d" % number, headers=headers)


def _create_consumer(client: NatsClient, stream: str, name: str, **config: Any) -> None:
    document = {
        "stream_name": stream,
        "config": {"durable_name": name, "ack_policy": "explicit", **config},
    }
    client.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", document)


_WRITERS = (
    _write_plain,
    _write_latest,
    _write_counted,
    _write_sized,
    _write_packed,
    _write_later,
    _write_unborn,
    _write_purged,
    _write_interest,
    _write_work,
    _write_aged,
)
