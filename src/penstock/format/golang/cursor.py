"""A bounded walk over bytes: fixed fields and varints as Go's `encoding/binary` writes them.

What always holds: nothing is read past the end, and whatever does not fit raises FormatError with
the place. Pure; used by the decoders of small files in this package.
"""

from __future__ import annotations

from penstock.errors import FormatError

_UVARINT_BYTES_MAX = 10
_U64_MAX = 2**64 - 1


class ByteCursor:
    """A place in some bytes, moving forward."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """Give the next `size` bytes and move past them."""
        if size > len(self._data) - self.at:
            raise FormatError("the data ends early", offset=self.at)
        taken = self._data[self.at : self.at + size]
        self.at += size
        return taken

    def left(self) -> int:
        """Tell how many bytes are left."""
        return len(self._data) - self.at

    def unsigned(self, size: int) -> int:
        """Read a little-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 64 bits."""
        # Most are of one byte, and an index has some for each of its subjects.
        at = self.at
        if at < len(self._data) and (byte := self._data[at]) < 0x80:
            self.at = at + 1
            return byte
        value = 0
        for place in range(_UVARINT_BYTES_MAX):
            byte = self.unsigned(1)
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if value > _U64_MAX:
                    break
                return value
        raise FormatError("a varint is longer than 64 bits", offset=self.at)

    def varint(self) -> int:
        """Read a signed (zig-zag) varint."""
        value = self.uvarint()
        return (value >> 1) ^ -(value & 1)
