"""Names of files are made and recognised in one place, and foreign names are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.format.layout import (
    HIGH_WATER_NAME,
    LEGACY_NAME,
    LOCK_NAME,
    STATE_NAME,
    block_name,
    block_number,
    consumer_state_name,
    index_name,
    index_number,
    is_stream_directory,
    is_temporary,
    sort_names,
)

FOREIGN = (
    "1.blk",
    "00001.blk",
    "000000.blk",
    "0000001.blk",
    "00000000001.blk",
    "4294967296.blk",
    "000001.blk.bak",
    "x000001.blk",
    "000001.BLK",
    "000001.blk\n",
    "\uff10" * 6 + ".blk",
    "000001",
    "index.db",
    "",
)


@given(st.integers(1, 2**32 - 1))
def test_a_number_comes_back_from_its_names(number: int) -> None:
    assert block_number(block_name(number)) == number
    assert index_number(index_name(number)) == number
    assert block_number(index_name(number)) is None
    assert index_number(block_name(number)) is None


@given(st.integers(0, 999_998))
def test_names_sort_as_their_numbers_do(number: int) -> None:
    assert block_name(number) < block_name(number + 1)


def test_names_look_as_people_know_them() -> None:
    assert block_name(1) == "000001.blk"
    assert index_name(1_234_567) == "1234567.idx"
    assert consumer_state_name("mailer") == "mailer.state"


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_name_is_no_block_and_no_index(name: str) -> None:
    assert block_number(name) is None
    assert index_number(name.replace("blk", "idx")) is None
    assert not is_temporary(name)


@pytest.mark.parametrize("stem", ["000001.blk", "000001.idx", STATE_NAME, HIGH_WATER_NAME])
def test_only_our_own_leftovers_are_temporary(stem: str) -> None:
    assert is_temporary(f"{stem}.0123456789abcdef.tmp")

    for other in (
        stem,
        f"{stem}.tmp",
        f"{stem}.0123456789abcde.tmp",
        f"{stem}.0123456789ABCDEF.tmp",
        f"{stem}.0123456789abcdef.tmp.old",
        f"my-{stem}.0123456789abcdef.tmp",
        "notes.0123456789abcdef.tmp",
    ):
        assert not is_temporary(other)


@given(
    st.lists(
        st.integers(1, 2**32 - 1).map(block_name)
        | st.integers(1, 2**32 - 1).map(index_name)
        | st.integers(1, 9).map("000001.blk.012345678901234{}.tmp".format)
        | st.sampled_from([*FOREIGN, STATE_NAME, LOCK_NAME]),
        unique=True,
    )
)
def test_a_folders_files_are_told_apart_as_one_by_one(names: list[str]) -> None:
    blocks, indexes, temporaries = sort_names(names)

    assert list(blocks) == sorted(filter(None, map(block_number, names)))
    assert all(block_number(name) == number for number, name in blocks.items())
    assert indexes == set(filter(None, map(index_number, names)))
    assert temporaries == list(filter(is_temporary, names))


def test_a_streams_directory_is_known_by_any_file_of_it() -> None:
    for name in (STATE_NAME, HIGH_WATER_NAME, LEGACY_NAME, "000001.blk"):
        assert is_stream_directory(["readme.txt", name])

    assert not is_stream_directory([])
    assert not is_stream_directory(["1.blk", "LOCK", "consumers"])
