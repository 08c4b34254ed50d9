"""Our XXH64 gives what the reference library gives, for every size, seed and alignment."""

from __future__ import annotations

import random

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.format.hashing import xxh64

SEEDS = (0, 1, 0x9E3779B1, 2**63, 2**64 - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_size_up_to_two_hundred_bytes_agrees_with_the_library(seed: int) -> None:
    data = random.Random(7).randbytes(200)

    for size in range(201):
        assert xxh64(data[:size], seed) == xxhash.xxh64_intdigest(data[:size], seed), size


@given(st.binary(max_size=5_000), st.integers(0, 2**64 - 1))
def test_any_bytes_and_seed_agree_with_the_library(data: bytes, seed: int) -> None:
    assert xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed)


def test_the_place_of_the_bytes_in_memory_does_not_matter() -> None:
    data = random.Random(8).randbytes(300)

    for start in range(16):
        part = memoryview(data)[start : start + 100]
        assert xxh64(part) == xxhash.xxh64_intdigest(data[start : start + 100])


def test_the_seed_is_zero_unless_told() -> None:
    assert xxh64(b"") == xxhash.xxh64_intdigest(b"") == 0xEF46DB3751D8E999


def test_a_seed_that_is_no_unsigned_64_bit_number_is_refused() -> None:
    for seed in (-1, 2**64):
        with pytest.raises(OverflowError):
            xxh64(b"data", seed)


def test_what_is_no_contiguous_buffer_is_refused() -> None:
    with pytest.raises((ValueError, BufferError)):
        xxh64(memoryview(bytes(10))[::2])
    with pytest.raises(TypeError):
        xxh64(None)  # type: ignore[arg-type]  # what a careless caller may hand in
