"""Heads of blocks tell what the files show, and where a checkpoint disagrees."""

from __future__ import annotations

import pytest

from penstock.errors import UnsupportedVersion
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    BlockSummary,
    ScannedBlock,
    encode_block_header,
    scan_starts,
)
from penstock.format.hashing import xxh64

SALT = 77
HEADER = BlockHeader(3, SALT, 1, 5, generation=2)
IMAGE = encode_block_header(HEADER)
SUMMARY = BlockSummary(3, 2, 1, 9, 9, 9, 400, 300, 272, 5, 6, 0, b"")


def read_one(image: bytes, *, number: int = 3, size: int = 400) -> ScannedBlock:
    return scan_starts("orders", {number: "name.blk"}, [(size, image)])[number]


def difference(head: ScannedBlock, *, is_indexed: bool = True, is_last: bool = False) -> str:
    return head.differs_from(SUMMARY, is_indexed=is_indexed, is_last=is_last)


def test_a_head_has_what_the_file_shows() -> None:
    head = read_one(IMAGE)

    assert (head.number, head.path, head.size, head.image) == (3, "orders/name.blk", 400, IMAGE)
    assert head.header == HEADER
    assert head.reason == ""
    assert (head.first_seq, head.last_seq) == (1, 0)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "cut off after 0 bytes"),
        (IMAGE[:-1], "cut off after 127 bytes"),
        (bytes(HEADER_BYTES), "wrong magic"),
        (IMAGE[:60] + b"\xff" + IMAGE[61:], "checksum differs"),
    ],
    ids=["empty", "short", "zeros", "damaged"],
)
def test_what_is_the_matter_with_a_header_is_noted(image: bytes, reason: str) -> None:
    head = read_one(image)

    assert head.header is None
    assert reason in head.reason
    assert head.image == image
    assert not head.belongs_to(SALT)


def test_a_newer_format_is_refused_with_the_files_path() -> None:
    body = IMAGE[:8] + b"\x02" + IMAGE[9:120]

    with pytest.raises(UnsupportedVersion) as refusal:
        read_one(body + xxh64(body).to_bytes(8, "little"))

    assert refusal.value.path == "orders/name.blk"


def test_a_block_belongs_to_a_stream_by_its_salt_and_its_number() -> None:
    assert read_one(IMAGE).belongs_to(SALT)
    assert not read_one(IMAGE).belongs_to(SALT + 1)
    assert not read_one(IMAGE, number=4).belongs_to(SALT)


def test_a_block_that_is_as_its_checkpoint_tells_does_not_differ() -> None:
    assert difference(read_one(IMAGE)) == ""
    assert difference(read_one(IMAGE), is_indexed=False, is_last=True) == ""
    assert difference(read_one(IMAGE, size=401), is_last=True) == ""


def test_a_block_differs_from_its_checkpoint_by_header_generation_length_and_index() -> None:
    rewritten = encode_block_header(BlockHeader(3, SALT, 1, 5, generation=3))

    assert difference(read_one(b"")) == ": block header cut off after 0 bytes"
    assert difference(read_one(rewritten)) == " was rewritten since"
    assert difference(read_one(IMAGE, size=399), is_last=True) == " has another length"
    assert difference(read_one(IMAGE, size=401)) == " has another length"
    assert difference(read_one(IMAGE), is_indexed=False) == " has no index"


def test_there_is_a_start_for_every_name() -> None:
    with pytest.raises(ValueError, match="shorter"):
        scan_starts("orders", {3: "name.blk", 4: "other.blk"}, [(400, IMAGE)])
