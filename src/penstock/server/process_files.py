"""How a running server is found and told: its pid file, its ports file, its URLs, and signals.

    nats-server_4711.ports   {"nats":["nats://127.0.0.1:4222"],"monitoring":[…]}

The name of the file begins with nats-server, whatever the executable is called: harnesses look for
it. `send_signal` is `--signal`, which finds a server by its pid file or by its process, and raises
UsageError in the reference server's words.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.errors import UsageError
from penstock.limits import COMMAND_LINE_BYTES_MAX, PID_FILE_BYTES_MAX

# Files and URLs

_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_EVERY_ADDRESS = ("0.0.0.0", "::", "")


def write_pid_file(path: str) -> str:
    """Write the pid file, if there is to be one; return why that failed, or ""."""
    if not path:
        return ""
    file = Path(path)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        if file.is_symlink() or (file.exists() and not file.is_file()):
            _write_pid(file)
            return ""
        try:
            # A program that reads an empty file takes it for process 0: its own group.
            _write_pid(unfinished)
            unfinished.replace(file)
        except OSError:
            # The folder may be closed to us, and the file open.
            _write_pid(file)
    except OSError as error:
        return f"open {path}: {(error.strerror or 'failed').lower()}"
    return ""


def _write_pid(file: Path) -> None:
    file.touch(mode=0o600)
    file.write_text(str(os.getpid()))


def ports_path(folder: str) -> Path:
    """Return the path of this process's ports file."""
    return Path(folder) / f"nats-server_{os.getpid()}.ports"


def forget_ports_file(folder: str) -> None:
    """Remove the file that an earlier process with the same number has left, if it did."""
    if folder:
        with contextlib.suppress(OSError):
            ports_path(folder).unlink()


def write_ports_file(folder: str, listening: Mapping[str, Sequence[str]]) -> Path:
    """Write URLs by kind of listener; return the path; raise OSError."""
    path = ports_path(folder)
    # A program that waits for the file must not see half of it.
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(listening, separators=(",", ":")))
    unfinished.replace(path)
    return path


def urls(scheme: str, host: str, port: int) -> list[str]:
    """Return the URLs at which a listener can be reached."""
    hosts = local_addresses() if host in _EVERY_ADDRESS else [host]
    return [_url(scheme, each, port) for each in hosts]


def local_url(scheme: str, host: str, port: int) -> str:
    """Return the URL at which a listener is reached from this machine."""
    return _url(scheme, "127.0.0.1" if host in _EVERY_ADDRESS else host, port)


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def local_addresses() -> list[str]:
    """Return the addresses of this machine, those of the loopback interface first."""
    by_interface: dict[str, list[str]] = {name: [] for _, name in socket.if_nameindex()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name, found in by_interface.items():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _GET_ADDRESS, request)
            except OSError:
                # An interface without an IPv4 address.
                continue
            found.append(socket.inet_ntoa(answer[20:24]))
    for line in _ipv6_lines():
        digits, *_, name = line.split()
        if name in by_interface:
            by_interface[name].append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    every = [address for found in by_interface.values() for address in found]
    return every or ["127.0.0.1"]


def _ipv6_lines() -> list[str]:
    try:
        return _IPV6_ADDRESSES.read_text().splitlines()
    except OSError:
        return []


# Signals

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
