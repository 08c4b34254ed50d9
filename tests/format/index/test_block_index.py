"""A block's index finds what the block holds, survives the way to the disk, and refuses damage."""

from __future__ import annotations

import bisect
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptStore, UnsupportedVersion
from penstock.format.block import HEADER_BYTES, decode_block_header
from penstock.format.damage import Damage
from penstock.format.hashing import xxh64
from penstock.format.index.block_index import ENTRY_BYTES, FIXED_BYTES, MAGIC, VERSION, BlockIndex
from penstock.format.record import DELETED, EXPIRES, measure
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter
from tests.format.written import START_NS, BlockWriter

PATH = "orders/000007.idx"
NAMES = (b"orders.eu.1", b"orders.eu.2", b"orders.us.1", b"stock", b"")

gappy_seqs = st.lists(st.integers(100, 400), unique=True, max_size=60).map(sorted)


def loaded(index: BlockIndex) -> BlockIndex:
    index.freeze()
    return BlockIndex.load(index.encode(), PATH)


def sealed_again(image: bytes) -> bytes:
    return image[:-8] + struct.pack("<Q", xxh64(image[:-8]))


def written_with_gaps(seqs: list[int], base_seq: int = 100) -> BlockWriter:
    writer = BlockWriter(base_seq=base_seq)
    for place, seq in enumerate(seqs):
        writer.add(NAMES[place % len(NAMES)], b"x" * place, seq=seq)
    return writer


def a_mixed_block() -> BlockWriter:
    """Messages, gaps, a skip, a tombstone, an erased record, times to live, damage."""
    writer = BlockWriter(base_seq=10)
    writer.add(b"orders.eu.1", b"first", headers=b"NATS/1.0\r\n\r\n")
    writer.add(b"orders.us.1", b"second", expires_ns=START_NS + 60)
    writer.skip(5)
    writer.add(b"orders.eu.1", b"third", seq=30, expires_ns=START_NS + 30)
    writer.add(b"noise", b"noise", flags=DELETED)
    writer.bury(11, 12, 13)
    writer.add(b"stock", b"damaged")
    writer.add(b"stock", b"last", timestamp_ns=START_NS - 5)
    writer.data[writer.records[-2].offset + 3] ^= 0x40
    return writer


def test_an_index_tells_all_that_the_block_holds() -> None:
    writer = a_mixed_block()

    index = writer.index()

    whole = [message for message in writer.messages if message.payload != b"damaged"]
    assert (index.count, len(whole)) == (5, 4)
    for ordinal, message in zip((0, 1, 2, 4), whole, strict=True):
        seq, offset, length, timestamp_ns, size, flags, subject = index.entry(ordinal)
        assert (seq, timestamp_ns, subject) == (message.seq, message.timestamp_ns, message.subject)
        assert (offset, length) == (message.offset, measure(writer.data, message.offset))
        headers_bytes = 4 + len(message.headers) if message.headers else 0
        assert size == 30 + len(subject) + len(message.payload) + headers_bytes
        assert flags == (EXPIRES if seq in (11, 30) else 0)
    erased = writer.records[4]
    assert index.entry(3)[:3] == (erased.seq, erased.offset, erased.length)
    assert index.entry(3)[5:] == (DELETED, b"")
    assert (index.base_seq, index.last_seq) == (10, writer.next_seq - 1)
    assert index.block_bytes == len(writer.data)
    assert index.last_checksum == int.from_bytes(writer.data[-8:], "little")
    assert (index.first_time_ns, index.last_time_ns) == (START_NS - 5, START_NS + 31)
    assert list(index.tombstones) == [11, 12, 13]
    assert index.expiring() == [(1, 11, START_NS + 60), (2, 30, START_NS + 30)]
    damaged = writer.records[-2]
    assert index.damage == [
        Damage(7, damaged.offset, damaged.length, "no whole record here", damaged.seq, damaged.seq)
    ]


def test_an_index_comes_back_from_the_disk_as_it_went() -> None:
    index = a_mixed_block().index()
    entries = [index.entry(ordinal) for ordinal in range(index.count)]
    totals = index.subject_totals()

    back = loaded(index)

    assert [back.entry(ordinal) for ordinal in range(back.count)] == entries
    assert back.subject_totals() == totals
    assert back.expiring() == index.expiring()
    assert list(back.tombstones) == list(index.tombstones)
    assert back.damage == index.damage
    for name in (
        "number", "generation", "base_seq", "last_seq", "block_bytes", "last_checksum", "header",
        "message_bytes", "first_time_ns", "last_time_ns", "subject_count", "expiry_count",
    ):  # fmt: skip
        assert getattr(back, name) == getattr(index, name), name
    assert decode_block_header(back.header, PATH).number == 7


