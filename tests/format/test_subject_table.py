"""The table of subjects counts as a dictionary does, answers filters exactly, and stays small."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.errors import FormatError
from penstock.format.subject_table import SubjectTable
from penstock.format.varint import put_uvarint
from penstock.store.log.block import Block, BlockFiles
from penstock.store.log.ledger import Ledger
from penstock.subjects import SubjectFilter
from tests.format.written import BlockWriter

ALL = SubjectFilter([])
SORTED_FROM = 4096
"""With more newcomers than these the table puts its names in order."""

tokens = st.sampled_from([b"a", b"b", b"ab", b"orders", b"o", b"\xc3\xa9"])
subjects = st.lists(tokens, min_size=1, max_size=3).map(b".".join)
patterns = st.lists(
    st.lists(tokens | st.just(b"*"), min_size=1, max_size=3)
    .map(b".".join)
    .flatmap(lambda head: st.sampled_from([head, head + b".>", b">"])),
    max_size=3,
)

Row = tuple[bytes, int, int, int, int]
"""(subject, count, first block, last block, last sequence)"""


def encoded(rows: Iterable[Row], announced: int | None = None) -> bytes:
    """Write a section as the specification has it."""
    rows = list(rows)
    out = bytearray()
    put_uvarint(out, len(rows) if announced is None else announced)
    for subject, *numbers in rows:
        put_uvarint(out, len(subject))
        out += subject
        for number in numbers:
            put_uvarint(out, number)
    return bytes(out)


def table_of(rows: Iterable[Row]) -> SubjectTable:
    table = SubjectTable()
    table.decode_into(encoded(rows))
    return table


def one_each(names: Iterable[bytes]) -> list[Row]:
    return [(name, 1, 1, 1, place + 1) for place, name in enumerate(names)]


def _never(block: Block) -> BlockFiles:
    raise AssertionError("nothing here is on disk")


class TableAgainstDictionary(RuleBasedStateMachine):
    """Messages come in block after block and go one by one, as a store's ledger does it."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(lambda block: block.index, _never, _never)  # type: ignore[arg-type, return-value]  # all are in memory
        self.live: dict[int, bytes] = {}
        self.next_block = 1

    @rule(names=st.lists(subjects, min_size=1, max_size=20))
    def a_block_comes(self, names: list[bytes]) -> None:
        writer = BlockWriter(number=self.next_block, base_seq=self.ledger.last_seq + 1)
        for name in names:
            self.live[writer.add(name)] = name
        block = Block(self.next_block, 0, writer.header.base_seq, writer.header.seed, "")
        block.index = writer.index()
        self.ledger.add_block(block)
        self.ledger.fold(block, block.index, 0)
        self.ledger.settle()
        self.next_block += 1

    @rule(data=st.data())
    def a_message_goes(self, data: st.DataObject) -> None:
        if self.live:
            seq = data.draw(st.sampled_from(sorted(self.live)))
            assert self.ledger.remove(seq)
            del self.live[seq]

    @rule(wanted=patterns)
    def a_filter_is_asked(self, wanted: list[bytes]) -> None:
        subject_filter = SubjectFilter(wanted)
        expected = {
            name: count for name, count in self.counts().items() if subject_filter.matches(name)
        }
        table = self.ledger.table

        assert table.totals(subject_filter) == expected
        assert table.total(subject_filter) == sum(expected.values())
        items = memoryview(table.matching(subject_filter)).cast("I")
        assert {table.name(item) for item in items} == set(expected)

    @rule()
    def it_goes_through_its_encoding(self) -> None:
        back = SubjectTable()
        image = self.ledger.table.encode()

        assert back.decode_into(image) == len(image)
        assert back.totals(ALL) == self.ledger.table.totals(ALL)
        assert back.encode() == image

    @invariant()
    def every_count_is_exact(self) -> None:
        counts = self.counts()
        table = self.ledger.table
        assert table.live == len(counts)
        assert table.used >= table.live
        for name in {b"never", *self.live.values()}:
            assert table.count(name) == counts.get(name, 0)

    def counts(self) -> dict[bytes, int]:
        counts: dict[bytes, int] = {}
        for name in self.live.values():
            counts[name] = counts.get(name, 0) + 1
        return counts


