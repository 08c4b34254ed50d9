"""Clients that fetch and acknowledge until their server is killed.

A `Worker` is one consumer's only client, over all rounds. Most acknowledgements it wants confirmed;
of those that it does not, nothing can be said after a kill.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from dataclasses import dataclass, field

from penstock.client.client import Client
from penstock.client.wire import ReceivedMessage
from tests.crash.publishers import Kind, call, number_of

BATCH = 25
REQUEST = b'{"batch":%d,"expires":300000000}' % BATCH
ACK_WAIT_NS = 500_000_000
UNCONFIRMED_EVERY = 7
"""One in so many messages is acknowledged without wanting to know whether that was heard."""


@dataclass
class Worker:
    """What one consumer's client has seen and was told; sets of the messages' numbers."""

    kind: Kind
    name: str
    changed: threading.Condition
    """Told when it has seen or was told something."""

    settings: dict[str, object] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)
    """What is still to be seen, once that is known."""

    wrong: list[str] = field(default_factory=list)
    """What must not happen, and did."""

    _asked: dict[bytes, int] = field(default_factory=dict)

    def create(self, client: Client) -> None:
        config = {
            "durable_name": self.name,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_NS,
            **self.settings,
        }
        document = {"stream_name": self.kind.name, "config": config}
        call(client, f"CONSUMER.CREATE.{self.kind.name}.{self.name}", document)

    @property
    def wants_all(self) -> bool:
        """Whether it has no filter."""
        return "filter_subject" not in self.settings

    def wants(self, number: int) -> bool:
        """Whether a message is for this consumer, as its filter says."""
        subject = (b"%b.%d" % (self.kind.subject, number % 50)).decode()
        return self.wants_all or self.settings["filter_subject"] == subject

    def work(self, client: Client) -> None:
        """Fetch and acknowledge until the server ends."""
        # What was asked of a server that is gone is not answered any more.
        self._asked.clear()
        inbox = client.new_inbox()
        sid = client.subscribe(inbox + b".>")
        with contextlib.suppress(ConnectionError):
            for place in itertools.count():
                self._fetch(client, sid, b"%b.%d" % (inbox, place))

    def _fetch(self, client: Client, sid: bytes, inbox: bytes) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.kind.name}.{self.name}".encode()
        client.publish(subject, REQUEST, reply=inbox + b".status")
        client.send()
        taken = 0
        while taken < BATCH:
            message = client.next_message(sid)
            if message.subject.endswith(b".status"):
                return
            with self.changed:
                if message.subject.endswith(b".done"):
                    self.confirmed.add(self._asked.pop(message.subject))
                else:
                    taken += 1
                    self._take(client, message, b"%b.%d.done" % (inbox, taken))
                self.changed.notify_all()

    def _take(self, client: Client, message: ReceivedMessage, reply: bytes) -> None:
        number = number_of(message.payload)
        if number in self.confirmed:
            self.wrong.append(f"{number} came again as {message.reply!r}")
        if not self.wants(number):
            self.wrong.append(f"{number} is not for {self.name}")
        self.seen.add(number)
        self.awaited.discard(number)
        if number % UNCONFIRMED_EVERY:
            self._asked[reply] = number
            client.publish(message.reply, b"+ACK", reply=reply)
        else:
            client.publish(message.reply, b"+ACK")
        client.send()
