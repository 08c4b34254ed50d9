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
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._socket.bind((host, max(port, 0)))
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise
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
