"""A clock for waits: it goes on as time passes, whatever becomes of the wall clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import AgeClock
from penstock.testing.clock import FakeClock


@given(steps=st.lists(st.tuples(st.integers(0, 2**50), st.integers(-(2**50), 2**50))))
def test_an_age_clock_goes_by_the_time_that_passes(steps: list[tuple[int, int]]) -> None:
    wall = FakeClock()
    clock = AgeClock(wall)
    start_ns = clock.now_ns()
    for passed_ns, jump_ns in steps:
        wall.advance_ns(passed_ns)
        wall.jump_ns(jump_ns)

    assert clock.now_ns() - start_ns == sum(passed_ns for passed_ns, _ in steps)
    assert clock.ahead_ns() == sum(jump_ns for _, jump_ns in steps)
    assert clock.monotonic_ns() == wall.monotonic_ns()
