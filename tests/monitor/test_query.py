"""Query strings are read strictly, and nothing in them does harm."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.monitor.query import INT64_MAX, UINT64_MAX, Query


def test_first_of_repeated_parameters_counts() -> None:
    assert Query("acc=A&acc=B").text("acc") == "A"


def test_parameters_are_unescaped() -> None:
    assert Query("test=foo%2Ebar+x&%61cc=A").text("test") == "foo.bar x"
    assert Query("%61cc=A").text("acc") == "A"


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_truth_has_six_spellings(text: str) -> None:
    assert Query(f"auth={text}").boolean("auth") is True


@pytest.mark.parametrize("text", ["tRUE", "yes", "on", " 1", "2"])
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid syntax"):
        Query(f"auth={text}").boolean("auth")


@given(st.integers(-INT64_MAX - 1, INT64_MAX))
def test_numbers_of_64_bits_are_read(value: int) -> None:
    assert Query(f"limit={value}").integer("limit") == value


@given(st.integers(INT64_MAX + 1) | st.integers(max_value=-INT64_MAX - 2))
def test_larger_numbers_are_refused(value: int) -> None:
    with pytest.raises(UsageError, match="value out of range"):
        Query(f"limit={value}").integer("limit")


@given(st.integers(UINT64_MAX + 1))
def test_larger_numbers_without_a_sign_are_refused(value: int) -> None:
    with pytest.raises(UsageError, match="value out of range"):
        Query(f"cid={value}").unsigned("cid")


@given(st.text())
@example("limit=" + "9" * 10_000)
@example("limit=\uff11\uff12")
@example("=&&;=%")
def test_any_text_is_read_or_refused(text: str) -> None:
    query = Query(text)
    readers = (query.boolean, query.integer, query.unsigned)
    for read in readers:
        for name in ("limit", "auth", ""):
            with contextlib.suppress(UsageError):
                read(name)
    with contextlib.suppress(UsageError):
        query.state()
    with contextlib.suppress(UsageError):
        query.subscriptions()
