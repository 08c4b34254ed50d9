"""A small blocking client for tests: asks, waits, and can be seen through at a glance.

with reference_server(store_dir=folder) as server, NatsClient(server.port) as client:
    client.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
"""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as it arrived."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes


class NatsClient:
    """A connection that asks and waits for the answer; one request at a time."""

    def __init__(self, port: int, **fields: Any) -> None:
        """`fields` are told in CONNECT besides the usual ones."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._stream = self._socket.makefile("rb")
        info = json.loads(self._stream.readline().removeprefix(b"INFO "))
        self.server_version: str = info["version"]
        usual = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self._send(b"CONNECT " + json.dumps(usual | fields).encode() + b"\r\n")
        self._subscription_ids = itertools.count(1)
        self.subscribe("_IN.>")

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def subscribe(self, subject: str) -> None:
        """Add a subscription; what arrives is taken with `next_delivery`."""
        self._send(f"SUB {subject} {next(self._subscription_ids)}\r\n".encode())

    def publish(
        self, subject: str, payload: bytes = b"", *, headers: bytes = b"", reply: str = ""
    ) -> None:
        """Publish without waiting; `headers` is the whole header block."""
        target = f"{subject} {reply} " if reply else f"{subject} "
        if headers:
            sizes = f"{len(headers)} {len(headers) + len(payload)}"
            self._send(_bytes(f"HPUB {target}{sizes}\r\n") + headers + payload + b"\r\n")
        else:
            self._send(_bytes(f"PUB {target}{len(payload)}\r\n") + payload + b"\r\n")

    def request(self, subject: str, payload: bytes = b"", *, headers: bytes = b"") -> Delivery:
        """Publish and wait for the first answer."""
        self.publish(subject, payload, headers=headers, reply="_IN.reply")
        return self.next_delivery()

    def next_delivery(self) -> Delivery:
        """Wait for the next message of any subscription."""
        while True:
            words = self._stream.readline().decode().split()
            if not words:
                raise ConnectionError("the server closed the connection")
            if words[0] == "PING":
                self._send(b"PONG\r\n")
            elif words[0] == "-ERR":
                raise ConnectionError(" ".join(words))
            elif words[0] in ("MSG", "HMSG"):
                return self._take_delivery(words)

    def _take_delivery(self, words: list[str]) -> Delivery:
        size = int(words[-1])
        headers_size = int(words[-2]) if words[0] == "HMSG" else 0
        fixed = 5 if words[0] == "HMSG" else 4
        data = self._stream.read(size + 2)
        reply = words[3] if len(words) > fixed else ""
        return Delivery(words[1], reply, data[:headers_size], data[headers_size:-2])

    def api(self, name: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call `$JS.API.<name>`; an error in the answer raises."""
        payload = b"" if document is None else json.dumps(document).encode()
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{name}", payload).payload)
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _bytes(line: str) -> bytes:
    # Subjects that are no UTF-8 stand in a text as Python writes such.
    return line.encode("utf-8", "surrogateescape")
