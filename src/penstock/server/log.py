"""The server's log: lines in the form and words that people and harnesses know from nats-server.

    [PID] 2026/11/16 00:31:32.474743 [INF] text                       standard error, a file
    <29>Nov 16 06:20:51 nats-server[4711]: Server is ready            syslog of this machine
    <5>2026-11-16T06:20:51Z host nats-server[4711]: Server is ready   udp://, tcp://, unix://

Lines go to standard error, to a file that can be reopened and is rotated at a size limit, or to a
syslog. Words and numbers are those of the reference server.

Invariants: a log that cannot be written stops nothing. Writing never waits: a line that a syslog
does not take is lost, and a broken connection is reopened with the next line. What a client sent
cannot break a line.

Thread: the event loop's. Opening may wait for a name to be resolved and for a connection.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from penstock.clock import Clock
from penstock.errors import CannotLog
from penstock.limits import SYSLOG_OPEN_S_MAX
from penstock.text.quoting import quoted

_TAG = "nats-server"
_DAEMON = 3 << 3
_SEVERITIES = {"FTL": 2, "ERR": 3, "WRN": 4, "INF": 5, "TRC": 5, "DBG": 7}
_LOCAL_PLACES = ("/dev/log", "/var/run/syslog", "/var/run/log")


class SystemLog:
    """An open connection to a syslog; see the module."""

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
        """Open the syslog of this machine; raise CannotLog."""
        for place in _LOCAL_PLACES:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                with contextlib.suppress(OSError):
                    opened = _connected(socket.AF_UNIX, kind, place)
                    return cls(opened, address=place, facility=_DAEMON, is_local=True)
        raise CannotLog('error connecting to syslog: "Unix syslog delivery error"')

    @classmethod
    def remote(cls, url: str) -> SystemLog:
        """Open the syslog at udp://host:port, tcp://host:port or unix://path; raise CannotLog."""
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
        """Send one line; it is lost if the syslog does not take it."""
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
        """Close it."""
        self._socket.close()


def _connected(family: int, kind: int, address: Any) -> socket.socket:
    made = socket.socket(family, kind)
    try:
        made.settimeout(SYSLOG_OPEN_S_MAX)
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


_FILE_MODE = 0o640
"""Not readable for all users: a log names clients, and a trace shows their messages."""


class LogOptions(Protocol):
    """The options of a log."""

    @property
    def log_file(self) -> str:
        """The path of the log file; "" for standard error."""
        ...

    @property
    def syslog(self) -> bool:
        """Whether lines go to this machine's syslog, if there is no file."""
        ...

    @property
    def remote_syslog(self) -> str:
        """The URL of the syslog that lines go to, if there is no file; "" for none."""
        ...

    @property
    def debug(self) -> bool:
        """Whether DBG lines are written."""
        ...

    @property
    def trace(self) -> bool:
        """Whether TRC lines are written."""
        ...

    @property
    def logtime(self) -> bool:
        """Whether lines begin with the time."""
        ...

    @property
    def logtime_utc(self) -> bool:
        """Whether that time is in UTC."""
        ...

    @property
    def log_size_limit(self) -> int:
        """Bytes after which a new file begins; 0 for never."""
        ...

    @property
    def log_max_files(self) -> int:
        """Files that are kept, the current one counted; 0 for all."""
        ...


class LineLog(Protocol):
    """Where a server writes its lines: a `Log`, or the log of the surrounding program."""

    def line(self, level: str, text: str) -> None:
        """Write a line."""
        ...

    def prepare(self, options: LogOptions) -> LogChange:
        """Return the change to other options, with everything opened; raise CannotLog."""
        ...


class LogChange(NamedTuple):
    """A change of the log that is prepared and has no effect yet. Neither function fails."""

    commit: Callable[[], None]
    discard: Callable[[], None]


class _Target(NamedTuple):
    """Where lines go: a file, a syslog, or neither for standard error."""

    file: FileIO | None
    system: SystemLog | None

    def close(self) -> None:
        if self.system is not None:
            self.system.close()
        if self.file is not None:
            with contextlib.suppress(OSError):
                self.file.close()


