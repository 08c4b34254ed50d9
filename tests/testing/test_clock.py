"""The clock of the testing kit moves when told to, and as a real pair of clocks could."""

from __future__ import annotations

import pytest

from penstock.clock import Clock
from penstock.errors import UsageError
from penstock.testing.clock import FakeClock


def times(clock: Clock) -> tuple[int, int]:
    return clock.now_ns(), clock.monotonic_ns()


def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(now_ns=1_000, monotonic_ns=7)

    assert times(clock) == (1_000, 7)
    assert times(clock) == (1_000, 7)


def test_advancing_moves_both_clocks_by_the_same_time() -> None:
    clock = FakeClock(now_ns=0)

    clock.advance_ns(1)
    clock.advance_us(2)
    clock.advance_ms(3)
    clock.advance_seconds(4)

    assert times(clock) == (4_003_002_001, 4_003_002_001)


def test_a_jump_moves_the_wall_clock_alone_either_way() -> None:
    clock = FakeClock(now_ns=1_000)

    clock.jump_ns(-600)
    assert times(clock) == (400, 0)

    clock.jump_to_ns(5)
    assert times(clock) == (5, 0)


def test_time_does_not_pass_backwards() -> None:
    clock = FakeClock(now_ns=1_000)

    with pytest.raises(UsageError):
        clock.advance_ms(-1)

    assert times(clock) == (1_000, 0)
