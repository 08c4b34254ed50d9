"""Snappy's blocks are read by others and read from others, and damage never passes a bound."""

from __future__ import annotations

from random import Random

import pytest
from cramjam import snappy as reference
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatError
from penstock.format.snappy import compress, expand, plain_size

TEXT = b'{"order": 17, "customer": "c-204", "items": [{"sku": "a-1", "count": 2}], "paid": true}'

plain_bytes = st.one_of(
    st.binary(max_size=400),
    st.builds(
        lambda unit, times: unit * times, st.binary(min_size=1, max_size=70), st.integers(0, 4_000)
    ),
    st.builds(
        lambda seed, size, letters: bytes(Random(seed).choices(range(letters), k=size)),
        st.integers(0, 1_000),
        st.sampled_from([0, 1, 14, 15, 16, 17, 63, 64, 65, 300, 5_000, 70_000, 140_000]),
        st.sampled_from([1, 2, 3, 16, 256]),
    ),
)


@given(plain_bytes)
def test_what_we_compress_others_expand(data: bytes) -> None:
    block = compress(data)

    assert bytes(reference.decompress_raw(block)) == data
    assert expand(block) == data
    assert plain_size(block) == len(data)
    assert len(block) <= 32 + len(data) + len(data) // 6


@given(plain_bytes)
def test_what_others_compress_we_expand(data: bytes) -> None:
    assert expand(bytes(reference.compress_raw(data))) == data


@pytest.mark.parametrize("times", [1, 2, 10, 1_000])
def test_text_becomes_as_short_as_with_others(times: int) -> None:
    data = b"".join(TEXT.replace(b"17", b"%d" % number) for number in range(times))

    assert len(compress(data)) <= len(bytes(reference.compress_raw(data))) * 1.05 + 8


@given(plain_bytes, st.data())
def test_a_damaged_block_is_refused_or_expands_to_as_much_as_it_says(
    data: bytes, draw: st.DataObject
) -> None:
    block = bytearray(compress(data))
    place = draw.draw(st.integers(0, len(block) - 1))
    block[place] = draw.draw(st.integers(0, 255))
    if draw.draw(st.booleans()):
        del block[draw.draw(st.integers(0, len(block))) :]
    try:
        if plain_size(block) > 1 << 20:
            return
        assert len(expand(block)) == plain_size(block)
    except FormatError:
        pass


def test_no_block_is_none() -> None:
    with pytest.raises(FormatError):
        expand(b"")
    with pytest.raises(FormatError):
        plain_size(b"\xff")
