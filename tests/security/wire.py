"""One connection to a real server, as far as its answer to CONNECT and to what is sent next."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from typing import Any


class Wire:
    """A connection that was greeted; `info` is the greeting.

    `credentials` makes the CONNECT's fields from the nonce; `tls` wraps the socket first.
    """

    def __init__(
        self,
        port: int,
        credentials: Callable[[str], dict[str, Any]] = lambda nonce: {},
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        # Many small lines, each of which somebody waits for.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self.info: dict[str, Any] = json.loads(self._stream.readline()[5:])
        if tls is not None:
            self._stream.close()
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
            self._stream = self._socket.makefile("rb")
        connect = {"verbose": False, "pedantic": False, "protocol": 0}
        self.send(f"CONNECT {json.dumps(connect | credentials(self.info.get('nonce', '')))}")

    def send(self, line: str) -> None:
        """Send a line; one that meets a closed connection is lost."""
        try:
            self._socket.sendall(line.encode() + b"\r\n")
        except OSError:
            return

    def answers(self) -> list[str]:
        """Return the lines that came in answer to all that was sent; `closed` ends a closed one."""
        self.send("PING")
        lines: list[str] = []
        while True:
            try:
                line = self._stream.readline().decode().strip()
            except OSError:
                line = ""
            if not line:
                return [*lines, "closed"]
            if line == "PONG":
                return lines
            if line == "PING":
                self.send("PONG")
                continue
            lines.append(line)
            if line.startswith("MSG "):
                self._stream.read(int(line.split()[-1]) + 2)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
