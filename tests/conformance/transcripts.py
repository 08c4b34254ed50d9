"""Scripts of raw bytes for several clients, and what each client received, made comparable.

A script is a list of steps; each sends bytes on one client's connection and, unless it says
otherwise, waits with PING and PONG until the server has dealt with them. So what was delivered does
not depend on who is faster. What differs between any two servers or runs (ids, ports, keys) is
masked; the server's own PINGs are left out; copies of one message for several subscriptions of a
client, which come in any order, are sorted.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

_MASKED = {
    "server_id", "server_name", "port", "client_id", "nonce", "xkey", "git_commit", "go", "version",
}  # fmt: skip
_TIMEOUT_S = 20.0
_PING = re.compile(rb"(?im)^ping[^\n]*\n")


@dataclass(frozen=True)
class Step:
    """Bytes that one client sends; `wait` is False if they end within an operation."""

    client: str
    data: bytes
    wait: bool = True


def say(data: bytes | str, client: str = "a", *, wait: bool = True) -> Step:
    """Return a step."""
    return Step(client, data.encode() if isinstance(data, str) else data, wait)


class Peer:
    """One raw connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.closed = False
        self._pongs_expected = 0
        self._pongs = 0
        self._searched = 0
        self._fill_until(lambda: b"\r\n" in self.received)

    def _fill_until(self, enough: Callable[[], bool]) -> None:
        while not self.closed and not enough():
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                raise AssertionError(f"no answer after {bytes(self.received[-200:])!r}") from None
            except OSError:
                data = b""
            if data:
                self.received += data
            else:
                self.closed = True

    def send(self, data: bytes) -> None:
        """Send whole operations; bytes for a closed connection are lost."""
        self._pongs_expected += len(self.pings_in(data))
        self.send_uncounted(data)

    @staticmethod
    def pings_in(data: bytes) -> list[bytes]:
        """Return the PINGs that will be answered."""
        return _PING.findall(data)

    def expect_pongs(self, count: int) -> None:
        """Expect answers to PINGs that were sent in pieces."""
        self._pongs_expected += count

    def send_uncounted(self, data: bytes) -> None:
        """Send bytes that need not be whole operations."""
        self.try_to_send(data)

    def try_to_send(self, data: bytes) -> bool:
        """Send bytes without reading; return False if the server has closed."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def forget(self) -> None:
        """Drop what was received so far."""
        self.received.clear()
        self._searched = 0

    def wait(self) -> None:
        """Wait until the server has handled everything sent, or has closed."""
        if not self.closed:
            self.send(b"PING\r\n")
            self._fill_until(self._has_every_pong)

    def _has_every_pong(self) -> bool:
        # Much may have been received: each byte is read once.
        while (found := self.received.find(b"PONG\r\n", self._searched)) >= 0:
            self._pongs += 1
            self._searched = found + 6
        self._searched = max(self._searched, len(self.received) - 5)
        return self._pongs >= self._pongs_expected

    def read_to_end(self) -> None:
        """End the sending side, and read until the server closes."""
        if not self.closed:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            self._fill_until(lambda: False)

    def wait_closed(self) -> None:
        """Read until the server closes, without sending."""
        self._fill_until(lambda: False)

    def close(self) -> None:
        """Close."""
        self._socket.close()


@dataclass
class Transcript:
    """What one client received, and whether the server closed the connection."""

    frames: list[bytes] = field(default_factory=list)
    closed: bool = False


def frames_of(data: bytes) -> list[bytes]:
    """Split received bytes into frames; an unfinished rest comes last."""
    frames = []
    at = 0
    while at < len(data):
        end = data.find(b"\r\n", at)
        if end < 0:
            frames.append(data[at:])
            break
        end += 2
        words = data[at:end].split()
        if words and words[0] in (b"MSG", b"HMSG"):
            end += int(words[-1]) + 2
        frames.append(data[at:end])
        at = end
    return frames


def _masked(frame: bytes) -> bytes:
    if not frame.startswith(b"INFO "):
        return frame
    info = json.loads(frame[5:])
    shown = {key: "*" if key in _MASKED else value for key, value in info.items()}
    return b"INFO " + json.dumps(shown, sort_keys=True).encode()


def _payload(frame: bytes) -> bytes | int:
    if not frame.startswith((b"MSG ", b"HMSG ")):
        return id(frame)
    return frame.split(b"\r\n", 1)[1]


def comparable(frames: Iterable[bytes]) -> list[bytes]:
    """Mask what always differs, leave out PINGs, sort the copies of one message."""
    kept = [_masked(frame) for frame in frames if frame != b"PING\r\n"]
    return [frame for _, copies in groupby(kept, key=_payload) for frame in sorted(copies)]


def play(port: int, steps: Iterable[Step]) -> Mapping[str, Transcript]:
    """Run a script against a server; return what each client received."""
    peers: dict[str, Peer] = {}
    half: set[str] = set()
    try:
        for step in steps:
            if step.client not in peers:
                peers[step.client] = Peer(port)
            peers[step.client].send(step.data)
            if step.wait:
                half.discard(step.client)
                peers[step.client].wait()
            else:
                half.add(step.client)
        for name, peer in peers.items():
            if name in half:
                peer.read_to_end()
            else:
                peer.wait()
        return {
            # A half-open connection is always closed in the end: that proves nothing.
            name: Transcript(
                comparable(frames_of(bytes(peer.received))), peer.closed and name not in half
            )
            for name, peer in peers.items()
        }
    finally:
        for peer in peers.values():
            peer.close()
