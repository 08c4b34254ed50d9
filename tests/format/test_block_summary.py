"""What a checkpoint tells of its blocks comes back, one after the other, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptStore
from penstock.format.block import BlockSummary, decode_summaries, encode_summary
from tests.format.state.test_checkpoint import STATE, summaries

PATH = "orders/stream.state"
FIELDS = {
    "number": 1,
    "generation": 0,
    "base_seq": 1,
    "last_seq": 8,
    "count": 8,
    "live": 8,
    "bytes": 500,
    "live_bytes": 300,
    "live_disk_bytes": 400,
    "first_time_ns": -5,
    "last_time_ns": 5,
    "expiring": 0,
}
PLAIN = BlockSummary(1, 0, 1, 8, 8, 8, 500, 300, 400, -5, 5, 0, b"")


@given(st.lists(summaries, max_size=5), st.binary(max_size=9), st.binary(max_size=9))
def test_summaries_come_back_from_between_other_bytes(
    blocks: list[BlockSummary], before: bytes, after: bytes
) -> None:
    images = b"".join(map(encode_summary, blocks))
    data = before + images + after
    end = len(before) + len(images)

    assert decode_summaries(data, len(before), end, len(blocks), PATH) == (blocks, end)


def test_summaries_that_are_cut_off_are_refused_at_every_length() -> None:
    # The last one with a bitmap, so that it can be cut off too.
    data = b"".join(map(encode_summary, reversed(STATE.blocks)))

    for end in range(len(data)):
        with pytest.raises(CorruptStore, match="cut off"):
            decode_summaries(data, 0, end, 2, PATH)


def test_a_count_that_the_bytes_cannot_hold_is_refused() -> None:
    with pytest.raises(CorruptStore, match="cut off"):
        decode_summaries(encode_summary(PLAIN), 0, 80, 2**32 - 1, PATH)


def test_summaries_are_equal_by_every_field() -> None:
    assert BlockSummary(**FIELDS, dead=b"") == PLAIN
    assert BlockSummary(**FIELDS, dead=b"\x01") != PLAIN
    for name, value in FIELDS.items():
        assert BlockSummary(**FIELDS | {name: value + 1}, dead=b"") != PLAIN, name
