"""The block that is being written: how much it expects to be taken at once."""

from __future__ import annotations

from penstock.format.index.block_index import BlockIndex
from penstock.format.subject_table import SubjectTable
from penstock.store.log.active_block import ActiveBlock


def test_a_small_commit_among_large_ones_changes_little_and_many_do() -> None:
    large = 1_000_000
    block = ActiveBlock(BlockIndex(1, 0, 1, bytes(large), SubjectTable()), "", 0)
    block.take()
    assert block.usual_bytes == large

    block.append_skip(1, 1, 0)
    small = block.take()
    assert small is not None
    assert large // 2 < block.usual_bytes < large

    for seq in range(2, 60):
        block.append_skip(seq, 1, 0)
        block.take()
    assert block.usual_bytes == len(small)
