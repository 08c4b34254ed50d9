"""What is imported is called by its name here, and the name leads back."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.routing.transforms import ImportNames
from penstock.subjects import matches

TOKENS = (b"a", b"b", b"x")
SUBJECTS = [b".".join(each) for size in (1, 2, 3, 4) for each in product(TOKENS, repeat=size)]
PATTERNS = st.builds(
    lambda tokens, rest: ".".join([*tokens, ">"] if rest else tokens),
    st.lists(st.sampled_from(["a", "b", "x", "*"]), min_size=1, max_size=3),
    st.booleans(),
)


@st.composite
def namings(draw: st.DrawFn) -> tuple[str, str]:
    """Return what is imported, and one of its names."""
    there = draw(PATTERNS)
    count = there.split(".").count("*")
    wildcards = draw(st.permutations([f"${n}" for n in range(1, count + 1)]))
    words = draw(st.lists(st.sampled_from(["a", "new"]), min_size=1, max_size=2))
    tokens = draw(st.permutations([*words, *wildcards]))
    return there, ".".join([*tokens, ">"] if there.endswith(">") else tokens)


@given(namings())
def test_a_name_leads_back_to_its_subject(naming: tuple[str, str]) -> None:
    there, here = naming
    names = ImportNames(there, here)
    for subject in SUBJECTS:
        if matches(there.encode(), subject):
            assert matches(names.pattern, names.here(subject))
            assert names.there(names.here(subject)) == subject


@given(namings(), PATTERNS)
def test_a_pattern_takes_those_subjects_whose_names_it_matches(
    naming: tuple[str, str], pattern: str
) -> None:
    there, here = naming
    names = ImportNames(there, here)
    taken = names.overlap(pattern.encode())
    for subject in SUBJECTS:
        is_wanted = matches(there.encode(), subject) and matches(
            pattern.encode(), names.here(subject)
        )
        assert is_wanted == (taken is not None and matches(taken, subject))


@pytest.mark.parametrize(
    ("there", "here", "subject", "name"),
    [
        ("orders.>", "", b"orders.1", b"orders.1"),
        ("orders.>", "from_a.>", b"orders.1.2", b"from_a.1.2"),
        ("calc.*.*", "sums.$2.$1", b"calc.1.2", b"sums.2.1"),
        ("calc.*.*", "sums.*.{{ Wildcard(2) }}", b"calc.1.2", b"sums.1.2"),
        ("help", "h.elp", b"help", b"h.elp"),
        ("orders.>", "from_a.>", b"other", b"other"),
    ],
)
def test_names_are_made_of_what_wildcards_match(
    there: str, here: str, subject: bytes, name: bytes
) -> None:
    assert ImportNames(there, here).here(subject) == name


@pytest.mark.parametrize(("there", "here"), [("a.*.*", "b.$1"), ("a.>", "b"), ("a.*", "b.$2")])
def test_a_name_that_loses_something_is_refused(there: str, here: str) -> None:
    with pytest.raises(UsageError):
        ImportNames(there, here)
