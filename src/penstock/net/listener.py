"""Listening sockets: accept what comes, without waiting, and hand each socket on.

One thread: the event loop's. When the process runs out of file descriptors, accepting pauses for a
moment instead of spinning.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
"""Connections taken before others get their turn."""

EXHAUSTED_PAUSE_S = 0.1


class Listener:
    """One listening socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        accept: Callable[[socket.socket], None],
    ) -> None:
        """Bind and listen; port 0 or less means any. Raises OSError."""
        self._loop = loop
        self._accept = accept
        self._socket = _bound(host, max(port, 0))
        self._socket.setblocking(False)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._open = True

    def start(self) -> None:
        """Begin to accept."""
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._loop.remove_reader(self._socket.fileno())
                    self._loop.call_later(EXHAUSTED_PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accept(accepted)

    def _resume(self) -> None:
        if self._open:
            self.start()

    def close(self) -> None:
        """Stop listening; closing twice does nothing."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    if host in ("0.0.0.0", ""):
        # Every address means those of IPv6 too, where the machine has it: so says Go, and clients
        # that look up "localhost" may find ::1 first.
        try:
            return _listening(socket.AF_INET6, "::", port)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    return _listening(socket.AF_INET6 if ":" in host else socket.AF_INET, host, port)


def _listening(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
