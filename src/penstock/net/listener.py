"""Listening sockets: bound ahead of need, and what comes to them accepted without waiting.

A server binds its ports before it has loaded the greater part of itself: a client that connects
meanwhile waits in the kernel's queue instead of being turned away, and is greeted when the server
is ready. Binding ahead never fails: a port that could not be bound is tried again when it is taken.

When the process runs out of file descriptors or memory, accepting pauses, longer each time, and the
log says so; new clients wait in the kernel's queue, and connected ones are served meanwhile.

Loads next to nothing. One thread: the event loop's, and before it the one that starts the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable

from penstock.limits import ACCEPT_PAUSE_S_MAX, ACCEPT_PAUSE_S_MIN, ACCEPTS_PER_TURN, LISTEN_BACKLOG

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
        self._pause_s = ACCEPT_PAUSE_S_MIN
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
            self._pause_s = ACCEPT_PAUSE_S_MIN
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accept(accepted)

    def _cannot_accept(self, error: OSError) -> None:
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        told = f"accept tcp {place}: accept4: {os.strerror(error.errno or 0).lower()}"
        if error.errno not in _EXHAUSTED:
            self._log("ERR", f"Client Accept error: {told}")
            return
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, ACCEPT_PAUSE_S_MAX)
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


PORT_MAX = 65_535
"""A size of the protocol: ports have 16 bits."""


class ListeningSockets:
    """The listening sockets of one server, until each is taken."""

    def __init__(self) -> None:
        self._ahead: dict[tuple[str, int], socket.socket] = {}

    def bind_ahead(self, host: str, port: int) -> None:
        """Listen on a port that will be taken later; do nothing for port 0, which means any."""
        if 0 < port <= PORT_MAX and (host, port) not in self._ahead:
            with contextlib.suppress(OSError):
                self._ahead[host, port] = _bound(host, port)

    def take(self, host: str, port: int) -> socket.socket:
        """Return a listening socket; port 0 or less means any. Raise OSError."""
        ahead = self._ahead.pop((host, port), None)
        return ahead if ahead is not None else _bound(host, max(port, 0))

    def close(self) -> None:
        """Close the sockets that were not taken."""
        for listening in self._ahead.values():
            listening.close()
        self._ahead.clear()


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
        listening.listen(LISTEN_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
