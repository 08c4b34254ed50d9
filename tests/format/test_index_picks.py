"""Records picked by the index are those that a walk gives, and damage is left to the walk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format import reader as reading
from penstock.format.block_index import BlockIndex
from penstock.format.columns import ColumnBuilder, Message
from penstock.format.index_picks import IndexPicks
from penstock.format.reader import Selection, StreamReader
from penstock.format.sequence_set import SequenceSet
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from tests.format.written import BlockWriter

ALL = {"first_seq": 0, "last_seq": 2**64 - 1, "first_ns": -(2**63), "last_ns": 2**63 - 1}


def frozen_index(writer: BlockWriter) -> BlockIndex:
    index = writer.index()
    index.freeze()
    return BlockIndex.load(index.encode(), "index")


def pick(
    writer: BlockWriter, subjects: list[bytes], removed: SequenceSet, gap: int, rows_max: int
) -> list[Message]:
    index = frozen_index(writer)
    picks = IndexPicks(index, SubjectFilter(subjects), removed=removed, **ALL)
    builder = ColumnBuilder()
    for offset, size, first, end in picks.stretches(gap, 1 << 20, rows_max):
        data = bytes(writer.data[offset : offset + size])
        picks.fill(builder, data, offset, first, end, writer.header.seed, None)
    return list(builder.take(writer.header.number).messages())


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

    found = pick(writer, [b"s.%d" % number for number in wanted], removed, gap, rows_max)

    assert [(each.subject, each.payload) for each in found] == [
        (b"s.%d" % number, b"%d" % place)
        for place, number in enumerate(numbers)
        if number in wanted and place + 1 not in gone
    ]


def test_a_record_that_is_not_what_the_index_says_is_refused() -> None:
    writer = BlockWriter()
    writer.add(b"a", b"payload")
    writer.add(b"b", b"payload")
    index = frozen_index(writer)
    picks = IndexPicks(index, SubjectFilter([b"b"]), removed=SequenceSet(), **ALL)
    [(offset, size, first, end)] = picks.stretches(0, 1 << 20, 10)
    data = bytearray(writer.data[offset : offset + size])
    data[-9] ^= 1

    with pytest.raises(FormatError):
        picks.fill(ColumnBuilder(), data, offset, first, end, writer.header.seed, None)
    with pytest.raises(FormatError):
        picks.fill(ColumnBuilder(), data[:-1], offset, first, end, writer.header.seed, None)
    with pytest.raises(IndexError):
        picks.fill(ColumnBuilder(), data, offset, first, end + 1, writer.header.seed, None)


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
