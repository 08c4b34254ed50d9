"""Unsigned varints (LEB128, at most ten bytes) for the codecs that are plain Python.

Always of the shortest form: a number has one encoding, and a reader refuses any other. Reads check
before they move and never pass the buffer's end. The compiled codecs have the same in wire.pxd.

Pure; called by the other modules of this package.
"""

from __future__ import annotations

from penstock.errors import FormatError

UVARINT_BYTES_MAX = 10  # of the format: 64 bits, seven in a byte
U64_MAX = 2**64 - 1


def put_uvarint(out: bytearray, value: int) -> None:
    """Append one number of 0 to 2**64 - 1."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(buffer: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return the number at `offset` and the offset after it; raises FormatError."""
    value = 0
    shift = 0
    for at in range(offset, min(offset + UVARINT_BYTES_MAX, len(buffer))):
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > U64_MAX or (byte == 0 and shift):
                break
            return value, at + 1
        shift += 7
    raise FormatError("not a whole varint of the shortest form", offset=offset)


def read_uvarints(buffer: bytes | memoryview, offset: int) -> list[int]:
    """Return all the numbers from `offset` to the end; raises FormatError."""
    values: list[int] = []
    while offset < len(buffer):
        byte = buffer[offset]
        if byte < 0x80:
            # Most numbers are deltas of one byte.
            values.append(byte)
            offset += 1
            continue
        value, offset = read_uvarint(buffer, offset)
        values.append(value)
    return values