TestTableAgainstDictionary = TableAgainstDictionary.TestCase
TestTableAgainstDictionary.settings = settings(max_examples=60, stateful_step_count=30)


@pytest.mark.parametrize("newcomers", [0, 1, 500])
def test_a_filter_sees_the_ordered_names_and_those_that_came_since(newcomers: int) -> None:
    names = [b"%s.%d.x" % (prefix, n) for prefix in (b"a", b"ab", b"b", b"z") for n in range(1500)]
    random.Random(5).shuffle(names)
    table = table_of(one_each(names))
    assert len(names) > SORTED_FROM
    # The first question puts the names in order; what comes after it is not in the order.
    assert table.total(SubjectFilter([b"a.>"])) == 1500
    late = [b"%s.late%d.x" % (random.Random(n).choice([b"a", b"b"]), n) for n in range(newcomers)]
    table.decode_into(encoded(one_each(late)))

    for pattern in (b"a.>", b"ab.>", b"b.*.x", b"*.7.x", b">", b"z.1499.x", b"zz.>", b"a.late1.x"):
        wanted = SubjectFilter([pattern])
        expected = {name: 1 for name in names + late if wanted.matches(name)}
        assert table.totals(wanted) == expected, pattern
    both = SubjectFilter([b"a.>", b"*.7.x"])
    assert table.total(both) == sum(both.matches(name) for name in names + late)


def test_the_order_is_renewed_when_many_have_come() -> None:
    table = table_of(one_each(b"m.%d" % n for n in range(5000)))
    assert table.total(SubjectFilter([b"m.>"])) == 5000
    ordered = table.memory_bytes()
    table.decode_into(encoded(one_each(b"a.%d" % n for n in range(5000))))

    assert table.total(SubjectFilter([b"a.>"])) == 5000
    assert table.total(SubjectFilter([b"m.4999"])) == 1
    assert table.memory_bytes() > ordered


def test_names_that_begin_alike_are_told_apart() -> None:
    names = [b"a", b"a.b", b"a.b.c", b"a.bc", b"ab", b"a.b ", b"", b"a.\xff"]
    table = table_of(one_each(names))

    assert {name for name in names if table.count(name) == 1} == set(names)
    assert table.total(SubjectFilter([b"a.b"])) == 1
    assert set(table.totals(SubjectFilter([b"a.b.>"]))) == {b"a.b.c"}


def test_a_literal_asked_for_twice_is_counted_once() -> None:
    table = table_of(one_each([b"a", b"b"]))

    assert table.totals(SubjectFilter([b"a", b"a", b"c"])) == {b"a": 1}
    assert table.total(SubjectFilter([b"a", b"b", b"a"])) == 2


def test_subjects_without_messages_are_given_back_when_they_are_the_larger_part() -> None:
    ledger = Ledger(lambda block: block.index, _never, _never)  # type: ignore[arg-type, return-value]  # in memory
    writer = BlockWriter(number=1)
    writer.add_many(b"s.%d" % n for n in range(2000))
    block = Block(1, 0, 1, writer.header.seed, "")
    block.index = writer.index()
    ledger.add_block(block)
    ledger.fold(block, block.index, 0)
    table = ledger.table
    before = table.memory_bytes()

    ledger.remove_range(1, 900)
    table.drop_ghosts()
    assert (table.used, table.live) == (2000, 1100)

    ledger.remove_range(901, 1990)
    table.drop_ghosts()
    assert (table.used, table.live) == (10, 10)
    assert table.memory_bytes() < before
    assert table.totals(ALL) == {b"s.%d" % n: 1 for n in range(1990, 2000)}


