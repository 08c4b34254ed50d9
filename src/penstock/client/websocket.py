"""A server's WebSocket port, as a stream of bytes: `ws://` and `wss://` addresses.

    stream = WebSocketStream.upgrade(sock, address)
    wire.secure(stream)

It offers to compress, and compresses if the server agrees. Every message that is sent is one frame.

Blocking, with the socket's own timeout; one thread at a time. Called by `client.connect`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import zlib

from penstock.client.credentials import Address
from penstock.errors import FormatError
from penstock.limits import (
    WEBSOCKET_COMPRESS_ABOVE_BYTES,
    WEBSOCKET_PACKED_BYTES_MAX,
    WEBSOCKET_REQUEST_BYTES_MAX,
)
from penstock.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    FrameReader,
    masked_frame,
)

READ_BYTES = 262_144
_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SYNC_TAIL = b"\x00\x00\xff\xff"
_OFFER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"


class WebSocketStream:
    """A connection whose bytes travel in WebSocket frames; see the module."""

    def __init__(self, sock: socket.socket, *, compressing: bool, early: bytes = b"") -> None:
        """Use `upgrade`; `early` are bytes that came behind the server's answer."""
        self._socket = sock
        self._compressing = compressing
        self._reader = FrameReader(masked=False, compressing=compressing)
        self._packed: list[bytes] = []
        self._packed_bytes = 0
        # What came and was not asked for yet, the first at its end.
        self._received: list[memoryview] = []
        self._take(early)

    @classmethod
    def upgrade(cls, sock: socket.socket, address: Address) -> WebSocketStream:
        """Ask a server for the upgrade; raise FormatError if it refuses, and as sockets do."""
        key = base64.b64encode(os.urandom(16))
        request = (
            f"GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Extensions: {_OFFER}\r\n\r\n"
        )
        sock.sendall(request.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = sock.recv(READ_BYTES)
            if not more or len(answer) > WEBSOCKET_REQUEST_BYTES_MAX:
                raise FormatError("the server does not speak WebSocket")
            answer += more
        head, _, early = answer.partition(b"\r\n\r\n")
        accepted = base64.b64encode(hashlib.sha1(key + _ACCEPT_GUID).digest())
        if not head.startswith(b"HTTP/1.1 101 ") or accepted not in head:
            status = head.split(b"\r\n", 1)[0].decode("utf-8", "replace")
            raise FormatError(f"the server refuses WebSocket: {status}")
        return cls(sock, compressing=b"permessage-deflate" in head, early=early)

    def settimeout(self, timeout_s: float | None) -> None:
        """Set how long a read or a write may wait; None for ever."""
        self._socket.settimeout(timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def sendall(self, data: bytes | memoryview) -> None:
        """Send bytes as one message."""
        is_packed = self._compressing and len(data) > WEBSOCKET_COMPRESS_ABOVE_BYTES
        if is_packed:
            packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
            data = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
            data = data.removesuffix(_SYNC_TAIL)
        self._send(BINARY, data, compressed=is_packed)

    def recv_into(self, buffer: memoryview) -> int:
        """Wait for bytes; return how many there are, 0 at the end of the connection."""
        while not self._received:
            data = self._socket.recv(READ_BYTES)
            if not data or not self._take(data):
                return 0
        first = self._received.pop()
        size = min(len(first), len(buffer))
        buffer[:size] = first[:size]
        if size < len(first):
            self._received.append(first[size:])
        return size

    def _take(self, data: bytes) -> bool:
        # Read frames; return False if the server has closed.
        came: list[bytes] = []
        is_open = True
        for opcode, payload, compressed, final in self._reader.feed(data):
            if opcode == PING:
                self._send(PONG, payload)
            elif opcode == CLOSE:
                is_open = False
            elif opcode == BINARY:
                came.append(self._expanded(payload, final=final) if compressed else payload)
        if self._reader.violation:
            raise FormatError(f"the server does not speak WebSocket: {self._reader.violation}")
        self._received[:0] = [memoryview(each) for each in reversed(came) if each]
        return is_open or bool(self._received)

    def _expanded(self, payload: bytes, *, final: bool) -> bytes:
        self._packed.append(payload)
        self._packed_bytes += len(payload)
        if self._packed_bytes > WEBSOCKET_PACKED_BYTES_MAX:
            raise FormatError("a compressed message that is too long")
        if not final:
            return b""
        packed = b"".join((*self._packed, _SYNC_TAIL))
        self._packed, self._packed_bytes = [], 0
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed)

    def _send(self, opcode: int, payload: bytes | memoryview, *, compressed: bool = False) -> None:
        self._socket.sendall(masked_frame(opcode, payload, os.urandom(4), compressed=compressed))
