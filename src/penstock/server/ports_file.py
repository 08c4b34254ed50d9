"""Files and URLs of a running server: the pid file, the ports file, and where it listens.

    nats-server_4711.ports   {"nats":["nats://127.0.0.1:4222"],"monitoring":[…]}

The name of the file begins with nats-server, whatever the executable is called: harnesses look for
it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

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
