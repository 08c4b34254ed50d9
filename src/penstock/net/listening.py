"""Sockets that listen, bound when they are needed or ahead of that.

A server binds its ports before it has loaded the greater part of itself: whoever connects meanwhile
waits in the kernel's queue instead of being turned away, and is greeted when the server is ready.
Binding ahead never fails; what cannot be had then is tried again when it is needed, and told by
whoever needs it.

Loads next to nothing. One thread: the one that starts the server.
"""

from __future__ import annotations

import contextlib
import errno
import socket

BACKLOG = 4096
"""Connections that wait in the kernel to be accepted, as far as it allows. When there are more, a
client of the burst tries again only after a second."""

PORT_MAX = 65_535


class ListeningSockets:
    """The listening sockets of one server, until each is taken."""

    def __init__(self) -> None:
        self._ahead: dict[tuple[str, int], socket.socket] = {}

    def bind_ahead(self, host: str, port: int) -> None:
        """Listen on a port that will be taken later; nothing for any port, which nobody knows."""
        if 0 < port <= PORT_MAX and (host, port) not in self._ahead:
            with contextlib.suppress(OSError):
                self._ahead[host, port] = _bound(host, port)

    def take(self, host: str, port: int) -> socket.socket:
        """Give a socket that listens; port 0 or less means any. Raises OSError."""
        ahead = self._ahead.pop((host, port), None)
        return ahead if ahead is not None else _bound(host, max(port, 0))

    def close(self) -> None:
        """Close what nobody took."""
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
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
