"""Records picked by the index are those that a walk gives, and damage is left to the walk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format import reader as reading
from penstock.format.columns import ColumnBuilder, MessageRow
from penstock.format.files import ReadableFile
from penstock.format.index.block_index import ENTRY_BYTES, FIXED_BYTES, PLACE_BYTES, BlockIndex
from penstock.format.index.pick import IndexPicks
from penstock.format.reader import Selection, StreamReader
from penstock.format.sequence_set import SequenceSet
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from penstock.testing.filesystem import MemoryFileSystem
from tests.format.written import BlockWriter

ALL = {"first_seq": 0, "last_seq": 2**64 - 1, "first_ns": -(2**63), "last_ns": 2**63 - 1}


def file_of(data: bytes) -> ReadableFile:
    """Return a block file in memory: as one of another file system is, without a descriptor."""
    file = MemoryFileSystem().open("/block", "create")
    file.write_at(0, data)
    return file


def image_of(writer: BlockWriter) -> bytes:
    index = writer.index()
    index.freeze()
    return index.encode()


def filled(
    picks: IndexPicks, writer: BlockWriter, *, data: bytes = b"", gap: int = 0, rows_max: int = 10
) -> list[MessageRow]:
    file = file_of(data or bytes(writer.data))
    found: list[MessageRow] = []
    builder = ColumnBuilder()
    done = 0
    while done < picks.count:
        done = picks.fill(
            builder, file, done, gap_max=gap, bytes_max=1 << 20, rows_max=rows_max,
            seed=writer.header.seed, unseal=None,
        )  # fmt: skip
        assert builder.count <= rows_max
        found += builder.take(writer.header.number).messages()
    return found


def sections_of(image: bytes, index: BlockIndex) -> tuple[bytes, bytes]:
    """Return the bytes of an index's entries, and those of its subjects."""
    entries_end = FIXED_BYTES + index.count * ENTRY_BYTES
    # There are no expiries; the tombstones take two bytes, and the checksum eight.
    return image[FIXED_BYTES:entries_end], image[entries_end + index.count * PLACE_BYTES : -10]


def unverified(image: bytes, entries: bytes | None = None) -> BlockIndex:
    index = BlockIndex.load(image, "index")
    numbers = (
        index.number, index.generation, index.count, index.block_bytes, index.base_seq,
        index.last_seq, index.first_time_ns, index.last_time_ns, index.message_bytes,
        index.subject_count,
    )  # fmt: skip
    found, subjects = sections_of(image, index)
    return BlockIndex.unverified(
        numbers, index.header, found if entries is None else entries, subjects
    )


@given(
    numbers=st.lists(st.integers(0, 4), max_size=40),
    wanted=st.sets(st.integers(0, 5), min_size=1),
    gone=st.sets(st.integers(1, 40)),
    gap=st.integers(0, 400),
    rows_max=st.integers(1, 10),
)
def test_picks_are_what_the_filter_wants(
    numbers: list[int], wanted: set[int], gone: set[int], gap: int, rows_max: int
) -> None:
    writer = BlockWriter()
    for place, number in enumerate(numbers):
        writer.add(b"s.%d" % number, b"%d" % place)
    removed = SequenceSet()
    for seq in gone:
        removed.add(seq)

    subjects = SubjectFilter([b"s.%d" % number for number in wanted])
    image = image_of(writer)
    verified = IndexPicks(BlockIndex.load(image, "index"), subjects, removed=removed, **ALL)
    every = IndexPicks.of_unverified(unverified(image), subjects)

    rows = [
        (place + 1, b"s.%d" % number, b"%d" % place)
        for place, number in enumerate(numbers)
        if number in wanted
    ]
    for picks, expected in ((verified, [row for row in rows if row[0] not in gone]), (every, rows)):
        found = filled(picks, writer, gap=gap, rows_max=rows_max)
        assert [(each.seq, each.subject, each.payload) for each in found] == expected


@given(
    numbers=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    damage=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 15), st.integers(0, 11))),
)
def test_entries_that_were_not_verified_lose_nothing_unseen(
    numbers: list[int], damage: list[tuple[int, int, int]]
) -> None:
    writer = BlockWriter()
    for place, number in enumerate(numbers):
        writer.add(b"s.%d" % number, b"%d" % place)
    image = image_of(writer)
    entries, _ = sections_of(image, BlockIndex.load(image, "index"))
    # Bytes, and whole entries, are those of other entries: what is most like the truth.
    changed = bytearray(entries)
    for to, byte, origin in damage:
        one, other = ((each % len(numbers)) * ENTRY_BYTES for each in (to, origin))
        if byte < 4:
            changed[one : one + ENTRY_BYTES] = entries[other : other + ENTRY_BYTES]
        else:
            changed[one + byte] = entries[other + byte]

    subjects = SubjectFilter([b"s.1"])
    try:
        picks = IndexPicks.of_unverified(unverified(image, bytes(changed)), subjects)
        found = filled(picks, writer)
    except FormatError:
        return
    assert [each.payload for each in found] == [
        b"%d" % place for place, number in enumerate(numbers) if number == 1
    ]


