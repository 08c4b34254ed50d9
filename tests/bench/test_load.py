"""What a load process makes of its latencies, and the frames it keeps for many subjects."""

from __future__ import annotations

import itertools
from array import array

from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.load import hundredths, ring_of_frames


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_hundredths_go_from_the_fastest_request_to_the_slowest(values: list[int]) -> None:
    found = hundredths(array("q", values))

    assert len(found) == 101
    assert found == sorted(found)
    assert (found[0], found[-1]) == (min(values), max(values))
    assert set(found) <= set(values)


def test_a_hundredth_is_the_slowest_of_its_part() -> None:
    assert hundredths(array("q", range(1001))) == list(range(0, 1001, 10))


@given(st.integers(1, 2_000), st.binary(max_size=20))
def test_a_ring_has_one_frame_of_equal_length_for_each_subject(spread: int, payload: bytes) -> None:
    ring = ring_of_frames(b"bench", payload, spread)

    size = len(ring) // spread
    frames = [ring[at : at + size] for at in range(0, len(ring), size)]
    digits = len(str(spread - 1))
    assert sorted(frames) == [
        b"PUB bench.s.%0*d %d\r\n%b\r\n" % (digits, number, len(payload), payload)
        for number in range(spread)
    ]


def test_neighbours_in_a_ring_are_not_neighbours_by_number() -> None:
    frames = ring_of_frames(b"bench", b"", 10_000).split(b"\r\n\r\n")[:-1]
    numbers = [int(frame[12:16]) for frame in frames]

    assert min(abs(b - a) for a, b in itertools.pairwise(numbers)) > 1_000
