"""What a load process makes of its latencies."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.load import hundredths


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_hundredths_go_from_the_fastest_request_to_the_slowest(values: list[int]) -> None:
    found = hundredths(array("q", values))

    assert len(found) == 101
    assert found == sorted(found)
    assert (found[0], found[-1]) == (min(values), max(values))
    assert set(found) <= set(values)


def test_a_hundredth_is_the_slowest_of_its_part() -> None:
    assert hundredths(array("q", range(1001))) == list(range(0, 1001, 10))
