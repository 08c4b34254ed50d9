"""Colliding subjects are found, whichever table of the index they are in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ApiError
from penstock.limits import SUBJECT_PAIRS_MAX
from penstock.stream.config.subjects import SubjectIndex
from penstock.subjects import patterns_overlap

TOKENS = st.sampled_from(["a", "b", "*"])
SUBJECTS = st.builds(
    lambda tokens, rest: ".".join(tokens + rest),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
) | st.just(">")


@given(st.lists(SUBJECTS, max_size=8), SUBJECTS, st.integers(-1, 8))
def test_the_lowest_place_that_collides_is_found(
    subjects: list[str], wanted: str, after: int
) -> None:
    index = SubjectIndex()
    for place, subject in enumerate(subjects):
        index.add(place, subject)

    found = index.find(wanted, after=after)

    places = [
        place
        for place, subject in enumerate(subjects)
        if place > after and patterns_overlap(subject.encode(), wanted.encode())
    ]
    assert found == min(places, default=None)


def test_literals_are_not_compared_with_each_other() -> None:
    index = SubjectIndex()
    for place in range(10_000):
        index.add(place, f"a.{place}")

    found = [index.find(f"a.{place}", after=place) for place in range(10_000)]

    assert found == [None] * 10_000


def test_more_pairs_than_the_bound_are_refused() -> None:
    count = 2 * int(SUBJECT_PAIRS_MAX**0.5)
    index = SubjectIndex()
    for place in range(count):
        index.add(place, f"a.{place}.*")

    places = range(count)
    with pytest.raises(ApiError, match="too many subjects to compare"):
        assert all(index.find(f"a.{place}.*", after=place) is None for place in places)
