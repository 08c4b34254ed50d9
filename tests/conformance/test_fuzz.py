"""Random operations, the same for the real server and ours: the same frames come back."""

from __future__ import annotations

import pytest

from tests.conformance.fuzzing import Fuzzer, without_choices
from tests.conformance.servers import Pair
from tests.conformance.transcripts import play

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

BLOCK = 50


def assert_block_is_same(pair: Pair, block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        script = Fuzzer(seed).script()

        expected = without_choices(play(pair.reference.port, script))

        assert without_choices(play(pair.ours.port, script)) == expected, f"seed {seed}: {script}"


@pytest.mark.parametrize("block", range(6))
def test_random_operations_give_the_same_frames(pair: Pair, block: int) -> None:
    assert_block_is_same(pair, block)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(6, 106))
def test_many_random_operations_give_the_same_frames(pair: Pair, block: int) -> None:
    assert_block_is_same(pair, block)


def test_a_seed_always_makes_the_same_script() -> None:
    assert Fuzzer(7).script() == Fuzzer(7).script()
    assert Fuzzer(7).script() != Fuzzer(8).script()
