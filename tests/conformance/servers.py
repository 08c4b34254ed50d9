"""Servers to compare: the real one and ours, each a process of its own with the same configuration.

Starting waits for the server's word that it listens, stopping for the end of the process; nothing
is left running. Whatever the server wrote to its log can be asked for afterwards.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests.support.nats_server import EXECUTABLE

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (str(EXECUTABLE),)
OURS = (sys.executable, "-m", "penstock.server.main")

_LISTENING = re.compile(r"Listening for client connections on .*:(\d+)")


class RunningServer:
    """One server process; `port` is where clients connect."""

    def __init__(self, command: tuple[str, ...], config: Path, *, port: int = -1) -> None:
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [*command, "-c", str(config), "-p", str(port), "-a", "127.0.0.1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.port = 0
        self._listening = threading.Event()
        # The log must be taken from the pipe all the time, or the server would block on it.
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self._listening.wait()
        if not self.port:
            self.stop()
            raise RuntimeError("the server did not start:\n" + self.log)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            if match := _LISTENING.search(line):
                self.port = int(match[1])
                self._listening.set()
        self._listening.set()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything the server wrote so far."""
        return "".join(self._lines)

    def stop(self) -> None:
        """Stop; stopping twice does nothing."""
        if self._process.stderr is None or self._process.stderr.closed:
            return
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._reader.join()
        self._process.stderr.close()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Pair:
    """The real server and ours with one configuration."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self._config = folder / "server.conf"
        self._config.write_text(config)
        with ExitStack() as stack:
            self.reference = stack.enter_context(RunningServer(REFERENCE, self._config))
            self.ours = stack.enter_context(RunningServer(OURS, self._config))
            self._stack = stack.pop_all()

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        assert "Traceback" not in self.ours.log, self.ours.log
