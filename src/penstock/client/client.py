"""The small blocking client: connect, publish, subscribe, request, flush.

    with Client.connect("nats://127.0.0.1:4222") as client:
        inbox = client.subscribe(b"orders.>")
        client.publish(b"orders.1", b"hello")
        print(client.next_message(inbox).payload)

Messages of several subscriptions are told apart by their subscription id; those of another than the
one waited for are kept, up to a bound.

Thread: one at a time.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from penstock.client.columns import collect
from penstock.client.connect import (
    ClientTls,
    Connected,
    ConnectOptions,
    open_wire,
    set_timeout,
)
from penstock.client.credentials import DEFAULT_PORT, NOBODY, Credentials, parse_url
from penstock.client.row_publisher import RowPublisher, Rows
from penstock.client.wire import ReceivedMessage, Wire
from penstock.errors import UsageError
from penstock.format.columns import ColumnBuilder
from penstock.limits import CLIENT_KEPT_MESSAGES_MAX, PAYLOAD_BYTES_MAX

DEFAULT_URL = f"nats://127.0.0.1:{DEFAULT_PORT}"


class Client:
    """A connection to a server; see the module."""

    def __init__(self, sock: Connected, wire: Wire, info: dict[str, Any]) -> None:
        """Use `connect`."""
        self.info = info
        self._socket = sock
        self.wire = wire
        self._pings = 1
        self._next_sid = 0
        self._kept: dict[bytes, deque[ReceivedMessage]] = {}
        self._kept_count = 0
        self._inbox = b""
        self._inbox_sid = b""
        self._requests = 0
        self._outstanding: dict[bytes, ReceivedMessage | None] = {}

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
        """Connect and log in; `credentials`, if given, replace those of the URL.

        Raise CannotConnect, AuthorizationError, UsageError, FormatError, TimeoutError.
        """
        return cls(*open_wire(parse_url(url), ConnectOptions(credentials, tls, name, timeout_s)))

    def set_timeout(self, timeout_s: float | None) -> None:
        """Set how long a read or a write may wait from now on; None for ever."""
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
        """Publish a message; it is sent with others, at `flush` at the latest."""
        self.wire.publish(subject, payload, reply, headers)

    @contextlib.contextmanager
    def publishing_rows(self, *, in_flight: int) -> Iterator[RowPublisher]:
        """Return a publisher of rows, with up to `in_flight` of them unacknowledged.

        When the block ends without an error, streams have stored all rows. Leaving it raises as
        `RowPublisher.publish` does.
        """
        inbox = self.new_inbox()
        sid = self.subscribe(inbox + b".*")
        publisher = RowPublisher(self.wire, inbox, in_flight, self._payload_bytes_max())
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

        The server does not answer; with an `inbox` it answers each to the inbox, a dot and its
        number.
        """
        bytes_max = self._payload_bytes_max()
        rows.put_members(self.wire, first, end, batch_id, number, bytes_max, inbox)

    def _payload_bytes_max(self) -> int:
        told = self.info.get("max_payload")
        return told if isinstance(told, int) and told > 0 else PAYLOAD_BYTES_MAX

    def send(self) -> None:
        """Send what has gathered, without waiting for the server."""
        self.wire.send()

    def flush(self) -> None:
        """Send everything and wait until the server has processed it."""
        self._pings += 1
        self.wire.write(b"PING\r\n")
        self.wire.send()
        for message in self.wire.wait_pong(self._pings):
            self._keep(message)

    # Receiving

    def subscribe(
        self, subject: bytes, *, queue: bytes | None = None, max_messages: int = 0
    ) -> bytes:
        """Subscribe; return the id of the subscription."""
        self._next_sid += 1
        sid = b"%d" % self._next_sid
        group = b" " + queue if queue is not None else b""
        self.wire.write(b"SUB %b%b %b\r\n" % (subject, group, sid))
        if max_messages:
            self.wire.write(b"UNSUB %b %d\r\n" % (sid, max_messages))
        self._kept[sid] = deque()
        self.wire.send()
        return sid

    def unsubscribe(self, sid: bytes) -> None:
        """End a subscription."""
        self.wire.write(b"UNSUB %b\r\n" % sid)
        self.wire.send()
        self._kept_count -= len(self._kept.pop(sid, ()))

    def next_message(self, sid: bytes) -> ReceivedMessage:
        """Wait for the next message of a subscription; raise TimeoutError, ConnectionError."""
        kept = self._kept[sid]
        if kept:
            self._kept_count -= 1
            return kept.popleft()
        while True:
            message = self.wire.next_message()
            if message.sid == sid:
                return message
            self._keep(message)

    def next_of_any(self) -> ReceivedMessage:
        """Wait for the next message of any subscription; kept ones come first."""
        for sid, kept in self._kept.items():
            if kept:
                return self.next_message(sid)
        return self.wire.next_message()

    def collect(
        self, builder: ColumnBuilder, sid: bytes, last_seq: int, *, rows_max: int, bytes_max: int
    ) -> tuple[ReceivedMessage | None, bool]:
        """Add what a JetStream consumer delivers to a subscription to columns.

        Return a status if one came, and whether the message `last_seq` was reached.
        """
        while True:
            other, is_last = collect(self.wire, builder, sid, last_seq, rows_max, bytes_max)
            if other is None or other.sid == sid:
                return other, is_last
            self._keep(other)

    def _keep(self, message: ReceivedMessage) -> None:
        kept = self._kept.get(message.sid)
        if kept is None:
            return
        if self._kept_count >= CLIENT_KEPT_MESSAGES_MAX:
            raise UsageError(f"more than {CLIENT_KEPT_MESSAGES_MAX} messages that nobody reads")
        self._kept_count += 1
        kept.append(message)

    # Requests

    def request(
        self, subject: bytes, payload: bytes = b"", *, headers: bytes | None = None
    ) -> ReceivedMessage:
        """Publish a request and wait for its first answer; raise TimeoutError."""
        return self.next_answer(self.begin_request(subject, payload, headers=headers))

    def begin_request(
        self, subject: bytes, payload: bytes = b"", *, headers: bytes | None = None
    ) -> bytes:
        """Publish a request; return the subject that its answers come to."""
        if len(self._outstanding) >= CLIENT_KEPT_MESSAGES_MAX:
            raise UsageError(
                f"more than {CLIENT_KEPT_MESSAGES_MAX} requests whose answers nobody reads"
            )
        reply = self.new_inbox()
        self._outstanding[reply] = None
        self.publish(subject, payload, reply=reply, headers=headers)
        self.wire.send()
        return reply

    def next_answer(self, reply: bytes) -> ReceivedMessage:
        """Wait for the next answer to a request; raise TimeoutError.

        Servers answer in any order: the first answer to each other outstanding request is kept for
        its own call.
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

    def new_inbox(self) -> bytes:
        """Return a new reply subject that this client is subscribed to."""
        if not self._inbox:
            # Unique on all machines, and not to be guessed.
            self._inbox = b"_INBOX." + secrets.token_hex(11).encode()
            self._inbox_sid = self.subscribe(self._inbox + b".*")
        self._requests += 1
        return b"%b.%d" % (self._inbox, self._requests)

    @property
    def errors(self) -> list[bytes]:
        """The errors that the server sent."""
        return list(self.wire.errors)

    def close(self) -> None:
        """Close the connection; what was not flushed may be lost."""
        self._socket.close()

    def __enter__(self) -> Client:
        """Return the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()
