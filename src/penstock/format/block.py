"""The header of a block file, and the seed of its records' checksums.

    offset  size  field
         0     8  magic "PNSTKBLK"
         8     2  version
        10     1  cipher of the block's data key (0 none)
        11     1  zero
        12     4  block number
        16     8  salt of the stream: the same in all its blocks
        24     4  generation: 0 as first written, one more at each rewrite
        28     4  zero
        32     8  created, Unix ns
        40     8  base sequence: no record of the block is below it
        48     8  checksum of the last record of the block before, 0 for none
        56    60  wrapped data key: 12 bytes nonce, 48 bytes key and tag (zero when not encrypted)
       116     4  zero
       120     8  XXH64 of bytes 0 to 119

Little-endian. Records follow from byte 128. Pure; any thread.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.errors import CorruptStore, UnsupportedVersion
from penstock.format.hashing import xxh64

MAGIC = b"PNSTKBLK"
VERSION = 1
HEADER_BYTES = 128
WRAPPED_KEY_BYTES = 60

_FIELDS = struct.Struct("<8sHBxIQI4xqQQ60s4x")
_CHECKSUM = struct.Struct("<Q")
_IDENTITY = struct.Struct("<QII")


class BlockHeader(NamedTuple):
    """What a block file says of itself."""

    number: int
    salt: int
    base_seq: int
    created_ns: int
    generation: int = 0
    previous_checksum: int = 0
    cipher: int = 0
    wrapped_key: bytes = bytes(WRAPPED_KEY_BYTES)

    @property
    def seed(self) -> int:
        """The seed of the block's record checksums: other in every block and generation."""
        return record_seed(self.salt, self.number, self.generation)

    def next_generation(self, *, created_ns: int, cipher: int, wrapped_key: bytes) -> BlockHeader:
        """Give the header of a rewrite of this block."""
        return self._replace(
            generation=self.generation + 1,
            created_ns=created_ns,
            cipher=cipher,
            wrapped_key=wrapped_key,
        )


def record_seed(salt: int, number: int, generation: int) -> int:
    """Derive the checksum seed of a block's records."""
    return xxh64(_IDENTITY.pack(salt, number, generation))


def encode_block_header(header: BlockHeader) -> bytes:
    """Give the 128 bytes."""
    fields = _FIELDS.pack(
        MAGIC,
        VERSION,
        header.cipher,
        header.number,
        header.salt,
        header.generation,
        header.created_ns,
        header.base_seq,
        header.previous_checksum,
        header.wrapped_key,
    )
    return fields + _CHECKSUM.pack(xxh64(fields))


def decode_block_header(data: bytes, path: str) -> BlockHeader:
    """Read a header; raises CorruptStore, or UnsupportedVersion where the file is newer."""
    if len(data) < HEADER_BYTES:
        raise CorruptStore(path, 0, f"block header cut off after {len(data)} bytes")
    if data[:8] != MAGIC:
        raise CorruptStore(path, 0, "not a block file: wrong magic")
    if _CHECKSUM.unpack_from(data, HEADER_BYTES - 8)[0] != xxh64(data[: HEADER_BYTES - 8]):
        raise CorruptStore(path, 0, "block header checksum differs")
    (_, version, cipher, number, salt, generation, created_ns, base_seq, previous, wrapped) = (
        _FIELDS.unpack_from(data)
    )
    if version != VERSION:
        raise UnsupportedVersion(path, version, VERSION)
    return BlockHeader(number, salt, base_seq, created_ns, generation, previous, cipher, wrapped)


def correct_block_header(data: bytes, path: str) -> BlockHeader | None:
    """Read a header of which one byte is damaged, or give None where it is more than one.

    Every other value of every byte is tried against the checksum: chance passes it once in 2**49.
    """
    if len(data) < HEADER_BYTES:
        return None
    fields, stored = bytearray(data[: HEADER_BYTES - 8]), data[HEADER_BYTES - 8 : HEADER_BYTES]
    checksum = int.from_bytes(stored, "little")
    whole = _CHECKSUM.pack(xxh64(fields))
    if sum(found != kept for found, kept in zip(whole, stored, strict=True)) == 1:
        return decode_block_header(bytes(fields) + whole, path)
    for place in range(len(fields)):
        damaged = fields[place]
        for value in range(256):
            fields[place] = value
            if xxh64(fields) == checksum:
                return decode_block_header(bytes(fields) + stored, path)
        fields[place] = damaged
    return None
