"""The checkpoint and the high-water mark come back as they were written, or are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.errors import CorruptStore, UnsupportedVersion
from penstock.format.block import BlockSummary
from penstock.format.damage import Damage
from penstock.format.hashing import xxh64
from penstock.format.state.checkpoint import (
    HIGH_WATER_SLOT_BYTES,
    HIGH_WATER_VERSION,
    STATE_VERSION,
    Checkpoint,
    HighWater,
    decode_checkpoint,
    decode_high_water,
    encode_checkpoint,
    encode_high_water,
)

PATH = "orders/stream.state"
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)

damages = st.builds(
    Damage,
    block=u32,
    offset=u64,
    length=u64,
    reason=st.text(max_size=40),
    first_seq=u64,
    last_seq=u64,
)
summaries = st.builds(
    BlockSummary,
    number=u32,
    generation=u32,
    base_seq=u64,
    last_seq=u64,
    count=u32,
    live=u32,
    bytes=u64,
    live_bytes=u64,
    live_disk_bytes=u64,
    first_time_ns=i64,
    last_time_ns=i64,
    expiring=u32,
    dead=st.binary(max_size=20),
)
checkpoints = st.builds(
    Checkpoint,
    salt=u64,
    messages=u64,
    bytes=u64,
    first_seq=u64,
    first_time_ns=i64,
    last_seq=u64,
    last_time_ns=i64,
    blocks=st.lists(summaries, max_size=4).map(tuple),
    subjects=st.binary(max_size=40),
    damage=st.lists(damages, max_size=3).map(tuple),
)
marks = st.builds(
    HighWater,
    turn=u64,
    last_seq=u64,
    last_time_ns=i64,
    salt=u64,
    block=u32,
    block_bytes=u64,
)

STATE = Checkpoint(
    salt=0x1122_3344_5566_7788,
    messages=7,
    bytes=900,
    first_seq=2,
    first_time_ns=-5,
    last_seq=11,
    last_time_ns=6,
    blocks=(
        BlockSummary(1, 0, 1, 8, 8, 4, 500, 300, 400, -5, 5, 1, b"\x0f"),
        BlockSummary(2, 3, 9, 11, 3, 3, 300, 200, 172, 5, 6, 0, b""),
    ),
    subjects=b"\x00",
    damage=(Damage(1, 200, 50, "no whole record here", 3, 3),),
)
MARK = HighWater(5, 1_000, 1_700_000_000_000_000_000, salt=77, block=3, block_bytes=4_000)


def sealed_again(image: bytes) -> bytes:
    return image[:-8] + struct.pack("<Q", xxh64(image[:-8]))


@given(checkpoints)
def test_a_checkpoint_comes_back_as_it_was_written(state: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(state), PATH) == state


def test_the_checkpoints_fields_lie_where_the_specification_says() -> None:
    image = encode_checkpoint(STATE)

    assert image[:8] == b"PNSTKSTA"
    assert struct.unpack_from("<HHIQ", image, 8) == (STATE_VERSION, 0, 2, STATE.salt)
    assert struct.unpack_from("<QQQqQq", image, 24) == (7, 900, 2, -5, 11, 6)
    assert struct.unpack_from("<QQ", image, 72) == (1, 38 + len(b"no whole record here"))
    assert struct.unpack_from("<IIQQII", image, 88) == (1, 0, 1, 8, 8, 4)
    assert struct.unpack_from("<QQQqqII", image, 120) == (500, 300, 400, -5, 5, 1, 1)
    assert image[168:169] == b"\x0f"
    assert struct.unpack_from("<II", image, 169) == (2, 3)
    assert image[249:250] == b"\x00"
    assert struct.unpack_from("<Q", image, len(image) - 8) == (xxh64(image[:-8]),)


def test_no_bit_of_a_checkpoint_can_change_unnoticed() -> None:
    image = encode_checkpoint(STATE)

    for bit in range(len(image) * 8):
        damaged = bytearray(image)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptStore) as refusal:
            decode_checkpoint(bytes(damaged), PATH)
        assert refusal.value.path == PATH


def test_a_checkpoint_that_is_cut_off_or_goes_on_is_refused() -> None:
    image = encode_checkpoint(STATE)

    for size in range(len(image)):
        with pytest.raises(CorruptStore):
            decode_checkpoint(image[:size], PATH)
    with pytest.raises(CorruptStore):
        decode_checkpoint(image + b"\0", PATH)


@pytest.mark.parametrize("version", [0, STATE_VERSION + 1])
def test_a_checkpoint_of_another_version_is_refused_by_its_number(version: int) -> None:
    image = bytearray(encode_checkpoint(STATE))
    struct.pack_into("<H", image, 8, version)

    with pytest.raises(UnsupportedVersion) as refusal:
        decode_checkpoint(sealed_again(bytes(image)), PATH)

    assert (refusal.value.path, refusal.value.found) == (PATH, version)
    assert refusal.value.supported == STATE_VERSION


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (12, "<I", 3),
        (12, "<I", 2**32 - 1),
        (12, "<I", 1),
        (72, "<Q", 2**63),
        (72, "<Q", 2),
        (80, "<Q", 2**64 - 1),
        (164, "<I", 2**32 - 1),
        (164, "<I", 2),
        (286, "<H", 19),
        (286, "<H", 0xFFFF),
    ],
    ids=[
        "one block more", "absurdly many blocks", "one block less", "absurd subjects",
        "more subjects", "absurd damage", "absurd bitmap", "longer bitmap", "shorter reason",
        "longer reason",
    ],
)  # fmt: skip
def test_a_length_that_cannot_be_is_refused_though_the_checksum_holds(
    at: int, form: str, value: int
) -> None:
    image = bytearray(encode_checkpoint(STATE))
    struct.pack_into(form, image, at, value)

    with pytest.raises(CorruptStore):
        decode_checkpoint(sealed_again(bytes(image)), PATH)


# High water


@given(marks)
def test_a_mark_comes_back_from_either_slot(mark: HighWater) -> None:
    slot = encode_high_water(mark)

    assert len(slot) == HIGH_WATER_SLOT_BYTES
    assert decode_high_water(slot + bytes(64), PATH) == mark
    assert decode_high_water(bytes(64) + slot, PATH) == mark
    assert decode_high_water(slot, PATH) == mark


def test_the_marks_fields_lie_where_the_specification_says() -> None:
    slot = encode_high_water(MARK)

    assert slot[:4] == b"PHWM"
    assert struct.unpack_from("<HHQQq", slot, 4) == (
        HIGH_WATER_VERSION, 0, 5, 1_000, MARK.last_time_ns,
    )  # fmt: skip
    assert struct.unpack_from("<QIIQ", slot, 32) == (77, 3, 0, 4_000)
    assert struct.unpack_from("<Q", slot, 56) == (xxh64(slot[:56]),)


def test_the_later_of_two_marks_counts_whichever_slot_it_is_in() -> None:
    older, newer = encode_high_water(MARK), encode_high_water(replace(MARK, turn=6, last_seq=3))

    for data in (older + newer, newer + older):
        found = decode_high_water(data, PATH)
        assert found is not None
        assert (found.turn, found.last_seq) == (6, 3)


def test_a_mark_torn_at_any_bit_leaves_the_one_before() -> None:
    older, newer = encode_high_water(MARK), encode_high_water(replace(MARK, turn=6))

    for bit in range(HIGH_WATER_SLOT_BYTES * 8):
        damaged = bytearray(newer)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_high_water(older + bytes(damaged), PATH) == MARK
        assert decode_high_water(bytes(damaged) + older, PATH) == MARK
        assert decode_high_water(bytes(damaged), PATH) is None


def test_a_file_that_is_cut_off_keeps_its_whole_slots() -> None:
    data = encode_high_water(replace(MARK, turn=6)) + encode_high_water(MARK)

    for size in range(len(data)):
        found = decode_high_water(data[:size], PATH)
        assert (found is not None) == (size >= HIGH_WATER_SLOT_BYTES)


def test_a_mark_of_another_version_is_refused_by_its_number() -> None:
    slot = bytearray(encode_high_water(MARK))
    struct.pack_into("<H", slot, 4, HIGH_WATER_VERSION + 1)

    with pytest.raises(UnsupportedVersion) as refusal:
        decode_high_water(encode_high_water(MARK) + sealed_again(bytes(slot)), PATH)

    assert (refusal.value.path, refusal.value.found) == (PATH, HIGH_WATER_VERSION + 1)
