"""Compressed WebSocket messages (permessage-deflate without context takeover), both ways.

A message that comes is gathered first, and expanded when it is whole: no more than a part of it at
a time, so that a client that sends bombs costs the others nothing. What it expands to is bounded by
the largest payload. A message that goes out is compressed by the one packer of its server: making a
compressor costs more than compressing a small message.

Invariant: a compressed message is the same whatever was compressed before it.

The event loop's thread. Called by `net.websocket`.
"""

from __future__ import annotations

import zlib
from typing import Any

from penstock.limits import WEBSOCKET_PACKED_BYTES_MAX, WEBSOCKET_PACKED_PAYLOADS_MAX

_SYNC_TAIL = b"\x00\x00\xff\xff"
# An empty last block besides, so that the end of the data can be told from a cut.
_FINAL_TAIL = _SYNC_TAIL + b"\x01\x00\x00\xff\xff"


class Packer:
    """Compresses the messages of all connections of a server, each for itself."""

    def __init__(self) -> None:
        # Its memory, a quarter of a megabyte, is taken with the first message.
        self._packer: Any = None

    def pack(self, data: bytes) -> bytes:
        """Return the payload of a compressed message."""
        packer = self._packer or zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        # Not to be used again if it fails in the middle.
        self._packer = None
        packed: bytes = packer.compress(data)
        # A full flush makes the compressor forget what it has seen.
        packed += packer.flush(zlib.Z_FULL_FLUSH)
        self._packer = packer
        return packed.removesuffix(_SYNC_TAIL)


class Expander:
    """Expands the messages of one client; see the module.

    `wrong` says what is wrong with the last message; "" for nothing.
    """

    def __init__(self, payload_max: int) -> None:
        self.wrong = ""
        self._payload_max = payload_max
        self._packed_max = min(
            payload_max * WEBSOCKET_PACKED_PAYLOADS_MAX, WEBSOCKET_PACKED_BYTES_MAX
        )
        self._packed: list[bytes] = []
        self._packed_bytes = 0
        # Of the message that is being expanded.
        self._expander: Any = None
        self._rest = b""
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes, *, final: bool) -> None:
        """Take a piece of a message; with its last piece expanding begins."""
        self._packed.append(piece)
        self._packed_bytes += len(piece)
        if self._packed_bytes > self._packed_max:
            self.wrong = "maximum payload exceeded"
        elif final:
            self._rest = b"".join((*self._packed, _FINAL_TAIL))
            self._packed = []
            self._packed_bytes = 0
            self._expander = zlib.decompressobj(-zlib.MAX_WBITS)

    @property
    def is_expanding(self) -> bool:
        """True if a message is to be expanded further."""
        return self._expander is not None

    def expand(self, bytes_max: int) -> tuple[bytes, int]:
        """Expand so many bytes more; return the message if it is whole, and the bytes."""
        wanted = min(bytes_max, self._payload_max + 1 - self._size)
        try:
            part: bytes = self._expander.decompress(self._rest, wanted)
        except zlib.error:
            self._expander = None
            self.wrong = "compressed data that cannot be read"
            return b"", 0
        self._size += len(part)
        self._parts.append(part)
        if len(part) == wanted and self._size <= self._payload_max:
            self._rest = self._expander.unconsumed_tail
            return b"", wanted
        return self._finish(), len(part)

    def _finish(self) -> bytes:
        if self._size > self._payload_max:
            self.wrong = "maximum payload exceeded"
        elif not self._expander.eof:
            self.wrong = "unexpected end of compressed data"
        expanded = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._expander = None
        self._rest = b""
        self._parts = []
        self._size = 0
        return expanded[: self._payload_max]
