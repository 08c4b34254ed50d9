"""Filters of a query that narrow what is read: comparisons of sequences, times and subjects.

Spark passes them to a batch reader before it plans, if `pushdown=true` and the session's
`spark.sql.python.filterPushdown.enabled` are set. All are returned to Spark, which checks each row
again: what is read is never less than what matches.

Off by default: Spark 4.3 keeps the narrowed plan for other uses of the same DataFrame, which then
miss rows. Tables of the catalog are planned anew for every query, and are safe if a query reads
each of them once. Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from penstock.format.reader import SEQ_MAX, TIME_MAX, TIME_MIN
from penstock.limits import PUSHED_SUBJECTS_MAX
from penstock.spark import schema
from penstock.spark.schema import Column
from penstock.subjects import is_literal, is_subset, is_valid_subject, patterns_overlap

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

Bounds = tuple[int, int]
Patterns = tuple[str, ...]


class Pushdown(msgspec.Struct, frozen=True):
    """Option: whether a query's filters narrow what is read."""

    pushdown: bool = False


class PushedFilters(msgspec.Struct, frozen=True):
    """What is left by a query's filters: at least the messages that match them."""

    first_seq: int = 0
    last_seq: int = SEQ_MAX
    first_ns: int = TIME_MIN
    last_ns: int = TIME_MAX
    subjects: Patterns | None = None
    """Patterns of which one matches a message's subject; None for any subject."""

    @property
    def is_nothing(self) -> bool:
        """True if no message can match."""
        return self.first_seq > self.last_seq or self.first_ns > self.last_ns or self.subjects == ()


def narrow(filters: Iterable[Filter], columns: Sequence[Column]) -> PushedFilters:
    """Return what filters leave that must all hold; filters that cannot be used are ignored."""
    held = {each.name.lower(): each.holds for each in columns}
    sequences: Bounds = (0, SEQ_MAX)
    times: Bounds = (TIME_MIN, TIME_MAX)
    subjects: Patterns | None = None
    for each in filters:
        holds = _column_of(each, held)
        if holds == schema.SUBJECT.holds:
            subjects = both(subjects, _patterns_of(each))
        elif holds == schema.SEQUENCE.holds:
            sequences = _within(sequences, _bounds_of(each, _whole))
        elif holds == schema.TIME_NS.holds:
            times = _within(times, _bounds_of(each, _whole))
        elif holds == schema.TIMESTAMP.holds:
            times = _within(times, _bounds_of(each, _microseconds))
    return PushedFilters(*sequences, *times, subjects)


def both(one: Patterns | None, other: Patterns | None) -> Patterns | None:
    """Return patterns for the subjects that match both sets; if no pattern is exact, that of
    `one`."""
    if one is None or other is None:
        return other if one is None else one
    common: dict[str, None] = {}
    for pattern in one:
        for narrower in other:
            if is_subset(narrower.encode(), pattern.encode()):
                common[narrower] = None
            elif patterns_overlap(narrower.encode(), pattern.encode()):
                common[pattern] = None
    return _without_doubles(common)


def _without_doubles(patterns: Iterable[str]) -> Patterns:
    # A server refuses a consumer with patterns of which one covers another.
    every = list(patterns)
    return tuple(
        each
        for each in every
        if not any(each != other and is_subset(each.encode(), other.encode()) for other in every)
    )


def _column_of(each: Filter, held: Mapping[str, str]) -> str:
    path: Any = getattr(each, "attribute", ())
    return held.get(path[0].lower(), "") if len(path) == 1 else ""


# Subjects


def _patterns_of(each: Filter) -> Patterns | None:
    match each:
        case EqualTo(_, str(value)) | EqualNullSafe(_, str(value)):
            return _literals([value])
        case In(_, values):
            return _literals(values)
        case StringStartsWith(_, value):
            # Patterns have whole tokens: a prefix that ends within a token is left to
            # Spark.
            start = value.rpartition(".")[0]
            return (f"{start}.>",) if start and _is_exact(start) else None
        case _:
            return None


def _literals(values: Iterable[Any]) -> Patterns | None:
    names = [each for each in values if each is not None]
    if len(names) > PUSHED_SUBJECTS_MAX or not all(map(_is_exact, names)):
        return None
    return tuple(dict.fromkeys(names))


def _is_exact(name: str) -> bool:
    # Bytes that are no UTF-8 are shown as U+FFFD, so a name with that letter may be another.
    encoded = name.encode()
    return "\ufffd" not in name and is_valid_subject(encoded) and is_literal(encoded)


# Numbers and times


def _whole(value: Any) -> Bounds | None:
    return (value, value) if isinstance(value, int) else None


def _microseconds(value: Any) -> Bounds | None:
    # A microsecond of the table is a thousand nanoseconds of the stream, on either side.
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    exact = (value - _EPOCH) // _MICROSECOND * 1000
    return exact - 999, exact + 999


def _bounds_of(each: Filter, read: Any) -> Bounds | None:
    values = list(_values_of(each))
    read_values = [read(value) for value in values]
    if not values or None in read_values:
        return None
    low = min(first for first, _ in read_values)
    high = max(last for _, last in read_values)
    match each:
        case EqualTo() | EqualNullSafe() | In():
            return low, high
        case GreaterThan():
            # A microsecond may hold later nanoseconds, so it is not excluded.
            return (low + 1 if low == high else low), TIME_MAX
        case GreaterThanOrEqual():
            return low, TIME_MAX
        case LessThan():
            return TIME_MIN, (high - 1 if low == high else high)
        case LessThanOrEqual():
            return TIME_MIN, high
        case _:
            return None


def _values_of(each: Filter) -> Iterator[Any]:
    if isinstance(each, In):
        yield from (value for value in each.value if value is not None)
    elif isinstance(
        each,
        (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual),
    ):
        yield each.value


def _within(one: Bounds, other: Bounds | None) -> Bounds:
    if other is None:
        return one
    return max(one[0], other[0]), min(one[1], other[1])
