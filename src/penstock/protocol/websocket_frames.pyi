"""WebSocket frames as bytes: read as they come; the headers and frames that are sent."""

from typing import final

CONTINUATION: int
TEXT: int
BINARY: int
CLOSE: int
PING: int
PONG: int
CONTROL_BYTES_MAX: int

@final
class FrameReader:
    """Reads the frames of one client; `masked` and `compressing` are what the upgrade agreed on."""

    @property
    def violation(self) -> str:
        """What was wrong with a frame; "" until then, and nothing more is read after."""
        ...

    def __init__(self, *, masked: bool, compressing: bool) -> None: ...
    def feed(self, data: bytes | bytearray) -> list[tuple[int, bytes, bool, bool]]:
        """Read bytes; return [(opcode, payload, compressed, final)]."""
        ...

def masked_frame(
    opcode: int, payload: bytes | memoryview, key: bytes, *, compressed: bool = False
) -> bytes:
    """Return a whole frame of a client, masked with a key of four bytes."""
    ...

def frame_header(opcode: int, size: int, *, compressed: bool = False, final: bool = True) -> bytes:
    """Return the header of a frame that the server sends: never masked."""
    ...
