"""A block's header says what it was given, or is refused; its seed is its own."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptStore, UnsupportedVersion
from penstock.format.block import (
    HEADER_BYTES,
    MAGIC,
    VERSION,
    WRAPPED_KEY_BYTES,
    BlockHeader,
    correct_block_header,
    decode_block_header,
    encode_block_header,
    record_seed,
)
from penstock.format.hashing import xxh64

PATH = "orders/000007.blk"
HEADER = BlockHeader(
    number=7,
    salt=0x1122_3344_5566_7788,
    base_seq=1_000_001,
    created_ns=1_700_000_000_000_000_000,
    generation=3,
    previous_checksum=0xAABB_CCDD_EEFF_0011,
    cipher=2,
    wrapped_key=bytes(range(WRAPPED_KEY_BYTES)),
)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)


def sealed_again(image: bytes) -> bytes:
    """Return the image with a valid checksum, as another writer would make it."""
    body = image[: HEADER_BYTES - 8]
    return body + struct.pack("<Q", xxh64(body))


@given(
    st.builds(
        BlockHeader,
        number=u32,
        salt=u64,
        base_seq=u64,
        created_ns=st.integers(-(2**63), 2**63 - 1),
        generation=u32,
        previous_checksum=u64,
        cipher=st.integers(0, 255),
        wrapped_key=st.binary(min_size=WRAPPED_KEY_BYTES, max_size=WRAPPED_KEY_BYTES),
    )
)
def test_a_header_comes_back_as_it_was_written(header: BlockHeader) -> None:
    image = encode_block_header(header)

    assert len(image) == HEADER_BYTES
    assert decode_block_header(image + b"records", PATH) == header


def test_the_fields_lie_where_the_specification_says() -> None:
    image = encode_block_header(HEADER)

    assert image[:8] == MAGIC == b"PNSTKBLK"
    assert struct.unpack_from("<HBB", image, 8) == (VERSION, 2, 0)
    assert struct.unpack_from("<IQI", image, 12) == (7, HEADER.salt, 3)
    assert image[28:32] == bytes(4)
    assert struct.unpack_from("<qQQ", image, 32) == (
        HEADER.created_ns,
        HEADER.base_seq,
        HEADER.previous_checksum,
    )
    assert image[56:116] == HEADER.wrapped_key
    assert image[116:120] == bytes(4)
    assert struct.unpack_from("<Q", image, 120) == (xxh64(image[:120]),)


def test_no_bit_of_a_header_can_change_unnoticed() -> None:
    image = encode_block_header(HEADER)

    for bit in range(HEADER_BYTES * 8):
        damaged = bytearray(image)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptStore) as refusal:
            decode_block_header(bytes(damaged), PATH)
        assert (refusal.value.path, refusal.value.offset) == (PATH, 0)


def test_a_header_with_one_damaged_byte_is_corrected_by_its_checksum() -> None:
    image = encode_block_header(HEADER)

    for place in range(HEADER_BYTES):
        damaged = bytearray(image)
        damaged[place] ^= place + 1
        assert correct_block_header(bytes(damaged), PATH) == HEADER, place


def test_a_header_with_more_damage_is_not_guessed_at() -> None:
    image = encode_block_header(HEADER)

    for place in range(0, HEADER_BYTES - 16, 16):
        damaged = bytearray(image)
        damaged[place] ^= 1
        damaged[place + 9] ^= 1
        assert correct_block_header(bytes(damaged), PATH) is None
    assert correct_block_header(image[:-1], PATH) is None


def test_a_header_that_is_cut_off_is_refused_at_every_length() -> None:
    image = encode_block_header(HEADER)

    for size in range(HEADER_BYTES):
        with pytest.raises(CorruptStore, match="cut off"):
            decode_block_header(image[:size], PATH)


@pytest.mark.parametrize("version", [0, VERSION + 1, 0xFFFF])
def test_another_version_is_refused_by_its_number(version: int) -> None:
    image = bytearray(encode_block_header(HEADER))
    struct.pack_into("<H", image, 8, version)

    with pytest.raises(UnsupportedVersion) as refusal:
        decode_block_header(sealed_again(bytes(image)), PATH)

    assert (refusal.value.path, refusal.value.found, refusal.value.supported) == (
        PATH,
        version,
        VERSION,
    )


def test_a_file_of_another_kind_is_refused_by_its_magic() -> None:
    image = bytearray(encode_block_header(HEADER))
    image[:8] = b"PNSTKIDX"

    with pytest.raises(CorruptStore, match="magic"):
        decode_block_header(sealed_again(bytes(image)), PATH)


def test_seeds_differ_between_streams_blocks_and_generations() -> None:
    seeds = {
        record_seed(salt, number, generation)
        for salt in (1, 2)
        for number in (1, 2, 3)
        for generation in (0, 1, 2)
    }

    assert len(seeds) == 18
    assert HEADER.seed == record_seed(HEADER.salt, 7, 3)
    assert HEADER.seed == xxh64(struct.pack("<QII", HEADER.salt, 7, 3))


def test_a_rewrite_has_the_next_generation_and_keeps_its_place_in_the_stream() -> None:
    after = HEADER.next_generation(created_ns=5, cipher=1, wrapped_key=bytes(WRAPPED_KEY_BYTES))

    assert (after.generation, after.created_ns, after.cipher) == (4, 5, 1)
    assert after.wrapped_key == bytes(WRAPPED_KEY_BYTES)
    assert (after.number, after.salt, after.base_seq, after.previous_checksum) == (
        HEADER.number,
        HEADER.salt,
        HEADER.base_seq,
        HEADER.previous_checksum,
    )
    assert after.seed != HEADER.seed
