"""Directories of huge streams that take next to no room: block files and indexes full of holes.

    make_sparse_store(Path("/tmp/huge"), blocks=10_000, block_bytes=50_000_000)

For code that reads heads alone, as planning does. Every block says that it holds messages of
`subjects` in turn, one of each subject's; their records and entries are holes, and reading those
finds damage.
"""

from __future__ import annotations

import struct
from pathlib import Path

from penstock.format.block import BlockHeader, encode_block_header
from penstock.format.hashing import xxh64
from penstock.format.index.block_index import (
    ENTRY_BYTES,
    FIXED_BYTES,
    HEAD_BYTES,
    MAGIC,
    PLACE_BYTES,
    VERSION,
)
from penstock.format.layout import block_name, index_name
from penstock.format.sequence_set import SequenceSet

SALT = 0x5EED
START_NS = 1_700_000_000_000_000_000
RECORD_BYTES = 180


def make_sparse_store(
    path: Path,
    *,
    blocks: int,
    block_bytes: int,
    subjects: int = 1000,
    subjects_per_block: int = 0,
) -> int:
    """Make a stream's directory of sealed blocks; return how many messages it says it holds.

    With `subjects_per_block` a block has only so many of the subjects, the next block the next.
    """
    path.mkdir(parents=True, exist_ok=True)
    count = block_bytes // RECORD_BYTES
    wide = subjects_per_block or subjects
    for place in range(blocks):
        names = [b"orders.%06d" % ((place * wide + each) % subjects) for each in range(wide)]
        header = _header(place + 1, 1 + place * count)
        (path / block_name(place + 1)).write_bytes(header)
        with open(path / block_name(place + 1), "r+b") as file:
            file.truncate(block_bytes)
        _write_index(path / index_name(place + 1), header, count, block_bytes, names)
    return blocks * count


def _header(number: int, base_seq: int) -> bytes:
    return encode_block_header(
        BlockHeader(number=number, salt=SALT, base_seq=base_seq, created_ns=START_NS)
    )


def _write_index(
    path: Path, header: bytes, count: int, block_bytes: int, names: list[bytes]
) -> None:
    number, base_seq = struct.unpack_from("<I", header, 12)[0], struct.unpack_from("<Q", header, 40)
    text, tombstones = b"".join(names), SequenceSet().encode()
    first_ns = START_NS + base_seq[0] * 1000
    fixed = struct.pack(
        "<8sHHIIIQQQqqQIIIIIIQ128s",
        MAGIC, VERSION, 0, number, 0, count, block_bytes, base_seq[0], base_seq[0] + count - 1,
        first_ns, first_ns + count * 1000, block_bytes, len(names), len(text), 0, len(tombstones),
        0, 0, 1, header,
    )  # fmt: skip
    each = count // len(names)
    sections = b"".join(
        struct.pack("<5I", place * len(names[0]), len(name), each, place, count - 1)
        for place, name in enumerate(names)
    )
    # Numbers of one width are in the order of their names, from wherever they begin anew.
    order = sorted(range(len(names)), key=names.__getitem__)
    sections += struct.pack(f"<{len(order)}I", *order) + text
    checksums = struct.pack("<QQ", xxh64(fixed[:HEAD_BYTES] + tombstones), xxh64(sections))
    with open(path, "wb") as file:
        file.write((fixed + checksums).ljust(FIXED_BYTES, b"\0"))
        file.seek(count * (ENTRY_BYTES + PLACE_BYTES), 1)
        file.write(sections + tombstones + bytes(8))
