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

BACKLOG = 4096
"""Connections that wait in the kernel to be accepted, as far as it allows. When there are more, a
client of the burst tries again only after a second."""

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
        host: str,
        port: int,
        accept: Callable[[socket.socket], None],
        log: Callable[[str, str], None],
    ) -> None:
        """Bind and listen; port 0 or less means any. Raises OSError."""
        self._loop = loop
        self._accept = accept
        self._log = log
        self._pause_s = PAUSE_S_MIN
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