def test_an_empty_block_has_an_index_too() -> None:
    back = loaded(BlockWriter(base_seq=50).index())

    assert (back.count, back.base_seq, back.last_seq) == (0, 50, 49)
    assert back.block_bytes == HEADER_BYTES
    assert (back.subject_totals(), back.expiring(), list(back.tombstones)) == ({}, [], [])
    assert back.ordinal_of(50) is None
    assert back.first_ordinal_from(0) == back.first_ordinal_from(2**64 - 1) == 0
    assert back.count_matching(SubjectFilter([])) == 0


@pytest.mark.parametrize("from_disk", [False, True], ids=["building", "loaded"])
@given(seqs=gappy_seqs)
def test_sequences_are_found_with_whatever_gaps(*, seqs: list[int], from_disk: bool) -> None:
    index = written_with_gaps(seqs).index()
    index = loaded(index) if from_disk else index

    for seq in (0, *range(95, 406), 2**32 + 100, 2**64 - 1):
        assert index.first_ordinal_from(seq) == bisect.bisect_left(seqs, seq)
        expected = seqs.index(seq) if seq in seqs else None
        assert index.ordinal_of(seq) == expected


@pytest.mark.parametrize("from_disk", [False, True], ids=["building", "loaded"])
@given(
    seqs=gappy_seqs,
    patterns=st.lists(
        st.sampled_from([b">", b"orders.>", b"orders.*.1", b"stock", b"orders.eu.2", b"nothing"]),
        max_size=3,
    ),
)
def test_a_filter_counts_what_it_matches(
    *, seqs: list[int], patterns: list[bytes], from_disk: bool
) -> None:
    writer = written_with_gaps(seqs)
    index = writer.index()
    index = loaded(index) if from_disk else index
    wanted = SubjectFilter(patterns)

    expected = sum(wanted.matches(message.subject) for message in writer.messages)

    assert index.count_matching(wanted) == expected


@given(gappy_seqs)
def test_totals_tell_each_subjects_count_and_ends(seqs: list[int]) -> None:
    writer = written_with_gaps(seqs)

    totals = loaded(writer.index()).subject_totals()

    by_subject: dict[bytes, list[int]] = {}
    for message in writer.messages:
        by_subject.setdefault(message.subject, []).append(message.seq)
    assert totals == {
        subject: (len(found), found[0], found[-1]) for subject, found in by_subject.items()
    }


def test_indexes_of_several_blocks_share_one_table_of_names() -> None:
    table = SubjectTable()
    one = BlockWriter(number=1, base_seq=1)
    one.add_many([b"a", b"b", b"a"])
    two = BlockWriter(number=2, base_seq=4)
    two.add_many([b"c", b"a"])

    first, second = one.index(table=table), two.index(table=table)

    assert first.subject_totals() == {b"a": (2, 1, 3), b"b": (1, 2, 2)}
    assert second.subject_totals() == {b"c": (1, 4, 4), b"a": (1, 5, 5)}
    assert table.totals(SubjectFilter([])) == {b"a": 3, b"b": 1, b"c": 1}


def test_an_index_goes_on_with_the_table_that_it_adopts() -> None:
    writer = BlockWriter()
    writer.add_many([b"a", b"b", b"a"])
    index = writer.index()
    totals = index.subject_totals()
    table = SubjectTable()
    elsewhere = BlockWriter(number=3)
    elsewhere.add_many([b"z", b"b"])
    elsewhere.index(table=table)

    index.adopt(table)

    assert index.subject_totals() == totals
    assert index.count_matching(SubjectFilter([b"b"])) == 1
    assert loaded(index).subject_totals() == totals


def test_a_frozen_index_no_longer_needs_the_table() -> None:
    table = SubjectTable()
    writer = BlockWriter()
    writer.add_many([b"a", b"b", b"a"])
    index = writer.index(table=table)
    totals = index.subject_totals()

    index.freeze()
    index.freeze()
    table.clear()

    assert index.subject_totals() == totals


def test_an_ordinal_beyond_the_entries_is_refused() -> None:
    index = written_with_gaps([100, 101]).index()

    with pytest.raises(IndexError):
        index.entry(2)


