"""Signals: their names in the log, and `--signal`, which sends one to a running server.

    send_signal("reload", "/run/nats.pid")

Raises UsageError in the reference server's words.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from penstock.errors import UsageError
from penstock.limits import COMMAND_LINE_BYTES_MAX, PID_FILE_BYTES_MAX

NAMES = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
}
"""The signals that a server listens to, as its log names them."""

_COMMANDS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}
_PID = re.compile(r"[+-]?[0-9]{1,18}")
_SERVERS = ("penstock-server", "nats-server")
_MODULE = ["-m", "penstock.server.main"]


def send_signal(command: str, target: str) -> None:
    """Send a command to a server by its pid, its pid file, the start of a pid and `*`, or "".

    Without a target it goes to the only server on this machine.
    """
    expression = _read_pid_file(target)
    prefix = expression.removesuffix("*")
    is_pattern = expression.endswith("*")
    if prefix and _PID.fullmatch(prefix) is None:
        raise UsageError(f"invalid pid: {prefix}")
    pids = running_servers() if is_pattern or not prefix else [int(prefix)]
    if len(pids) > 1 and not is_pattern:
        listed = "".join(f"\n{pid}" for pid in pids)
        raise UsageError(f"multiple nats-server processes running:{listed}")
    if not pids:
        raise UsageError("no nats-server processes running")
    if command not in _COMMANDS:
        raise UsageError(f'unknown signal "{command}"')
    wanted = [pid for pid in pids if not is_pattern or str(pid).startswith(prefix)]
    failures = "".join(_send(command, pid) for pid in wanted)
    if failures:
        raise UsageError(failures)


def _read_pid_file(target: str) -> str:
    path = Path(target)
    try:
        if target and path.is_file():
            with path.open("rb") as file:
                return file.read(PID_FILE_BYTES_MAX).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return target
    return target


def _send(command: str, pid: int) -> str:
    try:
        os.kill(pid, _COMMANDS[command])
    except OverflowError:
        return f'\nsignal "{command}" {pid}: no such process'
    except OSError as error:
        return f'\nsignal "{command}" {pid}: {(error.strerror or "failed").lower()}'
    return ""


def running_servers() -> list[int]:
    """Return the pids of the servers on this machine, this process excepted."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(entry.parent.name)
        try:
            with entry.open("rb") as file:
                command_line = file.read(COMMAND_LINE_BYTES_MAX)
        except OSError:
            continue
        if pid != os.getpid() and is_server(command_line):
            found.append(pid)
    return sorted(found)


def is_server(command_line: bytes) -> bool:
    """Return True if a command line runs a server, not if it only names one.

    `less nats-server` is none: a signal must not go astray.
    """
    words = command_line.decode("utf-8", "replace").split("\0")
    program = Path(words[0]).name
    if program in _SERVERS:
        return True
    if not program.startswith("python") or len(words) < 2:
        return False
    return Path(words[1]).name in _SERVERS or words[1:3] == _MODULE
