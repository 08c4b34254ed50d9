"""The server as a process, ours or the real one: started, asked, signalled and ended.

    with Running("penstock", "-c", str(file)) as server:
        server.wait_for("Server is ready")

Nothing here waits for time to pass: what is waited for is a line of the log or the end.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from tests.support.nats_server import EXECUTABLE

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "penstock": [sys.executable, "-m", "penstock.server.main"],
    "nats-server": [str(EXECUTABLE)],
}
BOTH = tuple(COMMANDS)
WAIT_S = 60

_PREFIX = re.compile(r"^\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} ")
_LISTENING = re.compile(r"Listening for client connections on .*:(\d+)")


def environ() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src")}


def ask(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a server that ends by itself."""
    return subprocess.run(
        [*COMMANDS[name], *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        env=environ(),
    )


def wait_for_file(path: Path) -> str:
    """Wait until a file is there and has something in it; give its text."""
    give_up_s = time.monotonic() + WAIT_S
    while not path.exists() or not path.read_text():
        assert time.monotonic() < give_up_s, f"{path} did not come"
        os.sched_yield()
    return path.read_text()


def without_prefix(line: str) -> str:
    """Give a line of the log without process and time."""
    return _PREFIX.sub("", line).rstrip("\n")


class Running:
    """A running server; `lines` is its log so far."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [*COMMANDS[name], *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environ(),
        )
        self._is_over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def messages(self) -> list[str]:
        """The log without processes and times."""
        return [without_prefix(line) for line in self.lines]

    def wait_for(self, text: str, *, after: int = 0) -> str:
        """Wait for a line with a text in it, of those that come after so many lines."""
        with self._changed:
            while True:
                found = [line for line in self.lines[after:] if text in line]
                if found:
                    return without_prefix(found[0])
                assert not self._is_over, f"{text!r} did not come:\n{''.join(self.lines)}"
                assert self._changed.wait(WAIT_S), f"{text!r}:\n{''.join(self.lines)}"

    @property
    def port(self) -> int:
        """The port for clients, once the server is ready."""
        self.wait_for("Server is ready")
        found = _LISTENING.search(self.wait_for("Listening for client connections"))
        assert found is not None
        return int(found[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def signal(self, number: signal.Signals, then: str = "") -> str:
        """Send a signal; wait for a line that follows it, and give it."""
        before = len(self.lines)
        self._process.send_signal(number)
        return self.wait_for(then, after=before) if then else ""

    def reload(self) -> str:
        """Have the configuration read again; give the line that says what came of it."""
        before = len(self.lines)
        self._process.send_signal(signal.SIGHUP)
        endings = ("Reloaded server configuration", "Failed to reload")
        with self._changed:
            while True:
                for line in self.lines[before:]:
                    if any(text in line for text in endings):
                        return without_prefix(line)
                assert not self._is_over, "".join(self.lines)
                assert self._changed.wait(WAIT_S), "".join(self.lines)

    def wait(self) -> int:
        """Wait for the end; give the exit code."""
        code = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
