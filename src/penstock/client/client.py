"""The small blocking client: connect, publish, subscribe, request, pull, flush.

    with Client.connect("nats://127.0.0.1:4222") as client:
        inbox = client.subscribe(b"orders.>")
        client.publish(b"orders.1", b"hello")
        print(client.next_message(inbox).payload)

One thread at a time. Messages of several subscriptions are told apart by their subscription id;
those of another than the one waited for are kept, up to a bound.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
from array import array
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from penstock.client.address import DEFAULT_PORT, parse_url
from penstock.client.credentials import NOBODY, Credentials
from penstock.client.delivered import status_of
from penstock.client.opening import ClientTls, Terms, open_wire, set_timeout
from penstock.client.rows import RowPublisher, Rows
from penstock.client.tables import collect
from penstock.client.wire import Message, Wire
from penstock.errors import RefusedByServer, UsageError
from penstock.format.columns import ColumnBuilder
from penstock.limits import PAYLOAD_BYTES_MAX

DEFAULT_URL = f"nats://127.0.0.1:{DEFAULT_PORT}"

KEPT_MESSAGES_MAX = 1_000_000
"""Messages kept for subscriptions that nobody waits on right now; beyond it the client refuses to
go on, because its user reads too slowly and memory must not pay for that."""


class Client:
    """A connection to a server; see the module."""

    def __init__(self, sock: socket.socket, wire: Wire, info: dict[str, Any]) -> None:
        """Use `connect`."""
        self.info = info
        self._socket = sock
        self._wire = wire
        self._pings = 1
        self._next_sid = 0
        self._kept: dict[bytes, deque[Message]] = {}
        self._kept_count = 0
        self._inbox = b""
        self._inbox_sid = b""
        self._requests = 0
        self._outstanding: dict[bytes, Message | None] = {}

    @classmethod
    def connect(
        cls,
        url: str = DEFAULT_URL,
        *,
        credentials: Credentials = NOBODY,
        tls: ClientTls | None = None,
        name: str = "penstock",
        timeout_s: float = 10.0,
    ) -> Client:
        """Connect and log in; `credentials`, where there are any, count over those of the URL.

        Raises CannotConnect, AuthorizationError, UsageError, FormatError, TimeoutError.
        """
        return cls(*open_wire(parse_url(url), Terms(credentials, tls, name, timeout_s)))

    def set_timeout(self, timeout_s: float | None) -> None:
        """Bound how long a read or a write may wait from now on; None for ever."""
        set_timeout(self._socket, timeout_s)

    # Publishing

    def publish(
        self,
        subject: bytes,
        payload: bytes = b"",
        *,
        reply: bytes | None = None,
        headers: bytes | None = None,
    ) -> None:
        """Publish; sent with others, at `flush` at the latest."""
        self._wire.publish(subject, payload, reply, headers)

    def publish_many(self, subject: bytes, payload: bytes, count: int) -> None:
        """Publish one message many times."""
        self._wire.publish_many(subject, payload, count)

    @contextlib.contextmanager
    def publishing_rows(self, *, in_flight: int) -> Iterator[RowPublisher]:
        """Give what publishes rows, up to so many of them without an acknowledgement yet.

        When the block is left in good order, streams have taken all rows; leaving it raises as
        publishing does.
        """
        inbox = self.new_inbox()
        sid = self.subscribe(inbox + b".*")
        publisher = RowPublisher(self._wire, inbox, in_flight, self._payload_bytes_max())
        yield publisher
        publisher.finish()
        self.unsubscribe(sid)

    def publish_members(
        self,
        rows: Rows,
        first: int,
        end: int,
        *,
        batch_id: bytes,
        number: int,
        inbox: bytes | None = None,
    ) -> None:
        """Publish rows as members of an atomic batch, numbered from `number`.

        Nobody answers, or with an `inbox` the server does for each: there, a dot and its number.
        """
        bytes_max = self._payload_bytes_max()
        rows.put_members(self._wire, first, end, batch_id, number, bytes_max, inbox)

    def _payload_bytes_max(self) -> int:
        told = self.info.get("max_payload")
        return told if isinstance(told, int) and told > 0 else PAYLOAD_BYTES_MAX

    def send(self) -> None:
        """Send what has gathered, and do not wait."""
        self._wire.send()

    def flush(self) -> None:
        """Send everything and wait until the server has dealt with it."""
        self._pings += 1
        self._wire.write(b"PING\r\n")
        self._wire.send()
        for message in self._wire.wait_pong(self._pings):
            self._keep(message)

    # Receiving

    def subscribe(
        self, subject: bytes, *, queue: bytes | None = None, max_messages: int = 0
    ) -> bytes:
        """Subscribe; gives the subscription's id."""
        self._next_sid += 1
        sid = b"%d" % self._next_sid
        group = b" " + queue if queue is not None else b""
        self._wire.write(b"SUB %b%b %b\r\n" % (subject, group, sid))
        if max_messages:
            self._wire.write(b"UNSUB %b %d\r\n" % (sid, max_messages))
        self._kept[sid] = deque()
        self._wire.send()
        return sid

    def unsubscribe(self, sid: bytes) -> None:
        """End a subscription."""
        self._wire.write(b"UNSUB %b\r\n" % sid)
        self._wire.send()
        self._kept_count -= len(self._kept.pop(sid, ()))

    def next_message(self, sid: bytes) -> Message:
        """Wait for the next message of a subscription; raises TimeoutError, ConnectionError."""
        kept = self._kept[sid]
        if kept:
            self._kept_count -= 1
            return kept.popleft()
        while True:
            message = self._wire.next_message()
            if message.sid == sid:
                return message
            self._keep(message)

    def next_of_any(self) -> Message:
        """Wait for the next message of any subscription; those that were kept come first."""
        for sid, kept in self._kept.items():
            if kept:
                return self.next_message(sid)
        return self._wire.next_message()

    def count_messages(self, count: int, *, end_sid: bytes = b"") -> int:
        """Let `count` messages pass, or those before one of `end_sid`; give how many passed."""
        return self._wire.count_messages(count, end_sid)

    def collect(
        self, builder: ColumnBuilder, sid: bytes, last_seq: int, *, rows_max: int, bytes_max: int
    ) -> tuple[Message | None, bool]:
        """Add what a JetStream consumer delivers to a subscription to columns.

        Gives a status where one came, and whether the message `last_seq` was reached.
        """
        while True:
            other, is_last = collect(self._wire, builder, sid, last_seq, rows_max, bytes_max)
            if other is None or other.sid == sid:
                return other, is_last
            self._keep(other)

    def _keep(self, message: Message) -> None:
        kept = self._kept.get(message.sid)
        if kept is None:
            return
        if self._kept_count >= KEPT_MESSAGES_MAX:
            raise UsageError(f"more than {KEPT_MESSAGES_MAX} messages that nobody reads")
        self._kept_count += 1
        kept.append(message)

    # Requests

    def request(
        self, subject: bytes, payload: bytes = b"", *, headers: bytes | None = None
    ) -> Message:
        """Publish a request and wait for its first answer; raises TimeoutError."""
        return self.next_answer(self.begin_request(subject, payload, headers=headers))

    def begin_request(
        self, subject: bytes, payload: bytes = b"", *, headers: bytes | None = None
    ) -> bytes:
        """Publish a request; gives the subject that its answers come to."""
        if len(self._outstanding) >= KEPT_MESSAGES_MAX:
            raise UsageError(f"more than {KEPT_MESSAGES_MAX} requests whose answers nobody reads")
        reply = self.new_inbox()
        self._outstanding[reply] = None
        self.publish(subject, payload, reply=reply, headers=headers)
        self._wire.send()
        return reply

    def next_answer(self, reply: bytes) -> Message:
        """Wait for the next answer to a request; raises TimeoutError.

        Servers answer in the order that suits them: the first answer to each other request that
        is outstanding is kept for its own call.
        """
        early = self._outstanding.pop(reply, None)
        if early is not None:
            return early
        while True:
            message = self.next_message(self._inbox_sid)
            if message.subject == reply:
                return message
            if self._outstanding.get(message.subject, message) is None:
                self._outstanding[message.subject] = message

    def pull(
        self, stream: bytes, consumer: bytes, batch: int, *, expires_s: float = 5.0, **more: object
    ) -> list[Message]:
        """Fetch up to `batch` messages of a JetStream consumer, fewer where no more come in time.

        Each is acknowledged by publishing to its `reply`. `more` are other fields of the request,
        as `group`. Raises RefusedByServer where there is no such consumer, or it is not to be
        pulled from.
        """
        wish = json.dumps({"batch": batch, "expires": int(expires_s * 1e9)} | more).encode()
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%b.%b" % (stream, consumer)
        # Messages come under their own subjects: only the subscription tells what they are for.
        inbox = self.new_inbox() + b".pull"
        sid = self.subscribe(inbox)
        self.publish(subject, wish, reply=inbox)
        self._wire.send()
        fetched: list[Message] = []
        try:
            while len(fetched) < batch:
                message = self.next_message(sid)
                if message.subject == inbox:
                    # A status instead of a message: the server has no more for this request.
                    status = status_of(message)
                    if status.startswith(("404", "408")):
                        break
                    raise RefusedByServer(status)
                fetched.append(message)
        finally:
            self.unsubscribe(sid)
        return fetched

    def new_inbox(self) -> bytes:
        """Give a fresh reply subject that this client listens to."""
        if not self._inbox:
            # Nobody else shall have it, on any machine, nor guess it.
            self._inbox = b"_INBOX." + secrets.token_hex(11).encode()
            self._inbox_sid = self.subscribe(self._inbox + b".*")
        self._requests += 1
        return b"%b.%d" % (self._inbox, self._requests)

    def answer_many(self, end_sid: bytes) -> int:
        """Answer requests with their own bytes until `end_sid` has a message; give how many."""
        return self._wire.answer_many(end_sid)

    def request_many(
        self,
        subject: bytes,
        payload: bytes,
        in_flight: int,
        latencies_ns: array[int],
        *,
        spread: int = 0,
        groups: int = 1,
    ) -> None:
        """Send a request for each place of `latencies_ns`, and put there how long it took.

        With `spread` each subject ends in a number below it; with `groups` besides, in the number
        of one of so many groups, a dot and the number.
        """
        inbox = self.new_inbox()
        self.subscribe(inbox + b".*")
        self._wire.request_many(subject, inbox, payload, in_flight, latencies_ns, spread, groups)

    def fetch_many(
        self,
        stream: bytes,
        consumer: bytes,
        count: int,
        *,
        batch: int,
        in_flight: int = 1,
        ack: bytes = b"",
        expires_s: float = 60.0,
    ) -> None:
        """Let `count` messages of a JetStream consumer pass, `batch` a pull, and acknowledge them.

        So many pulls wait at a time; without `ack` nothing is acknowledged. Raises
        RefusedByServer where the server says anything but messages.
        """
        inbox = self.new_inbox() + b".pull"
        sid = self.subscribe(inbox)
        whole = count - count % batch
        for part, size in ((whole, batch), (count - whole, count - whole)):
            wish = json.dumps({"batch": size, "expires": int(expires_s * 1e9)}).encode()
            ask = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.%b %b %d\r\n%b\r\n" % (
                stream,
                consumer,
                inbox,
                len(wish),
                wish,
            )
            self._wire.consume_many(part, ack, ask, size, in_flight)
        self.unsubscribe(sid)

    def pass_pushed(self, count: int, *, ack: bytes = b"") -> None:
        """Let `count` messages pass that a JetStream consumer pushes to us; flow is answered."""
        self._wire.consume_many(count, ack)

    @property
    def errors(self) -> list[bytes]:
        """What the server complained of."""
        return list(self._wire.errors)

    def close(self) -> None:
        """Close; what was not flushed may be lost."""
        self._socket.close()

    def __enter__(self) -> Client:
        """Give the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
