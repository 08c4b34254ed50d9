"""The server's log: lines in the form and words that people and harnesses know from nats-server.

    [PID] 2026/11/16 00:31:32.474743 [INF] text

To standard error, or to a file that can be reopened and is rotated at a size limit. A log that
cannot be written stops nothing. A line is a line: what came from a client cannot break it.

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


class LogOptions(Protocol):
    """The options that a log looks at."""

    @property
    def log_file(self) -> str:
        """Where it goes; "" for standard error."""
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


class Log:
    """Writes log lines; see the module."""

    def __init__(self, clock: Clock, options: LogOptions) -> None:
        """Open it; raises OSError."""
        self._clock = clock
        self._pid = os.getpid()
        self._standard_error = _standard_error()
        self._file: FileIO | None = None
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
        """Go on as other options say; raises OSError, and then goes on as before."""
        before = self._options
        self._options = options
        if options.log_file != before.log_file:
            try:
                self._open()
            except OSError:
                self._options = before
                raise

    def reopen(self) -> None:
        """Open the file anew, as after it was moved away; raises OSError."""
        self._open()

    def _open(self) -> None:
        path = self._options.log_file
        opened = FileIO(path, "a") if path else None
        self.close()
        self._file = opened
        self._written_bytes = 0 if opened is None else opened.seek(0, os.SEEK_END)

    def line(self, level: str, text: str) -> None:
        """Write a line; DBG and TRC only where they were asked for."""
        options = self._options
        if (level == "DBG" and not options.debug) or (level == "TRC" and not options.trace):
            return
        stamp = f"{self._stamp()} " if options.logtime else ""
        shown = text if text.isprintable() else _printable(text)
        line = f"[{self._pid}] {stamp}[{level}] {shown}\n".encode()
        try:
            # Nothing is buffered: what a full disk does not take is lost, and holds no memory.
            (self._file or self._standard_error).write(line)
            self._written_bytes += len(line)
            if self.is_file and 0 < options.log_size_limit < self._written_bytes:
                self._rotate()
        except (OSError, ValueError):
            return

    def _stamp(self) -> str:
        now_ns = self._clock.now_ns()
        as_parts = time.gmtime if self._options.logtime_utc else time.localtime
        parts = as_parts(now_ns // 10**9)
        return f"{time.strftime('%Y/%m/%d %H:%M:%S', parts)}.{now_ns // 1000 % 10**6:06d}"

    def _rotate(self) -> None:
        now_ns = self._clock.now_ns()
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.gmtime(now_ns // 10**9))
        path = Path(self._options.log_file)
        path.rename(f"{path}.{stamp}.{now_ns % 10**9:09d}")
        self._open()
        kept = self._options.log_max_files
        if kept > 0:
            rotated = re.compile(re.escape(path.name) + r"(\.[0-9]{2,4}){6}\.[0-9]{9}")
            old = sorted(each for each in path.parent.iterdir() if rotated.fullmatch(each.name))
            for each in old[: max(len(old) - kept + 1, 0)]:
                each.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; what comes then goes to standard error."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


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
