"""The server's log: lines in the form and words that people and harnesses know from nats-server.

    [PID] 2026/11/16 00:31:32.474743 [INF] text

To standard error, to a file that can be reopened and is rotated at a size limit, or to the system's
log. A log that cannot be written stops nothing. A line is a line: what came from a client cannot
break it.

One thread: the event loop's.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from io import FileIO
from pathlib import Path
from typing import Protocol

from penstock.clock import Clock
from penstock.config.quoting import quoted
from penstock.errors import CannotLog
from penstock.server.syslog import SystemLog

_FILE_MODE = 0o640
"""Not for everybody: a log tells who connects, and a trace what they say."""


class LogOptions(Protocol):
    """The options that a log looks at."""

    @property
    def log_file(self) -> str:
        """Where it goes; "" for standard error."""
        ...

    @property
    def syslog(self) -> bool:
        """Whether it goes to the system's log, where there is no file."""
        ...

    @property
    def remote_syslog(self) -> str:
        """The log of another machine that it goes to, where there is no file; "" for none."""
        ...

    @property
    def debug(self) -> bool:
        """Whether DBG lines are wanted."""
        ...

    @property
    def trace(self) -> bool:
        """Whether TRC lines are wanted."""
        ...

    @property
    def logtime(self) -> bool:
        """Whether lines begin with the time."""
        ...

    @property
    def logtime_utc(self) -> bool:
        """Whether that is in UTC."""
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
    """What a server writes its lines to: a `Log`, or that of the program that it is part of."""

    def line(self, level: str, text: str) -> None:
        """Write a line."""
        ...

    def configure(self, options: LogOptions) -> None:
        """Go on as other options say; raises OSError, and then goes on as before."""
        ...


class Log:
    """Writes log lines; see the module."""

    def __init__(self, clock: Clock, options: LogOptions) -> None:
        """Open it; raises CannotLog."""
        self._clock = clock
        self._pid = os.getpid()
        self._standard_error = _standard_error()
        self._file: FileIO | None = None
        self._system: SystemLog | None = None
        self._written_bytes = 0
        self._options = options
        self._open()

    @property
    def is_file(self) -> bool:
        """Tell whether it goes to a file."""
        return self._file is not None

    @property
    def debug(self) -> bool:
        """Tell whether DBG lines are written, so that none need be made in vain."""
        return self._options.debug

    def configure(self, options: LogOptions) -> None:
        """Go on as other options say; raises CannotLog, and then goes on as before."""
        before = self._options
        self._options = options
        if _place(options) != _place(before):
            try:
                self._open()
            except CannotLog:
                self._options = before
                raise

    def reopen(self) -> None:
        """Open the file anew, as after it was moved away; raises CannotLog."""
        self._open()

    def _open(self) -> None:
        path, remote, is_system = _place(self._options)
        opened = _opened_file(path) if path else None
        system: SystemLog | None = None
        if not path and remote:
            system = SystemLog.remote(remote)
        elif not path and is_system:
            system = SystemLog.local()
        self.close()
        self._file, self._system = opened, system
        self._written_bytes = 0 if opened is None else opened.seek(0, os.SEEK_END)

    def line(self, level: str, text: str) -> None:
        """Write a line; DBG and TRC only where they were asked for."""
        options = self._options
        if (level == "DBG" and not options.debug) or (level == "TRC" and not options.trace):
            return
        shown = text if text.isprintable() else _printable(text)
        if self._system is not None:
            self._system.write(level, shown, self._clock.now_ns())
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
        (self._file or self._standard_error).write(line)
        self._written_bytes += len(line)

    def _told(self, form: str, now_ns: int) -> str:
        as_parts = time.gmtime if self._options.logtime_utc else time.localtime
        return time.strftime(form, as_parts(now_ns // 10**9))

    def _rotate(self) -> None:
        now_ns = self._clock.now_ns()
        path = Path(self._options.log_file)
        kept_as = f"{path}.{self._told('%Y.%m.%d.%H.%M.%S', now_ns)}.{now_ns % 10**9:09d}"
        path.rename(kept_as)
        self._open()
        self._write("INF", f"Rotated log, backup saved as {quoted(kept_as)}")
        if self._options.log_max_files > 0:
            self._purge(path)

    def _purge(self, path: Path) -> None:
        """Remove the oldest files that went before this one, of those beyond the number."""
        rotated = re.compile(re.escape(path.name) + r"(\.[0-9]{2,4}){6}\.[0-9]{9}")
        old = sorted(each for each in path.parent.iterdir() if rotated.fullmatch(each.name))
        for each in old[: max(len(old) - self._options.log_max_files + 1, 0)]:
            each.unlink(missing_ok=True)
            self._write("INF", f"Purged log file {quoted(each.name)}")

    def close(self) -> None:
        """Close the file or the system's log; what comes then goes to standard error."""
        if self._system is not None:
            self._system.close()
            self._system = None
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _place(options: LogOptions) -> tuple[str, str, bool]:
    return options.log_file, options.remote_syslog, options.syslog


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
