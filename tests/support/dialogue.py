"""A connection that speaks the protocol line by line, for tests of either server."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from typing import Any

WAIT_S = 30


class Dialogue:
    """One connection to a port of this machine.

    With `tls` the handshake comes after INFO, or before it with `is_first`.
    """

    def __init__(
        self, port: int, *, tls: ssl.SSLContext | None = None, is_first: bool = False
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""
        if tls is not None and is_first:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self.info: dict[str, Any] = json.loads(self.next().removeprefix("INFO "))
        if tls is not None and not is_first:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")

    @property
    def certificate_serial(self) -> str:
        """The number of the server's certificate."""
        assert isinstance(self._socket, ssl.SSLSocket)
        shown = self._socket.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])

    def login(self, **fields: Any) -> list[str]:
        """Send CONNECT; give the lines that answer it and a PING."""
        quiet = {"verbose": False, "pedantic": False, "protocol": 0}
        self.send(f"CONNECT {json.dumps(quiet | fields)}")
        return self.answers()

    def send(self, *lines: str) -> None:
        """Send lines; those that meet a closed connection are lost."""
        try:
            self._socket.sendall("".join(f"{line}\r\n" for line in lines).encode())
        except OSError:
            return

    def line(self) -> str | None:
        """Return the next line; None where the connection is closed."""
        while b"\n" not in self._left:
            try:
                more = self._socket.recv(65_536)
            except ConnectionError:
                more = b""
            if not more:
                return None
            self._left += more
        found, self._left = self._left.split(b"\n", 1)
        return found.decode().strip()

    def next(self) -> str:
        """Return the next line that is no PING; "closed" where the connection is closed."""
        while (found := self.line()) == "PING":
            self.send("PONG")
        return "closed" if found is None else found

    def answers(self) -> list[str]:
        """Return the lines that came in answer to all that was sent."""
        self.send("PING")
        found = []
        while (line := self.next()) not in ("PONG", "closed"):
            found.append(line)
        return found if line == "PONG" else [*found, "closed"]

    def has_nothing(self) -> bool:
        """Return True if nothing has come by now."""
        self._socket.setblocking(False)
        try:
            self._left += self._socket.recv(65_536)
        except (BlockingIOError, ssl.SSLWantReadError):
            return not self._left
        finally:
            self._socket.settimeout(WAIT_S)
        return False

    def end_tls(self, *lines: str) -> None:
        """Send lines and the end of TLS in one packet; wait until the server has ended it too."""
        assert isinstance(self._socket, ssl.SSLSocket)
        # The kernel keeps what is smaller than a packet for a fifth of a second.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        self.send(*lines)
        # What the server was just sending may cross our end of TLS.
        with contextlib.suppress(ssl.SSLError):
            self._socket = self._socket.unwrap()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Dialogue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
