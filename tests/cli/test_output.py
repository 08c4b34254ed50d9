"""How values look to people and programs, and how times are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.arguments import parse_time
from penstock.cli.output import count, moment, parse_headers, printable, rfc3339, size
from penstock.errors import UsageError

NOW_NS = 1_784_548_800_000_000_000


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (8 * 1024**2, "8.0 MiB"),
        (5 * 1024**4, "5.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_a_size_is_shown_in_the_unit_that_suits_it(value: int, shown: str) -> None:
    assert size(value) == shown


def test_a_count_has_its_thousands_apart() -> None:
    assert count(1234567) == "1,234,567"


def test_no_time_is_none_and_a_time_has_nine_digits() -> None:
    assert rfc3339(0) is None
    assert rfc3339(NOW_NS + 1) == "2026-07-20T12:00:00.000000001Z"
    assert moment("2026-07-20T12:00:00.000000001Z") == "2026-07-20 12:00:00.000Z"


def test_a_time_beyond_the_calendar_is_shown_as_a_number() -> None:
    assert rfc3339(2**63 - 1) == "2262-04-11T23:47:16.854775807Z"
    assert rfc3339(10**22) == "10000000000000000000000 ns"


@given(st.integers(1, 2**63 - 1))
def test_a_time_that_was_printed_is_read_back_exactly(time_ns: int) -> None:
    text = rfc3339(time_ns)
    assert text is not None

    assert parse_time(text, NOW_NS) == time_ns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", NOW_NS - 15 * 60 * 10**9),
        ("2h", NOW_NS - 2 * 3600 * 10**9),
        ("3d", NOW_NS - 3 * 86400 * 10**9),
        ("250ms", NOW_NS - 250 * 10**6),
        ("2026-07-20", NOW_NS - 12 * 3600 * 10**9),
        ("2026-07-20T12:00", NOW_NS),
        ("2026-07-20 14:00:00+02:00", NOW_NS),
        ("2026-07-20T12:00:00.25Z", NOW_NS + 250 * 10**6),
    ],
)
def test_a_time_may_be_a_moment_or_how_long_ago(text: str, expected: int) -> None:
    assert parse_time(text, NOW_NS) == expected


@pytest.mark.parametrize("text", ["", "soon", "12 parsecs", "2026-13-01", "-2h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time(text, NOW_NS)


@given(st.binary())
def test_printable_text_never_has_a_character_that_does_not_print(data: bytes) -> None:
    assert printable(data).isprintable()


def test_headers_are_given_by_name_with_all_their_values() -> None:
    block = b"NATS/1.0\r\nKey: a\r\nKey:  b\r\nOther:\r\nnot a header\r\n\r\n"

    assert parse_headers(block) == {"Key": ["a", "b"], "Other": [""]}
    assert parse_headers(b"") == {}
