"""A SequenceSet behaves as a plain set of integers, and reads only what it has written."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.errors import FormatError, UsageError
from penstock.format.sequence_set import SequenceSet
from tests.models.sequence_set import SequenceSetModel

TOP = 2**64 - 1

small_seqs = st.integers(0, 3_000)
sizes = st.one_of(st.integers(0, 4), st.integers(0, 900))
gaps_and_sizes = st.lists(
    st.tuples(st.integers(0, 2**40) | st.integers(0, 3), st.integers(0, 2**40) | st.integers(0, 3)),
    max_size=40,
)


def set_of(*ranges: tuple[int, int]) -> SequenceSet:
    made = SequenceSet()
    for first, last in ranges:
        made.add_range(first, last)
    return made


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class SequenceSetMachine(RuleBasedStateMachine):
    """Any series of changes leaves the set and the model alike."""

    def __init__(self) -> None:
        super().__init__()
        self.real = SequenceSet()
        self.model = SequenceSetModel()

    @rule(seq=small_seqs)
    def add(self, seq: int) -> None:
        assert self.real.add(seq) == bool(self.model.add_range(seq, seq))

    @rule(seq=small_seqs)
    def remove(self, seq: int) -> None:
        assert self.real.remove(seq) == bool(self.model.remove_range(seq, seq))

    @rule(first=small_seqs, size=sizes)
    def add_range(self, first: int, size: int) -> None:
        assert self.real.add_range(first, first + size) == self.model.add_range(first, first + size)

    @rule(first=small_seqs, size=sizes)
    def remove_range(self, first: int, size: int) -> None:
        removed = self.real.remove_range(first, first + size)
        assert removed == self.model.remove_range(first, first + size)

    @rule(first=small_seqs, step=st.integers(2, 5), count=st.integers(1, 700))
    def add_many_apart(self, first: int, step: int, count: int) -> None:
        # Enough ranges to fill and split leaves.
        for seq in range(first, first + step * count, step):
            self.real.add(seq)
            self.model.members.add(seq)

    @rule(first=small_seqs, step=st.integers(2, 5), count=st.integers(1, 700))
    def update_from_another_set(self, first: int, step: int, count: int) -> None:
        other = SequenceSet()
        for seq in range(first, first + step * count, step):
            other.add(seq)
            self.model.members.add(seq)
        self.real.update(other)

    @rule(first=small_seqs, size=sizes)
    def look_between(self, first: int, size: int) -> None:
        wanted = list(self.model.ranges_between(first, first + size))
        assert list(self.real.ranges_between(first, first + size)) == wanted
        counted = sum(end - start + 1 for start, end in wanted)
        assert self.real.count_between(first, first + size) == counted

    @rule(seq=small_seqs)
    def look_up(self, seq: int) -> None:
        assert (seq in self.real) == (seq in self.model.members)

    @rule()
    def go_on_with_a_copy(self) -> None:
        copied = self.real.copy()
        assert copied == self.real
        self.real = copied

    @rule()
    def go_on_with_the_decoded(self) -> None:
        decoded = SequenceSet.decode(self.real.encode())
        assert decoded == self.real
        self.real = decoded

    @rule()
    def clear(self) -> None:
        self.real.clear()
        self.model.members.clear()

    @invariant()
    def both_hold_the_same(self) -> None:
        ranges = self.model.ranges()
        assert list(self.real.ranges()) == ranges
        assert self.real.range_count == len(ranges)
        assert len(self.real) == len(self.model.members)
        assert self.real.first == (ranges[0][0] if ranges else None)
        assert self.real.last == (ranges[-1][1] if ranges else None)


TestSequenceSetMachine = SequenceSetMachine.TestCase
TestSequenceSetMachine.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, derandomize=True
)


@pytest.mark.slow
def test_two_hundred_thousand_random_changes_agree_with_a_plain_set() -> None:
    chance = random.Random(20_260)
    real = SequenceSet()
    model: set[int] = set()

    # Phases that mostly add and mostly remove make leaves split, empty and join.
    for step in range(200_000):
        seq = chance.randrange(60_000)
        adding = chance.random() < (0.8 if step // 40_000 % 2 == 0 else 0.2)
        size = chance.randrange(300) if chance.random() < 0.002 else 0
        span = set(range(seq, seq + size + 1))
        if adding:
            assert real.add_range(seq, seq + size) == len(span - model)
            model |= span
        else:
            assert real.remove_range(seq, seq + size) == len(span & model)
            model -= span
        if step % 20_000 == 0:
            assert list(real) == sorted(model)
            first, last = sorted((chance.randrange(60_000), chance.randrange(60_000)))
            wanted = sum(first <= member <= last for member in model)
            assert real.count_between(first, last) == wanted

    assert real.range_count > 5_000
    assert list(real) == sorted(model)
    assert all((seq in real) == (seq in model) for seq in range(60_400))


@pytest.mark.slow
def test_ranges_added_in_order_cost_about_sixteen_bytes_each() -> None:
    made = SequenceSet()

    for seq in range(0, 400_000, 2):
        made.add(seq)

    assert made.range_count == 200_000
    assert made.memory_bytes() / made.range_count < 18


@pytest.mark.slow
def test_ranges_added_at_random_cost_at_most_twenty_six_bytes_each() -> None:
    made = SequenceSet()
    seqs = list(range(0, 400_000, 2))
    random.Random(7).shuffle(seqs)

    for seq in seqs:
        made.add(seq)

    assert made.range_count == 200_000
    assert made.memory_bytes() / made.range_count < 26


def test_removing_most_ranges_gives_most_memory_back() -> None:
    made = SequenceSet()
    for seq in range(0, 200_000, 2):
        made.add(seq)
    full_bytes = made.memory_bytes()

    for seq in range(0, 200_000, 2):
        if seq % 100:
            made.remove(seq)

    assert made.range_count == 2_000
    assert made.memory_bytes() < full_bytes / 10


def test_clear_gives_all_memory_back() -> None:
    made = set_of((1, 5), (7, 9))

    made.clear()

    assert made.memory_bytes() == SequenceSet().memory_bytes()
    assert list(made) == []


def test_filling_a_hole_merges_both_neighbours() -> None:
    made = set_of((1, 3), (5, 9))

    assert made.add(4)

    assert list(made.ranges()) == [(1, 9)]


def test_a_range_over_many_leaves_swallows_them() -> None:
    made = SequenceSet()
    for seq in range(10, 10_010, 2):
        made.add(seq)

    assert made.add_range(11, 10_007) == 4_999

    assert list(made.ranges()) == [(10, 10_008)]


def test_removing_the_middle_of_one_range_leaves_its_two_ends() -> None:
    made = set_of((10, 20))

    assert made.remove_range(12, 18) == 7

    assert list(made.ranges()) == [(10, 11), (19, 20)]


def test_the_whole_of_uint64_can_be_held_and_taken_back() -> None:
    made = SequenceSet()

    assert made.add_range(0, TOP) == 2**64
    assert made.count_between(0, TOP) == 2**64
    assert SequenceSet.decode(made.encode()) == made
    assert made.remove(2**63)
    assert made.add(2**63)
    assert made.remove_range(0, TOP) == 2**64
    assert made == SequenceSet()


def test_the_ends_of_uint64_are_sequences_as_any_other() -> None:
    made = set_of((0, 0), (TOP, TOP), (TOP - 2, TOP - 2))

    assert list(made) == [0, TOP - 2, TOP]
    assert SequenceSet.decode(made.encode()) == made
    assert made.add(TOP - 1)
    assert list(made.ranges()) == [(0, 0), (TOP - 2, TOP)]


def test_len_of_more_than_python_can_count_raises() -> None:
    made = set_of((0, 2**63))

    with pytest.raises(OverflowError):
        len(made)


@pytest.mark.parametrize("seq", [-1, 2**64])
def test_numbers_outside_uint64_are_refused(seq: int) -> None:
    made = SequenceSet()

    for call in (made.add, made.remove, made.__contains__):
        with pytest.raises(OverflowError):
            call(seq)


def test_a_range_that_runs_backwards_is_refused() -> None:
    made = set_of((1, 10))

    with pytest.raises(UsageError):
        made.add_range(5, 4)
    with pytest.raises(UsageError):
        made.remove_range(5, 4)

    assert made.count_between(5, 4) == 0
    assert list(made.ranges_between(5, 4)) == []
    assert len(made) == 10


def test_removing_what_was_yielded_does_not_disturb_the_iteration() -> None:
    made = SequenceSet()
    for seq in range(0, 4_000, 2):
        made.add(seq)

    seen = []
    for first, last in made.ranges():
        made.remove_range(first, last)
        seen.append(first)

    assert seen == list(range(0, 4_000, 2))
    assert len(made) == 0


def test_clearing_during_the_iteration_ends_it() -> None:
    made = set_of((1, 2), (4, 5), (7, 8))
    walk: Iterator[tuple[int, int]] = made.ranges()
    next(walk)

    made.clear()

    assert list(walk) == []


def test_a_copy_is_independent() -> None:
    made = set_of((1, 5))
    copied = made.copy()

    copied.add(9)

    assert 9 not in made
    assert copied != made


def test_updating_a_set_from_itself_changes_nothing() -> None:
    made = set_of((1, 5), (9, 9))

    made.update(made)

    assert list(made.ranges()) == [(1, 5), (9, 9)]


def test_sets_of_the_same_size_with_other_members_differ() -> None:
    assert set_of((1, 2), (5, 6)) != set_of((1, 2), (6, 7))
    assert set_of((1, 2)) != {1, 2}


def test_a_set_cannot_be_hashed_because_it_changes() -> None:
    with pytest.raises(TypeError):
        hash(SequenceSet())


def test_repr_names_the_ranges_and_stays_short() -> None:
    made = set_of((1, 3), (7, 7))
    for seq in range(100, 200, 2):
        made.add(seq)

    assert repr(set_of((1, 3), (7, 7))) == "SequenceSet(1-3, 7)"
    assert repr(made).endswith("108, 110, and 44 more)")


def test_the_encoding_is_the_documented_one() -> None:
    made = set_of((300, 300), (302, 305), (1_000, 1_001))

    # 300 as is; 302 - 300 - 2 = 0; 1000 - 305 - 2 = 693.
    assert made.encode() == bytes([1, 3, 0xAC, 0x02, 0, 0, 3, 0xB5, 0x05, 1])
    assert SequenceSet().encode() == bytes([1, 0])


@given(gaps_and_sizes)
def test_every_set_survives_its_encoding(steps: list[tuple[int, int]]) -> None:
    made = SequenceSet()
    at = 0
    for gap, size in steps:
        made.add_range(at + gap, at + gap + size)
        at += gap + size

    decoded = SequenceSet.decode(memoryview(bytearray(made.encode())))

    assert decoded == made
    assert decoded.encode() == made.encode()


@given(gaps_and_sizes.filter(bool))
def test_every_truncation_is_refused(steps: list[tuple[int, int]]) -> None:
    made = SequenceSet()
    at = 0
    for gap, size in steps:
        made.add_range(at + gap, at + gap + size)
        at += gap + size
    encoded = made.encode()

    for size in range(len(encoded)):
        with pytest.raises(FormatError):
            SequenceSet.decode(encoded[:size])


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\x01" + tail))
def test_whatever_decodes_is_exactly_what_would_be_encoded(data: bytes) -> None:
    try:
        decoded = SequenceSet.decode(data)
    except FormatError:
        return

    assert decoded.encode() == data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="no bytes at all"),
        pytest.param(b"\x00\x00", id="version zero"),
        pytest.param(b"\x02\x00", id="a later version"),
        pytest.param(b"\x01", id="no count"),
        pytest.param(b"\x01\x00\x00", id="bytes after the last range"),
        pytest.param(b"\x01\x80\x00", id="a count longer than it need be"),
        pytest.param(b"\x01" + uvarint(TOP) + b"\0\0", id="a count beyond the buffer"),
        pytest.param(b"\x01\x02\x05\x00\x01", id="a count that the buffer half holds"),
        pytest.param(b"\x01\x01" + uvarint(TOP) + b"\x01", id="an end beyond uint64"),
        pytest.param(b"\x01\x02\x05\x00" + uvarint(TOP - 6) + b"\x00", id="a start beyond uint64"),
        pytest.param(
            b"\x01\x02" + uvarint(TOP - 1) + b"\x00\x00\x00", id="a range after the last sequence"
        ),
        pytest.param(b"\x01\x01" + b"\xff" * 9 + b"\x02\x00", id="a varint beyond uint64"),
        pytest.param(b"\x01\x01\x80\x00\x00", id="a start longer than it need be"),
    ],
)
def test_anything_but_an_encoding_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        SequenceSet.decode(data)


def test_a_count_beyond_the_buffer_is_refused_before_any_range_is_read() -> None:
    with pytest.raises(FormatError) as caught:
        SequenceSet.decode(b"\x01" + uvarint(TOP) + b"\0\0")

    assert caught.value.offset == 11