def test_a_cleared_table_starts_afresh() -> None:
    table = table_of(one_each(b"s.%d" % n for n in range(5000)))
    assert table.total(SubjectFilter([b"s.>"])) == 5000

    table.clear()
    table.decode_into(encoded(one_each([b"s.1"])))

    assert (table.used, table.live) == (1, 1)
    assert table.totals(ALL) == {b"s.1": 1}


@given(
    st.dictionaries(
        st.binary(max_size=40),
        st.tuples(
            st.integers(1, 2**32 - 1),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**64 - 1),
        ),
        max_size=40,
    )
)
def test_what_was_encoded_comes_back(rows: dict[bytes, tuple[int, int, int, int]]) -> None:
    image = encoded((name, *numbers) for name, numbers in rows.items())
    table = SubjectTable()

    assert table.decode_into(image + b"what follows") == len(image)
    assert table.encode() == image
    assert table.totals(ALL) == {name: numbers[0] for name, numbers in rows.items()}


def test_a_section_that_is_cut_off_is_refused_at_every_length() -> None:
    image = encoded([(b"orders", 300, 1, 2, 70_000), (b"stock", 1, 1, 1, 1)])

    for size in range(len(image)):
        with pytest.raises(FormatError):
            SubjectTable().decode_into(image[:size])


@pytest.mark.parametrize(
    "image",
    [
        b"",
        encoded([], announced=1),
        encoded([], announced=2**64 - 1),
        encoded(one_each([b"a"]), announced=2**64 // 5 + 2),
        encoded(one_each([b"a", b"a"])),
        encoded([(b"a", 0, 1, 1, 1)]),
        encoded([(b"a", 2**32, 1, 1, 1)]),
        encoded([(b"a", 1, 2**32, 1, 1)]),
        encoded([(b"a", 1, 1, 2**32, 1)]),
        b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01aaaaaaaa",
        b"\x01" + b"\x80" * 11 + b"aaaaaaaa",
    ],
    ids=[
        "nothing", "one announced", "absurdly many", "many that wrap around", "a subject twice",
        "no message", "too many messages", "first block", "last block", "absurd name", "endless",
    ],
)  # fmt: skip
def test_bytes_that_no_table_writes_are_refused(image: bytes) -> None:
    with pytest.raises(FormatError):
        SubjectTable().decode_into(image)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    table = SubjectTable()
    try:
        used = table.decode_into(data)
    except FormatError:
        return
    assert used <= len(data)
    assert len(table.totals(ALL)) == table.live


def test_an_item_beyond_the_table_is_refused() -> None:
    with pytest.raises(IndexError):
        table_of(one_each([b"a"])).name(1)


_MILLION = """
import json
from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024

def section(start, stop):
    out = bytearray()
    count = stop - start
    while count >= 0x80:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    out.append(count)
    for n in range(start, stop):
        name = b"orders.eu.customer-%07d.new" % n
        out += bytes([len(name)]) + name + b"\\x01\\x01\\x01\\x01"
    return bytes(out)

table = SubjectTable()
table.decode_into(section(0, 1))
before = resident()
for start in range(1, 1_000_001, 10_000):
    table.decode_into(section(start, min(start + 10_000, 1_000_001)))
found = table.total(SubjectFilter([b"orders.eu.customer-0999999.>"]))
print(json.dumps([table.live, found, table.memory_bytes(), resident() - before]))
"""


@pytest.mark.slow
def test_a_million_subjects_take_at_most_150_megabytes() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _MILLION], check=True, capture_output=True, text=True, timeout=60
    )

    live, found, told_bytes, resident_bytes = json.loads(answer.stdout)

    assert (live, found) == (1_000_001, 1)
    assert told_bytes <= 150_000_000
    assert resident_bytes <= 150_000_000
    # What the table says of itself is what it takes.
    assert abs(resident_bytes - told_bytes) < 30_000_000


def test_matching_items_are_packed_as_32_bit_numbers() -> None:
    table = table_of(one_each([b"a", b"b", b"c"]))

    found = table.matching(SubjectFilter([b"c", b"a"]))

    assert sorted(struct.unpack("<2I", found)) == [0, 2]
