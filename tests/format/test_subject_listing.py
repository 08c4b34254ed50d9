"""A listing of subjects is that of a sorted dictionary, in however many steps it is made."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.format.subject_table import SubjectTable
from penstock.format.subjects.listing import SubjectListing
from penstock.subjects import SubjectFilter
from tests.format.test_subject_table import encoded, subjects, table_of
from tests.models.subjects import matches

ALL = SubjectFilter([])
EVERYTHING = 10**9
counts = st.dictionaries(subjects, st.integers(1, 2**32 - 1), max_size=30)
patterns = st.sampled_from(
    [b">", b"a", b"a.>", b"*", b"*.b", b"orders.*", b"o.>", b"a.b.*", b"\xc3\xa9.>", b"none.>"]
)


def table(kept: dict[bytes, int]) -> SubjectTable:
    return table_of((name, count, 1, 1, 1) for name, count in kept.items())


def add(to: SubjectTable, kept: dict[bytes, int]) -> None:
    to.decode_into(encoded((name, count, 1, 1, 1) for name, count in kept.items()))


def listed(listing: SubjectListing, of: SubjectTable, budget: int) -> list[tuple[str, int]]:
    """Make a listing; return its subjects in their order, with their counts."""
    while not listing.step(of, budget):
        pass
    found: dict[str, int] = json.loads(listing.json.text or b"{}")
    return list(found.items())


@given(
    counts, patterns, st.integers(0, 12), st.integers(1, 12) | st.just(10**6), st.integers(1, 40)
)
def test_a_page_is_that_of_a_sorted_dictionary(
    kept: dict[bytes, int], pattern: bytes, offset: int, limit: int, budget: int
) -> None:
    wanted = sorted(name for name in kept if matches(pattern, name))
    listing = SubjectListing(SubjectFilter([pattern]), offset, limit)

    shown = listed(listing, table(kept), budget)

    assert shown == [(name.decode(), kept[name]) for name in wanted[offset : offset + limit]]
    assert listing.total == len(wanted)


@given(counts, counts, st.integers(1, 30))
def test_what_comes_meanwhile_disturbs_nothing(
    kept: dict[bytes, int], coming: dict[bytes, int], budget: int
) -> None:
    held = table(kept)
    listing = SubjectListing(ALL, 0, 10**6)
    for name, count in coming.items():
        if listing.step(held, budget):
            break
        if name not in kept:
            add(held, {name: count})
    shown = listed(listing, held, budget)

    names = [name.encode() for name, _ in shown]
    assert names == sorted(set(names))
    assert set(kept) <= set(names) <= set(kept) | set(coming)


@given(counts, counts, st.integers(1, 30))
def test_a_table_that_is_emptied_meanwhile_is_listed_anew_from_there(
    kept: dict[bytes, int], other: dict[bytes, int], budget: int
) -> None:
    held = table(kept)
    listing = SubjectListing(ALL, 0, 10**6)
    if listing.step(held, budget):
        return
    held.clear()
    add(held, other)
    shown = listed(listing, held, budget)

    names = [name.encode() for name, _ in shown]
    assert names == sorted(set(names))
    assert set(names) <= set(kept) | set(other)


@pytest.mark.parametrize("sizes", [[5_000], [5_000, 1], [5_000, 3_000, 1, 9_000], [1] * 20])
def test_newcomers_are_put_in_order_among_the_others(sizes: list[int]) -> None:
    chance = random.Random(sum(sizes))
    held, kept = SubjectTable(), dict[bytes, int]()
    for size in sizes:
        coming = {b"%d.%d" % (chance.randrange(10**6), len(kept) + each): 1 for each in range(size)}
        add(held, coming)
        kept |= coming
        # Others look for subjects in between, and have the order brought up to date as well.
        held.matching(SubjectFilter([b"1.>"]))
        shown = listed(SubjectListing(ALL, 0, 10**6), held, 700)

        assert shown == [(name.decode(), 1) for name in sorted(kept)]


def test_names_that_are_no_text_are_written_as_the_real_server_writes_them() -> None:
    held = table({b'a"<>&\\': 1, b"b\xff\xc3": 2, b"c\xe2\x80\xa8": 3})
    listing = SubjectListing(ALL, 0, 10)
    listing.step(held, EVERYTHING)

    assert listing.json.text == (
        b'{"a\\"\\u003c\\u003e\\u0026\\\\":1,"b\xef\xbf\xbd\xef\xbf\xbd":2,"c\\u2028":3}'
    )


def test_no_subject_is_no_object() -> None:
    listing = SubjectListing(SubjectFilter([b"none"]), 0, 10)

    assert listing.step(table({b"a": 1}), EVERYTHING)
    assert not listing.json
