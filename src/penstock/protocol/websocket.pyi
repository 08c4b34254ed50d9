"""WebSocket frames as bytes: headers read and written, payloads unmasked (RFC 6455)."""

from typing_extensions import Buffer

CONTINUATION: int
TEXT: int
BINARY: int
CLOSE: int
PING: int
PONG: int
CONTROL_BYTES_MAX: int

def read_frame(
    data: Buffer, offset: int, *, payload_max: int, masked: bool
) -> tuple[int, bool, bool, bytes, int] | None:
    """Read the frame at `offset`: (opcode, final, compressed, payload, bytes used), or None."""
    ...

def frame_header(opcode: int, size: int, *, compressed: bool = False, final: bool = True) -> bytes:
    """Give the header of a frame that the server sends: never masked."""
    ...
