"""What is missing between the first and the last message is found by what is missing alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from penstock.testing.filesystem import MemoryFileSystem

SEQUENCES = 700
SKIPPED = {17, *range(330, 350), 352, 353}
"""Sequences that no message ever had."""

CONFIG = StoreConfig(name="orders", block_bytes=4096)


def open_store(files: MemoryFileSystem) -> FileStore:
    return FileStore.open("/orders", CONFIG, files=files, threaded=False)


@pytest.fixture(scope="module")
def filled() -> MemoryFileSystem:
    """Return the files of a store of several blocks, of more than 64 messages each."""
    files = MemoryFileSystem()
    store = open_store(files)
    for seq in range(1, SEQUENCES + 1):
        if seq in SKIPPED:
            store.skip()
        else:
            store.store(b"a", b"", b"")
    store.stop()
    return files


def gaps_between(removed: set[int]) -> list[int]:
    missing = removed | SKIPPED
    first = min(set(range(1, SEQUENCES + 1)) - missing)
    return sorted(seq for seq in missing if seq > first)


@given(
    ranges=st.lists(st.tuples(st.integers(1, SEQUENCES), st.integers(1, 130)), max_size=6),
    singles=st.sets(st.integers(1, SEQUENCES), max_size=40),
    reopen=st.booleans(),
)
def test_gaps_are_what_was_removed_wherever_it_lies(
    filled: MemoryFileSystem, ranges: list[tuple[int, int]], singles: set[int], reopen: bool
) -> None:
    files = filled.survivor()
    store = open_store(files)
    removed = singles - {SEQUENCES}
    for first, size in ranges:
        removed |= set(range(first, min(first + size, SEQUENCES)))
    for seq in removed:
        store.remove(seq)
    if reopen:
        store.stop()
        store = open_store(files)

    found = [seq for low, high in store.deleted().ranges() for seq in range(low, high + 1)]

    assert found == gaps_between(removed)
    store.stop()


def test_a_block_without_a_gap_is_not_looked_into(filled: MemoryFileSystem) -> None:
    store = open_store(filled.survivor())
    blocks = store.engine.log.ledger.blocks
    whole = [block for block in blocks if not SKIPPED & set(range(block.base_seq, block.last_seq))]
    assert [block.index for block in whole[:-1]] == [None] * 3

    assert len(store.deleted()) == len(SKIPPED)

    assert [block.index for block in whole[:-1]] == [None] * 3
    store.stop()


SUBJECTS = [b"s.%d" % number for number in range(7)]


def mixed() -> MemoryFileSystem:
    """Return the files of a store whose messages have seven subjects in turn."""
    files = MemoryFileSystem()
    store = open_store(files)
    for seq in range(1, SEQUENCES + 1):
        store.store(SUBJECTS[seq % 7], b"", b"")
    store.stop()
    return files


@given(
    seq=st.integers(1, SEQUENCES + 5),
    wanted=st.sets(st.sampled_from(SUBJECTS), min_size=1),
    removed=st.sets(st.integers(1, SEQUENCES), max_size=3),
)
def test_messages_are_counted_from_any_sequence_on(
    seq: int, wanted: set[bytes], removed: set[int]
) -> None:
    store = open_store(mixed())
    for each in removed:
        store.remove(each)

    found = store.filtered_state(SubjectFilter(wanted), seq)

    left = set(range(seq, SEQUENCES + 1)) - removed
    assert found.messages == sum(SUBJECTS[each % 7] in wanted for each in left)
    store.stop()


def count_at_the_end(store: FileStore) -> int:
    return store.filtered_state(SubjectFilter([b"s.3"]), SEQUENCES * 3 // 5).messages


def test_counting_loads_no_index_but_those_at_the_ends() -> None:
    store = open_store(mixed())

    assert count_at_the_end(store) == 40

    first, *between, _ = store.engine.log.ledger.blocks[3:]
    assert first.base_seq < SEQUENCES * 3 // 5 < between[0].base_seq
    assert [block.index for block in between] == [None] * len(between)
    store.stop()


def test_damaged_subjects_of_an_index_are_counted_by_the_block() -> None:
    files = mixed()
    store = open_store(files)
    indexes = [name for name in files.list_names("/orders") if name.endswith(".idx")]
    for name in indexes:
        path = f"/orders/{name}"
        # In the last name, before tombstones (of two bytes, as there are none) and the checksum.
        files.flip_bit(path, (files.open(path, "read").size() - 8 - 2 - 1) * 8)

    assert count_at_the_end(store) == 40

    assert store.engine.log.cache.rebuilt_indexes
    store.stop()
