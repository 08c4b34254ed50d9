"""A WebSocket client made of bytes: it can send what no library would, and tells what it heard."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import zlib
from dataclasses import dataclass, field

from penstock.protocol.websocket_frames import BINARY, CLOSE, PONG, frame_header
from tests.conformance.transcripts import comparable, frames_of

WAIT_S = 20.0
KEY = base64.b64encode(bytes(range(16))).decode()
MASK = b"\x11\x22\x33\x44"
# What a server may choose for itself: when it is, and whether it goes on after a refusal.
_OWN_HEADERS = {"date", "connection"}


def upgrade_request(
    *more: str,
    method: str = "GET",
    path: str = "/",
    version: str = "HTTP/1.1",
    without: str = "",
) -> bytes:
    """Return a request with more headers, or without one of the usual."""
    lines = [
        "Host: localhost:80",
        "Upgrade: websocket",
        "Connection: keep-alive, Upgrade",
        f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13",
    ]
    kept = [line for line in lines if not without or not line.startswith(without)]
    return "\r\n".join([f"{method} {path} {version}", *kept, *more, "", ""]).encode()


def masked(
    payload: bytes | str,
    opcode: int = BINARY,
    *,
    final: bool = True,
    compressed: bool = False,
    mask: bytes = MASK,
) -> bytes:
    """Return a frame as a client sends it."""
    data = payload.encode() if isinstance(payload, str) else payload
    header = bytearray(frame_header(opcode, len(data), final=final, compressed=compressed))
    header[1] |= 0x80
    return bytes(header) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data))


def deflated(data: bytes | str) -> bytes:
    """Compress a message as permessage-deflate does."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    plain = data.encode() if isinstance(data, str) else data
    packed = packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH)
    return packed.removesuffix(b"\x00\x00\xff\xff")


@dataclass
class Heard:
    """Everything that a server said; `answer` is the HTTP head without what differs anyway."""

    answer: list[str] = field(default_factory=list)
    protocol: list[bytes] = field(default_factory=list)
    pongs: list[bytes] = field(default_factory=list)
    close: bytes | None = None
    closed: bool = False


class RawWebSocket:
    """One connection; what is sent to a closed one is lost."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self._data = bytearray()
        self._protocol = bytearray()
        self._message: list[bytes] = []
        self._is_packed = False
        self.heard = Heard()

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            raise AssertionError(f"no answer after {self.heard}") from None
        except OSError:
            data = b""
        self._data += data
        self.heard.closed = not data

    def upgrade(self, request: bytes) -> bool:
        """Send a request and read the answer; tells whether frames may follow."""
        self.send(request)
        while b"\r\n\r\n" not in self._data and not self.heard.closed:
            self._receive()
        head, _, rest = bytes(self._data).partition(b"\r\n\r\n")
        self._data = bytearray(rest)
        status, *lines = head.decode().split("\r\n")
        kept = [each for each in lines if each.partition(":")[0].lower() not in _OWN_HEADERS]
        self.heard.answer = [status, *sorted(kept)] if status else []
        return status.startswith("HTTP/1.1 101")

    def read_until(self, wanted: bytes | None) -> Heard:
        """Read until the protocol said something, or the server closed."""
        self._take_frames()
        while not self.heard.closed and (wanted is None or wanted not in self._protocol):
            self._receive()
            self._take_frames()
        self.heard.protocol = comparable(frames_of(bytes(self._protocol)))
        return self.heard

    def _take_frames(self) -> None:
        while self._take_frame():
            pass

    def _take_frame(self) -> bool:
        if len(self._data) < 2:
            return False
        size, at = self._data[1], 2
        if size >= 126:
            at += 2 if size == 126 else 8
            size = int.from_bytes(self._data[2:at], "big")
        if len(self._data) < at + size:
            return False
        first, payload = self._data[0], bytes(self._data[at : at + size])
        del self._data[: at + size]
        opcode = first & 0x0F
        if opcode == CLOSE:
            self.heard.close = payload
        elif opcode == PONG:
            self.heard.pongs.append(payload)
        else:
            self._take_part(opcode, payload, first)
        return True

    def _take_part(self, opcode: int, payload: bytes, first: int) -> None:
        if opcode:
            self._is_packed = bool(first & 0x40)
        self._message.append(payload)
        if first & 0x80:
            whole = b"".join(self._message)
            self._message.clear()
            if self._is_packed:
                whole = zlib.decompress(whole + b"\x00\x00\xff\xff\x01\x00\x00\xff\xff", wbits=-15)
            self._protocol += whole

    def close(self) -> None:
        self._socket.close()


def converse(
    port: int,
    *sent: bytes,
    request: bytes | None = None,
    ends: bool = False,
    tls: ssl.SSLContext | None = None,
) -> Heard:
    """Upgrade, send, and give what was heard: up to the answer to a PING, or to the end."""
    peer = RawWebSocket(port, tls)
    try:
        if not peer.upgrade(request or upgrade_request()):
            return peer.heard
        peer.send(b"".join(sent) if ends else b"".join(sent) + masked("PING\r\n"))
        return peer.read_until(None if ends else b"PONG\r\n")
    finally:
        peer.close()
