"""The small blocking client: connect, publish, subscribe, request, flush.

    with Client.connect("nats://127.0.0.1:4222") as client:
        inbox = client.subscribe(b"orders.>")
        client.publish(b"orders.1", b"hello")
        print(client.next_message(inbox).payload)

One thread at a time. Messages of several subscriptions are told apart by their subscription id;
those of another than the one waited for are kept, up to a bound.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import unquote, urlsplit

from penstock.client.wire import Message, Wire
from penstock.errors import AuthorizationError, FormatError, UsageError

KEPT_MESSAGES_MAX = 1_000_000
"""Messages kept for subscriptions that nobody waits on right now; beyond it the client refuses to
go on, because its user reads too slowly and memory must not pay for that."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and with what to log in."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"Address({self.host}:{self.port})"


def parse_url(url: str) -> Address:
    """Read `nats://[user[:password]@]host[:port]`; a bare host is fine. Raises UsageError."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if parts.scheme not in ("nats", "tcp"):
        raise UsageError(f"not a NATS address: {parts.scheme}:// (nats:// is)")
    try:
        port = parts.port or 4222
    except ValueError:
        raise UsageError(f"not a port in {parts.hostname}") from None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    token = user if user and parts.password is None else ""
    return Address(parts.hostname or "127.0.0.1", port, "" if token else user, password, token)


class Client:
    """A connection to a server; see the module."""

    def __init__(self, sock: socket.socket, info: dict[str, object], wire: Wire) -> None:
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

    @classmethod
    def connect(
        cls, url: str = "nats://127.0.0.1:4222", *, name: str = "penstock", timeout_s: float = 10.0
    ) -> Client:
        """Connect and log in; raises OSError or a PenstockError."""
        address = parse_url(url)
        sock = socket.create_connection((address.host, address.port), timeout=timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _use_kernel_timeout(sock, timeout_s)
            wire = Wire(sock.fileno())
            info = _log_in(wire, address, name)
        except ConnectionError as error:
            sock.close()
            if "uthorization" in str(error):
                raise AuthorizationError(str(error)) from None
            raise
        except BaseException:
            sock.close()
            raise
        return cls(sock, info, wire)

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

    def count_messages(self, count: int) -> int:
        """Let `count` messages of any subscription pass, and make no objects of them."""
        return self._wire.count_messages(count)

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
        reply = self.new_inbox()
        self.publish(subject, payload, reply=reply, headers=headers)
        self._wire.send()
        while True:
            message = self.next_message(self._inbox_sid)
            if message.subject == reply:
                return message

    def new_inbox(self) -> bytes:
        """Give a fresh reply subject that this client listens to."""
        if not self._inbox:
            self._inbox = b"_INBOX.%x%x" % (id(self), self._socket.getsockname()[1])
            self._inbox_sid = self.subscribe(self._inbox + b".*")
        self._requests += 1
        return b"%b.%d" % (self._inbox, self._requests)

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


def _log_in(wire: Wire, address: Address, name: str) -> dict[str, object]:
    # The server's INFO, once the server has answered a PING behind our CONNECT.
    try:
        info = json.loads(wire.wait_info())
    except ValueError as error:
        raise FormatError(f"the server's INFO is not JSON: {error}") from None
    if not isinstance(info, dict):
        raise FormatError("the server's INFO is not a JSON object")
    if info.get("tls_required"):
        raise UsageError(f"{address.host}:{address.port} wants TLS, which this client lacks")
    options: dict[str, object] = {
        "verbose": False,
        "pedantic": False,
        "lang": "python-penstock",
        "version": "0.1",
        "name": name,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "echo": True,
    }
    if address.token:
        options["auth_token"] = address.token
    elif address.user:
        options |= {"user": address.user, "pass": address.password}
    wire.write(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
    wire.send()
    wire.wait_pong(1)
    return info


def _use_kernel_timeout(sock: socket.socket, timeout_s: float) -> None:
    # The compiled side reads the descriptor itself, so the timeout must be the kernel's.
    sock.settimeout(None)
    seconds, micros = int(timeout_s), int(timeout_s % 1 * 1_000_000)
    value = seconds.to_bytes(8, "little") + micros.to_bytes(8, "little")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
