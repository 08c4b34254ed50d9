"""The server's log: lines in the form and words that people and harnesses know from nats-server.

    [PID] 2026/11/16 00:31:32.474743 [INF] text

To standard error, or to a file that can be reopened and is rotated at a size limit.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

from penstock.clock import Clock


class Log:
    """Writes log lines; see the module."""

    def __init__(
        self,
        clock: Clock,
        *,
        path: str = "",
        debug: bool = False,
        trace: bool = False,
        with_time: bool = True,
        utc: bool = False,
        size_limit: int = 0,
    ) -> None:
        self._clock = clock
        self._path = path
        self.debug = debug
        self.trace = trace
        self._with_time = with_time
        self._utc = utc
        self._size_limit = size_limit
        self._pid = os.getpid()
        self._file: TextIO = sys.stderr
        self._written = 0
        self.reopen()

    def reopen(self) -> None:
        """Open the log file anew, as after it was moved away."""
        if self._path:
            if self._file is not sys.stderr:
                self._file.close()
            self._file = open(self._path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
            self._written = self._file.tell()

    def line(self, level: str, text: str) -> None:
        """Write a line; DBG and TRC only where they were asked for."""
        if (level == "DBG" and not self.debug) or (level == "TRC" and not self.trace):
            return
        stamp = f"{self._stamp()} " if self._with_time else ""
        line = f"[{self._pid}] {stamp}[{level}] {text}\n"
        try:
            self._file.write(line)
            self._file.flush()
        except (OSError, ValueError):
            # A log that cannot be written must not stop the server.
            return
        self._written += len(line)
        if self._path and 0 < self._size_limit < self._written:
            self._rotate()

    def _stamp(self) -> str:
        now_ns = self._clock.now_ns()
        parts = time.gmtime(now_ns // 10**9) if self._utc else time.localtime(now_ns // 10**9)
        return f"{time.strftime('%Y/%m/%d %H:%M:%S', parts)}.{now_ns // 1000 % 10**6:06d}"

    def _rotate(self) -> None:
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.gmtime(self._clock.now_ns() // 10**9))
        self._file.close()
        os.replace(self._path, f"{self._path}.{stamp}.{self._clock.now_ns() % 10**9:09d}")
        self._file = sys.stderr
        self.reopen()

    def close(self) -> None:
        """Close the file."""
        if self._file is not sys.stderr:
            self._file.close()
            self._file = sys.stderr
