"""The system's log as a place for log lines: on this machine, or on another one.

    <29>Nov 16 06:20:51 nats-server[4711]: Server is ready            this machine
    <5>2026-11-16T06:20:51Z host nats-server[4711]: Server is ready   udp://, tcp://, unix://

Words and numbers are those of the reference server. Writing never waits: what the other side does
not take is lost, and a connection that broke is opened anew with the next line.

One thread: the event loop's. Opening may wait for a name and for a connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from penstock.config.quoting import quoted
from penstock.errors import CannotLog

_TAG = "nats-server"
_DAEMON = 3 << 3
_SEVERITIES = {"FTL": 2, "ERR": 3, "WRN": 4, "INF": 5, "TRC": 5, "DBG": 7}
_LOCAL_PLACES = ("/dev/log", "/var/run/syslog", "/var/run/log")
_OPEN_S_MAX = 5.0
"""How long the start of a server waits for another machine's log."""


class SystemLog:
    """An open way to a system's log; see the module."""

    def __init__(
        self, opened: socket.socket, *, address: Any, facility: int, is_local: bool
    ) -> None:
        self._socket = opened
        self._address = address
        self._facility = facility
        self._is_local = is_local
        self._host = socket.gethostname()
        self._pid = os.getpid()

    @classmethod
    def local(cls) -> SystemLog:
        """Open that of this machine; raises CannotLog."""
        for place in _LOCAL_PLACES:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                with contextlib.suppress(OSError):
                    opened = _connected(socket.AF_UNIX, kind, place)
                    return cls(opened, address=place, facility=_DAEMON, is_local=True)
        raise CannotLog('error connecting to syslog: "Unix syslog delivery error"')

    @classmethod
    def remote(cls, url: str) -> SystemLog:
        """Open the one at udp://host:port, tcp://host:port or unix://path; raises CannotLog."""
        try:
            split = urlsplit(url)
            port = split.port
        except ValueError as error:
            raise CannotLog(str(error)) from None
        try:
            if split.scheme == "unix":
                opened = _connected(socket.AF_UNIX, socket.SOCK_STREAM, split.path)
                return cls(opened, address=split.path, facility=0, is_local=True)
            if split.scheme in ("udp", "tcp"):
                opened, address = _dialled(split.scheme, split.hostname or "", port)
                return cls(opened, address=address, facility=0, is_local=False)
        except OSError as error:
            why = f"dial {split.scheme} {split.netloc or split.path}: {error.strerror or error}"
            raise CannotLog(f"error connecting to syslog: {quoted(why.lower())}") from None
        raise CannotLog(f"error invalid network type: {quoted(split.scheme)}")

    def write(self, level: str, text: str, now_ns: int) -> None:
        """Send one line, or lose it."""
        priority = self._facility | _SEVERITIES[level]
        parts = time.localtime(now_ns // 10**9)
        if self._is_local:
            where = f"{time.strftime('%b', parts)} {parts.tm_mday:2d} {_clock(parts)}"
        else:
            where = f"{time.strftime('%Y-%m-%dT', parts)}{_clock(parts)}{_zone(parts)} {self._host}"
        line = f"<{priority}>{where} {_TAG}[{self._pid}]: {text}\n".encode()
        try:
            sent = self._socket.send(line)
        except BlockingIOError:
            return
        except OSError:
            sent = 0
        if sent < len(line):
            # Half a line would run into the next one.
            self._reopen()

    def _reopen(self) -> None:
        family, kind = self._socket.family, self._socket.type
        self._socket.close()
        self._socket = socket.socket(family, kind)
        self._socket.setblocking(False)
        self._socket.connect_ex(self._address)

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()


def _connected(family: int, kind: int, address: Any) -> socket.socket:
    made = socket.socket(family, kind)
    try:
        made.settimeout(_OPEN_S_MAX)
        made.connect(address)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _dialled(scheme: str, host: str, port: int | None) -> tuple[socket.socket, Any]:
    if port is None:
        raise OSError("missing port in address")
    kind = socket.SOCK_DGRAM if scheme == "udp" else socket.SOCK_STREAM
    family, _, _, _, address = socket.getaddrinfo(host or "localhost", port, type=kind)[0]
    return _connected(family, kind, address), address


def _clock(parts: time.struct_time) -> str:
    return time.strftime("%H:%M:%S", parts)


def _zone(parts: time.struct_time) -> str:
    minutes = (parts.tm_gmtoff or 0) // 60
    if not minutes:
        return "Z"
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