def test_an_entry_twice_and_another_missing_is_noticed() -> None:
    writer = BlockWriter()
    for place in range(2):
        writer.add(b"s.1", b"%d" % place)
    image = image_of(writer)
    entries, _ = sections_of(image, BlockIndex.load(image, "index"))
    twice = entries[:ENTRY_BYTES] * 2

    with pytest.raises(FormatError, match="other entries"):
        IndexPicks.of_unverified(unverified(image, twice), SubjectFilter([b"s.1"]))


def test_entries_with_each_others_subjects_are_noticed() -> None:
    writer = BlockWriter()
    for number in range(2):
        writer.add(b"s.%d" % number, b"payload")
    image = image_of(writer)
    entries, _ = sections_of(image, BlockIndex.load(image, "index"))
    swapped = bytearray(entries)
    one, other = slice(12, 16), slice(ENTRY_BYTES + 12, ENTRY_BYTES + 16)
    swapped[one], swapped[other] = entries[other], entries[one]

    picks = IndexPicks.of_unverified(unverified(image, bytes(swapped)), SubjectFilter([b"s.1"]))

    assert picks.count == 1
    with pytest.raises(FormatError, match="another record"):
        filled(picks, writer)


def test_entries_that_are_cut_short_are_refused() -> None:
    writer = BlockWriter()
    writer.add(b"a", b"payload")

    with pytest.raises(FormatError, match="cut short"):
        unverified(image_of(writer), b"\0" * (ENTRY_BYTES - 1))


def test_a_record_that_is_not_what_the_index_says_is_refused() -> None:
    writer = BlockWriter()
    writer.add(b"a", b"payload")
    writer.add(b"b", b"payload")
    index = BlockIndex.load(image_of(writer), "index")
    picks = IndexPicks(index, SubjectFilter([b"b"]), removed=SequenceSet(), **ALL)
    data = bytearray(writer.data)
    data[-9] ^= 1

    for wrong in (data, data[:-1]):
        with pytest.raises(FormatError):
            filled(picks, writer, data=bytes(wrong))


def make_store(path: Path) -> None:
    with FileStore.open(str(path), StoreConfig(name="s", block_bytes=16384)) as store:
        for number in range(3000):
            store.store(b"s.%d" % (number % 50), b"", b"%d" % number)
        for seq in range(8, 3000, 100):
            store.remove(seq)


@pytest.mark.parametrize("rows_max", [1, 7, 1000])
def test_a_stream_reader_gives_the_same_whether_it_picks_or_walks(
    tmp_path: Path, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path)
    wanted = Selection(
        subjects=SubjectFilter([b"s.7"]), first_seq=60, last_seq=2600, rows_max=rows_max
    )
    reader = StreamReader(str(tmp_path))
    assert len(reader.blocks) > 3

    picked = [m for batch in reader.batches(wanted) for m in batch.messages()]
    monkeypatch.setattr(reading, "PICKED_PART", 10**9)
    walked = [m for batch in reader.batches(wanted) for m in batch.messages()]

    assert picked == walked
    assert [int(each.payload) for each in picked] == [
        number for number in range(59, 2600) if number % 50 == 7 and number % 100 != 7
    ]


def test_damage_among_the_picked_is_reported_and_costs_only_itself(tmp_path: Path) -> None:
    make_store(tmp_path)
    wanted = Selection(subjects=SubjectFilter([b"s.7"]))
    whole = [m for batch in StreamReader(str(tmp_path)).batches(wanted) for m in batch.messages()]
    victim = whole[10]
    reader = StreamReader(str(tmp_path))
    [block] = [b for b in reader.blocks if b.base_seq <= victim.seq <= b.last_seq]
    with open(tmp_path / f"{block.number:06d}.blk", "r+b") as file:
        file.seek(victim.offset + 20)
        byte = file.read(1)
        file.seek(victim.offset + 20)
        file.write(bytes([byte[0] ^ 0xFF]))

    left = [m for batch in reader.batches(wanted) for m in batch.messages()]

    assert left == [each for each in whole if each != victim]
    assert [(each.first_seq, each.last_seq) for each in reader.damage] == [(victim.seq, victim.seq)]
