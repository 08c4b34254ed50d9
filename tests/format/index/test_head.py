"""The head of an index and its subjects say what the whole index says, or nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from penstock.errors import CorruptStore
from penstock.format.files import LocalFile
from penstock.format.hashing import xxh64
from penstock.format.index.block_index import FIXED_BYTES, BlockIndex, count_matching
from penstock.format.index.head import IndexHead, count_wanted, read_head, read_unverified
from penstock.subjects import SubjectFilter
from tests.format.written import START_NS, BlockWriter

FILTERS = [["orders.eu.1"], ["orders.*.1"], ["stock", "none"], ["none.>"], [">"]]


def an_index() -> bytes:
    writer = BlockWriter(base_seq=10)
    for place in range(40):
        writer.add(b"orders.eu.%d" % (place % 7), b"x" * place, expires_ns=START_NS * (place % 2))
    writer.add(b"stock", b"damaged")
    writer.add(b"stock", b"last")
    writer.bury(11, 12, 13, 20)
    writer.data[writer.records[-3].offset + 3] ^= 0x40
    index = writer.index()
    index.freeze()
    return index.encode()


def opened(path: Path, image: bytes) -> LocalFile:
    path.write_bytes(image)
    return LocalFile(str(path))


def sealed_again(image: bytearray) -> bytes:
    return bytes(image[:-8]) + struct.pack("<Q", xxh64(image[:-8]))


def test_a_head_says_what_the_whole_index_says(tmp_path: Path) -> None:
    image = an_index()

    head = read_head(opened(tmp_path / "index", image))

    whole = IndexHead.of(BlockIndex.load(image, "index"))
    assert head == whole
    assert (list(whole.tombstones), len(whole.damage)) == ([11, 12, 13, 20], 1)


@pytest.mark.parametrize("patterns", FILTERS)
def test_wanted_entries_are_counted_by_the_subjects_alone(
    tmp_path: Path, patterns: list[str]
) -> None:
    image = an_index()
    subjects = SubjectFilter(each.encode() for each in patterns)

    count = count_wanted(opened(tmp_path / "index", image), image[104:232], subjects)

    assert count == BlockIndex.load(image, "index").count_matching(subjects)


def test_no_bit_of_a_head_or_of_the_subjects_can_change_unnoticed(tmp_path: Path) -> None:
    image = an_index()
    whole = read_head(opened(tmp_path / "whole", image))
    everything = SubjectFilter([b">"])
    index = BlockIndex.load(image, "index")
    # Neither is made of the entries, the expiries, the places and the checksum of the whole file; a
    # version that is not known is left to the whole file, too.
    entries = range(FIXED_BYTES, FIXED_BYTES + index.count * 36 + index.expiry_count * 16)
    outside = {*range(248, FIXED_BYTES), *entries, *range(len(image) - 8, len(image))}

    for place in range(len(image)):
        damaged = bytearray(image)
        damaged[place] ^= 1 << place % 8
        file = opened(tmp_path / "index", bytes(damaged))
        try:
            told = (read_head(file), count_wanted(file, image[104:232], everything))
        except CorruptStore:
            continue
        finally:
            file.close()
        assert told == ((whole, 41) if place in outside else (None, None)), place
        assert place in outside or place in (8, 9), place


def test_an_index_of_version_1_is_left_to_the_whole_file(tmp_path: Path) -> None:
    image = bytearray(an_index())
    count = BlockIndex.load(bytes(image), "index").count
    places_at = FIXED_BYTES + count * 32 + struct.unpack_from("<I", image, 80)[0] * 16
    del image[places_at : places_at + count * 4]
    struct.pack_into("<H", image, 8, 1)
    image[232:248] = bytes(16)

    file = opened(tmp_path / "index", sealed_again(image))

    assert read_head(file) is None
    assert count_wanted(file, bytes(image[104:232]), SubjectFilter([b">"])) is None
    assert BlockIndex.load(sealed_again(image), "index").count == 41


@pytest.mark.parametrize("patterns", FILTERS)
def test_wanted_entries_are_found_by_their_places(tmp_path: Path, patterns: list[str]) -> None:
    writer = BlockWriter(base_seq=10)
    for place in range(2000):
        writer.add(b"orders.%d.%d" % (place // 10 % 50, place % 40), b"x")
        writer.add(b"orders.eu.%d" % place, b"x")
    index = writer.index()
    index.freeze()
    image = index.encode()
    subjects = SubjectFilter(each.encode() for each in [*patterns, "orders.7.35", "orders.3.31"])
    whole = BlockIndex.load(image, "index")
    wanted = [
        entry
        for entry in (whole.entry(ordinal) for ordinal in range(whole.count))
        if subjects.matches(entry[-1])
    ]

    found = read_unverified(opened(tmp_path / "index", image), subjects)

    assert found is not None
    entries = [found.entry(ordinal) for ordinal in range(found.count)]
    # All of them where most are wanted, else just these.
    assert entries == wanted or (len(entries) == whole.count < 32 * len(wanted))
    assert found.count_matching(subjects) == len(wanted) > 0


def test_places_that_point_outside_are_refused(tmp_path: Path) -> None:
    writer = BlockWriter(base_seq=10)
    for place in range(200):
        writer.add(b"orders.%d" % place, b"x")
    index = writer.index()
    index.freeze()
    image = bytearray(index.encode())
    struct.pack_into("<I", image, FIXED_BYTES + 200 * 32 + 7 * 4, 200)

    with pytest.raises(CorruptStore, match="no entry"):
        read_unverified(opened(tmp_path / "index", bytes(image)), SubjectFilter([b"orders.7"]))


@pytest.mark.parametrize("size", [0, 100, 255, 300])
def test_an_index_that_is_cut_off_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(CorruptStore):
        read_head(opened(tmp_path / "index", an_index()[:size]))


def test_subjects_that_point_outside_themselves_are_refused() -> None:
    names = b"orders"
    whole = struct.pack("<6I", 0, 6, 3, 0, 2, 0) + names
    wanted = SubjectFilter([b"orders"])

    assert count_matching(whole, 1, wanted) == 3
    for wrong in (
        struct.pack("<6I", 0, 7, 3, 0, 2, 0) + names,
        struct.pack("<6I", 2**32 - 1, 6, 3, 0, 2, 0) + names,
        struct.pack("<6I", 0, 6, 3, 0, 2, 1) + names,
        whole[:23],
    ):
        with pytest.raises(Exception, match="subjects of an index"):
            count_matching(wrong, 1, wanted)
