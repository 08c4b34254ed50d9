"""A stream as one run of bytes, as the reference server writes it since version 2.15.

    archive = `NATSARC1`, then entries
    entry   = name size uvarint | time varint | sequence uvarint | headers size uvarint
              | payload size uvarint | name | headers | payload

The first entry is `state.json`; `consumers/<name>` follow, then the messages with their subjects as
names, in rising sequence. An entry of zeros ends the archive, so that a truncated one is
noticed. On its way an archive is packed as an S2 stream, which `S2Unpacker` takes apart.

Invariant: the bytes may arrive in any pieces; no memory is taken for a size above its bound; bytes
that are no archive raise FormatError.

Pure; one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.errors import FormatError
from penstock.format.golang.s2 import decode_s2_stream
from penstock.format.varint import put_uvarint
from penstock.limits import (
    ARCHIVE_ENTRY_BYTES_MAX,
    ARCHIVE_NAME_BYTES_MAX,
    S2_CHUNK_BYTES_MAX,
)

MAGIC: Final = b"NATSARC1"
STATE_NAME: Final = b"state.json"
CONSUMERS_PREFIX: Final = b"consumers/"

_IDENTIFIER: Final = b"\xff\x06\x00\x00S2sTwO"
_CHUNK_HEAD_BYTES: Final = 4
_UVARINT_BYTES_MAX: Final = 10  # of the format
_FIELDS: Final = 5


class ArchiveEntry(msgspec.Struct, frozen=True):
    """A document or a message."""

    name: bytes = b""
    timestamp_ns: int = 0
    seq: int = 0
    headers: bytes = b""
    payload: bytes = b""

    def encode(self) -> bytes:
        """Write it."""
        out = bytearray()
        put_uvarint(out, len(self.name))
        # Small numbers of either sign become small ones without.
        put_uvarint(out, self.timestamp_ns << 1 ^ self.timestamp_ns >> 63)
        put_uvarint(out, self.seq)
        put_uvarint(out, len(self.headers))
        put_uvarint(out, len(self.payload))
        return b"".join((out, self.name, self.headers, self.payload))


END: Final = ArchiveEntry()
"""What ends an archive."""


class ArchiveParser:
    """Takes an archive apart; see the module."""

    def __init__(self) -> None:
        self.is_complete = False
        """The end has come."""

        self._data = bytearray()
        self._offset = 0
        self._is_begun = False

    @property
    def held_bytes(self) -> int:
        """The bytes of an entry that is not whole yet."""
        return len(self._data)

    def feed(self, data: bytes) -> Iterator[ArchiveEntry]:
        """Return the entries that these bytes complete, without the end."""
        self._data += data
        if not self._is_begun:
            if len(self._data) < len(MAGIC):
                return
            self._take_magic()
        at = 0
        while not self.is_complete:
            found = self._entry(at)
            if found is None:
                break
            entry, at = found
            if entry == END:
                self.is_complete = True
            else:
                yield entry
        del self._data[:at]
        self._offset += at

    def _take_magic(self) -> None:
        if not self._data.startswith(MAGIC):
            raise FormatError("not an archive")
        del self._data[: len(MAGIC)]
        self._offset = len(MAGIC)
        self._is_begun = True

    def _entry(self, at: int) -> tuple[ArchiveEntry, int] | None:
        fields = []
        for _ in range(_FIELDS):
            found = self._uvarint(at)
            if found is None:
                return None
            number, at = found
            fields.append(number)
        name_size, zigzag, seq, headers_size, payload_size = fields
        if name_size > ARCHIVE_NAME_BYTES_MAX:
            raise FormatError("an entry's name is too long", offset=self._offset + at)
        if headers_size + payload_size > ARCHIVE_ENTRY_BYTES_MAX:
            raise FormatError("an entry is too large", offset=self._offset + at)
        end = at + name_size + headers_size + payload_size
        if end > len(self._data):
            return None
        headers_at, payload_at = at + name_size, at + name_size + headers_size
        # Without a view, a large payload would be copied twice.
        with memoryview(self._data) as data:
            entry = ArchiveEntry(
                bytes(data[at:headers_at]),
                zigzag >> 1 ^ -(zigzag & 1),
                seq,
                bytes(data[headers_at:payload_at]),
                bytes(data[payload_at:end]),
            )
        return entry, end

    def _uvarint(self, at: int) -> tuple[int, int] | None:
        number = 0
        for place, byte in enumerate(self._data[at : at + _UVARINT_BYTES_MAX]):
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if number >= 2**64:
                    break
                return number, at + place + 1
        else:
            if len(self._data) - at < _UVARINT_BYTES_MAX:
                return None
        raise FormatError("not a number of 64 bits", offset=self._offset + at)


class S2Unpacker:
    """Takes an S2 stream apart that comes piece by piece."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._is_begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return the plain bytes of each chunk that these bytes complete."""
        self._data += data
        if not self._is_begun and len(self._data) >= len(_IDENTIFIER):
            if not self._data.startswith(_IDENTIFIER):
                raise FormatError("not an S2 stream")
            self._is_begun = True
        while len(self._data) >= _CHUNK_HEAD_BYTES:
            end = _CHUNK_HEAD_BYTES + int.from_bytes(self._data[1:_CHUNK_HEAD_BYTES], "little")
            if end > len(self._data):
                return
            chunk = bytes(self._data[:end])
            del self._data[:end]
            # Each is read as a stream of its own; a second identifier means nothing.
            plain = decode_s2_stream(_IDENTIFIER + chunk, S2_CHUNK_BYTES_MAX)
            if plain:
                yield plain

    @property
    def held_bytes(self) -> int:
        """The bytes of a chunk that is not whole yet."""
        return len(self._data)

    @property
    def is_between_chunks(self) -> bool:
        """Return True if everything that was begun is complete."""
        return not self._data
