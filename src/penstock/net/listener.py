"""Listening sockets: accept what comes, without waiting, and hand each socket on.

When the process runs out of file descriptors or memory, whoever comes waits in the kernel's queue:
accepting pauses, longer each time, and says so in the log. Those who are in are served meanwhile.

One thread: the event loop's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

ACCEPTS_PER_TURN = 64
"""Connections taken before others get their turn."""

PAUSE_S_MIN = 0.01
PAUSE_S_MAX = 1.0
"""How long nobody is accepted when there is no room, at first and at most: as in the reference."""

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Listener:
    """One listening socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        host: str,
        accept: Callable[[socket.socket], None],
        log: Callable[[str, str], None],
    ) -> None:
        """Take over a socket that listens on a host."""
        self._loop = loop
        self._accept = accept
        self._log = log
        self._pause_s = PAUSE_S_MIN
        self._socket = listening
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
                self._cannot_accept(error)
                return
            self._pause_s = PAUSE_S_MIN
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accept(accepted)

    def _cannot_accept(self, error: OSError) -> None:
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        told = f"accept tcp {place}: accept4: {os.strerror(error.errno or 0).lower()}"
        if error.errno not in _EXHAUSTED:
            self._log("ERR", f"Client Accept error: {told}")
            return
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, PAUSE_S_MAX)
        sleeping = f"sleeping {pause_s * 1000:.0f}ms"
        self._log("ERR", f"Temporary Client Accept Error({told}), {sleeping}")
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(pause_s, self._resume)

    def _resume(self) -> None:
        if self._open:
            self.start()

    def close(self) -> None:
        """Stop listening; closing twice does nothing."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
