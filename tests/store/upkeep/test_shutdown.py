"""What a store leaves behind when it stops, and what the next open makes of it.

A long block is sealed by a stop: the next open neither walks through it nor keeps its index.
"""

from __future__ import annotations

import pytest

from penstock.format.block import decode_block_header
from penstock.format.index.block_index import BlockIndex
from penstock.store.filestore import FileStore
from tests.support.store_kinds import StoreHouse


def fill(store: FileStore, count: int) -> None:
    for place in range(count):
        store.store(b"a.%d" % (place % 3), b"", b"x" * 100)
    store.flush()


def indexes_in_memory(store: FileStore) -> int:
    return sum(block.index is not None for block in store.engine.log.ledger.blocks)


def test_a_long_block_is_sealed_by_a_stop_and_not_walked_through_again(
    lasting_house: StoreHouse,
) -> None:
    store = lasting_house.open()
    fill(store, 10)

    again = lasting_house.open_again(store)

    assert "000001.idx" in lasting_house.file_bytes()
    assert again.report.checkpoint_used
    assert again.report.scanned_blocks == []
    assert again.state().messages == 10
    assert indexes_in_memory(again) == 0
    assert [again.load(seq).payload for seq in range(1, 11)] == [b"x" * 100] * 10


def test_after_a_stop_messages_go_to_a_new_block_that_follows_on_the_sealed_one(
    lasting_house: StoreHouse,
) -> None:
    store = lasting_house.open()
    fill(store, 10)
    again = lasting_house.open_again(store)
    again.store(b"a.9", b"", b"next")
    again.flush()

    files = lasting_house.file_bytes()
    header = decode_block_header(files["000002.blk"][:128], "000002.blk")
    sealed = BlockIndex.load(files["000001.idx"], "000001.idx")

    assert header.base_seq == 11
    assert header.previous_checksum == sealed.last_checksum != 0
    third = lasting_house.open_again(again)
    assert third.state().last_seq == 11
    assert third.load(11).payload == b"next"


def test_a_long_block_is_not_gone_on_with_after_a_power_cut_either(
    simulated_house: StoreHouse,
) -> None:
    fill(simulated_house.open(), 10)
    simulated_house.lose_power()

    again = simulated_house.open()

    assert again.report.scanned_blocks == [1]
    assert indexes_in_memory(again) == 0
    assert again.state().messages == 10
    fill(again, 1)
    assert "000002.blk" in simulated_house.file_bytes()
    assert again.state().last_seq == 11


@pytest.mark.parametrize("lost", [".idx", ".state", "high.water"])
def test_a_sealed_block_is_found_without_the_files_that_are_derived(
    lasting_house: StoreHouse, lost: str
) -> None:
    store = lasting_house.open()
    fill(store, 10)
    store.remove(4)

    again = lasting_house.open_again(store, lambda: lasting_house.lose_files(lost))

    assert again.state().messages == 9
    assert again.state().last_seq == 10
    assert again.report.damage == []