def test_the_file_is_laid_out_as_specified() -> None:
    index = a_mixed_block().index()
    index.freeze()
    image = index.encode()

    assert image[:8] == MAGIC == b"PNSTKIDX"
    assert struct.unpack_from("<HHIII", image, 8) == (VERSION, 0, 7, 0, 5)
    assert struct.unpack_from("<QQQ", image, 24) == (index.block_bytes, 10, index.last_seq)
    times = (START_NS - 5, START_NS + 31)
    assert struct.unpack_from("<qqQ", image, 48) == (*times, index.message_bytes)
    subjects, text, expiries, tombstones, damage, zero = struct.unpack_from("<6I", image, 72)
    assert (subjects, expiries, zero) == (4, 2, 0)
    assert struct.unpack_from("<Q", image, 96) == (index.last_checksum,)
    assert image[104:232] == index.header
    assert image[248:256] == bytes(8)
    sections = 5 * (32 + 4) + expiries * 16 + subjects * 24 + text + tombstones + damage
    assert len(image) == FIXED_BYTES + sections + 8
    assert ENTRY_BYTES == 32
    seq, offset, length, timestamp_ns, size, flags, _ = index.entry(1)
    assert struct.unpack_from("<IIIIqIB3x", image, FIXED_BYTES + 32) == (
        seq - 10, offset, length, 1, timestamp_ns, size, flags,
    )  # fmt: skip
    assert struct.unpack_from("<IIq", image, FIXED_BYTES + 160) == (1, 0, START_NS + 60)
    # Which entries are of the first subject, which of the second, and so on.
    at = FIXED_BYTES + 160 + 32
    assert struct.unpack_from("<5I", image, at) == (0, 2, 1, 3, 4)
    # The names in the order in which they came (the erased message's is empty), then the order
    # by name, then the text.
    at += 20
    assert struct.unpack_from("<5I", image, at) == (0, 11, 2, 0, 2)
    assert struct.unpack_from("<5I", image, at + 20) == (11, 11, 1, 1, 1)
    assert struct.unpack_from("<4I", image, at + 80) == (2, 0, 1, 3)
    assert image[at + 96 : at + 96 + text] == b"orders.eu.1orders.us.1stock"
    assert SequenceSet.decode(image[at + 96 + text :][:tombstones]) == index.tombstones
    head = image[:232] + image[at + 96 + text : -8]
    assert struct.unpack_from("<QQ", image, 232) == (
        xxh64(head), xxh64(image[at : at + 96 + text]),
    )  # fmt: skip


def test_no_bit_of_an_index_file_can_change_unnoticed() -> None:
    index = a_mixed_block().index()
    index.freeze()
    image = index.encode()

    for bit in range(len(image) * 8):
        damaged = bytearray(image)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptStore) as refusal:
            BlockIndex.load(bytes(damaged), PATH)
        assert refusal.value.path == PATH


def test_an_index_file_that_is_cut_off_or_goes_on_is_refused() -> None:
    index = a_mixed_block().index()
    index.freeze()
    image = index.encode()

    for size in range(len(image)):
        with pytest.raises(CorruptStore):
            BlockIndex.load(image[:size], PATH)
    with pytest.raises(CorruptStore):
        BlockIndex.load(image + b"\0", PATH)


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_an_index_of_another_version_is_refused_by_its_number(version: int) -> None:
    index = a_mixed_block().index()
    index.freeze()
    image = bytearray(index.encode())
    struct.pack_into("<H", image, 8, version)

    with pytest.raises(UnsupportedVersion) as refusal:
        BlockIndex.load(sealed_again(bytes(image)), PATH)

    assert (refusal.value.found, refusal.value.supported) == (version, VERSION)


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (20, "<I", 2**32 - 1),
        (20, "<I", 3),
        (72, "<I", 2**32 - 1),
        (72, "<I", 2),
        (76, "<I", 1),
        (80, "<I", 2**31),
        (84, "<I", 0),
        (88, "<I", 7),
        (FIXED_BYTES + 12, "<I", 4),
        (FIXED_BYTES + 160, "<I", 5),
        (FIXED_BYTES + 212, "<I", 2**32 - 1),
        (FIXED_BYTES + 216, "<I", 2**32 - 1),
        (FIXED_BYTES + 224, "<I", 5),
        (FIXED_BYTES + 228, "<I", 5),
        (FIXED_BYTES + 292, "<I", 4),
        (FIXED_BYTES + 308 + 27, "<B", 9),
    ],
    ids=[
        "far too many entries", "one entry less", "far too many subjects", "a subject less",
        "less text", "too many expiries", "no tombstones", "less damage", "subject of an entry",
        "entry of an expiry", "place of a name", "length of a name", "first entry of a subject",
        "last entry of a subject", "order by name", "version of the tombstones",
    ],
)  # fmt: skip
def test_a_field_that_points_outside_is_refused_though_the_checksum_holds(
    at: int, form: str, value: int
) -> None:
    index = a_mixed_block().index()
    index.freeze()
    image = bytearray(index.encode())
    struct.pack_into(form, image, at, value)

    with pytest.raises(CorruptStore):
        BlockIndex.load(sealed_again(bytes(image)), PATH)


@pytest.mark.parametrize("count", [1_000, 12_345, 30_000])
def test_a_message_costs_at_most_forty_bytes_while_the_index_is_built(count: int) -> None:
    writer = BlockWriter()
    for _ in range(count):
        writer.add(b"orders")

    index = writer.index()

    assert index.count == count
    assert index.memory_bytes() / count <= 40


def test_a_loaded_index_looks_into_its_bytes_without_copying_them() -> None:
    index = written_with_gaps(list(range(100, 300))).index()
    index.freeze()
    image = index.encode()

    assert BlockIndex.load(image, PATH).memory_bytes() == len(image)