class Log:
    """Writes log lines; see the module."""

    def __init__(self, clock: Clock, options: LogOptions) -> None:
        """Open the log; raise CannotLog."""
        self._clock = clock
        self._pid = os.getpid()
        self._standard_error = _standard_error()
        self._target = _Target(None, None)
        self._written_bytes = 0
        self._options = options
        self._use(_opened(options))

    @property
    def is_file(self) -> bool:
        """Whether lines go to a file."""
        return self._target.file is not None

    @property
    def debug(self) -> bool:
        """Whether DBG lines are written; if not, callers need not make them."""
        return self._options.debug

    def prepare(self, options: LogOptions) -> LogChange:
        """Return the change to other options, with everything opened; raise CannotLog."""
        is_same = _destination(options) == _destination(self._options)
        opened = None if is_same else _opened(options)

        def commit() -> None:
            self._options = options
            if opened is not None:
                self._use(opened)

        def discard() -> None:
            if opened is not None:
                opened.close()

        return LogChange(commit, discard)

    def configure(self, options: LogOptions) -> None:
        """Change to other options; raise CannotLog and change nothing if that fails."""
        self.prepare(options).commit()

    def reopen(self) -> None:
        """Open the file again, as after it was moved away; raise CannotLog."""
        self._use(_opened(self._options))

    def _use(self, target: _Target) -> None:
        before, self._target = self._target, target
        before.close()
        # A pipe has no end to seek to.
        self._written_bytes = 0
        if target.file is not None and target.file.seekable():
            self._written_bytes = target.file.seek(0, os.SEEK_END)

    def line(self, level: str, text: str) -> None:
        """Write a line; DBG and TRC lines only if the options want them."""
        options = self._options
        if (level == "DBG" and not options.debug) or (level == "TRC" and not options.trace):
            return
        shown = text if text.isprintable() else _printable(text)
        if self._target.system is not None:
            self._target.system.write(level, shown, self._clock.now_ns())
            return
        try:
            self._write(level, shown)
            if self.is_file and 0 < options.log_size_limit < self._written_bytes:
                self._rotate()
        except (OSError, ValueError):
            return

    def _write(self, level: str, text: str) -> None:
        now_ns = self._clock.now_ns()
        stamp = ""
        if self._options.logtime:
            stamp = f"{self._told('%Y/%m/%d %H:%M:%S', now_ns)}.{now_ns // 1000 % 10**6:06d} "
        line = f"[{self._pid}] {stamp}[{level}] {text}\n".encode()
        # Nothing is buffered: what a full disk does not take is lost, and holds no memory.
        (self._target.file or self._standard_error).write(line)
        self._written_bytes += len(line)

    def _told(self, form: str, now_ns: int) -> str:
        as_parts = time.gmtime if self._options.logtime_utc else time.localtime
        return time.strftime(form, as_parts(now_ns // 10**9))

    def _rotate(self) -> None:
        now_ns = self._clock.now_ns()
        path = Path(self._options.log_file)
        kept_as = f"{path}.{self._told('%Y.%m.%d.%H.%M.%S', now_ns)}.{now_ns % 10**9:09d}"
        path.rename(kept_as)
        self.reopen()
        self._write("INF", f"Rotated log, backup saved as {quoted(kept_as)}")
        if self._options.log_max_files > 0:
            self._purge(path)

    def _purge(self, path: Path) -> None:
        """Remove the oldest rotated files, so that `log_max_files` are left."""
        rotated = re.compile(re.escape(path.name) + r"(\.[0-9]{2,4}){6}\.[0-9]{9}")
        old = sorted(each for each in path.parent.iterdir() if rotated.fullmatch(each.name))
        for each in old[: max(len(old) - self._options.log_max_files + 1, 0)]:
            each.unlink(missing_ok=True)
            self._write("INF", f"Purged log file {quoted(each.name)}")

    def close(self) -> None:
        """Close the file or the syslog; later lines go to standard error."""
        self._use(_Target(None, None))


def _destination(options: LogOptions) -> tuple[str, str, bool]:
    return options.log_file, options.remote_syslog, options.syslog


def _opened(options: LogOptions) -> _Target:
    if options.log_file:
        return _Target(_opened_file(options.log_file), None)
    if options.remote_syslog:
        return _Target(None, SystemLog.remote(options.remote_syslog))
    return _Target(None, SystemLog.local() if options.syslog else None)


def _opened_file(path: str) -> FileIO:
    try:
        if not Path(path).exists():
            Path(path).touch(_FILE_MODE)
        return FileIO(path, "a")
    except OSError as error:
        reason = (error.strerror or "failed").lower()
        raise CannotLog(f"error opening file: open {path}: {reason}") from None


def _standard_error() -> FileIO:
    try:
        return FileIO(2, "w", closefd=False)
    except OSError:
        # It was closed before the process began.
        return FileIO(os.devnull, "w")


def _printable(text: str) -> str:
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
