"""Plans: every block once, in order, within the limits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.options import Size
from penstock.spark.part import Splitting, Weighed, group_units


def weighed(sizes: list[int]) -> list[Weighed[int]]:
    return [Weighed(number, size, size) for number, size in enumerate(sizes)]


@given(
    sizes=st.lists(st.integers(1, 100), max_size=40),
    least=st.integers(1, 50),
    records=st.integers(0, 300),
    size_max=st.integers(1, 300),
)
def test_every_block_is_in_one_part_and_no_part_is_too_large(
    sizes: list[int], least: int, records: int, size_max: int
) -> None:
    units = weighed(sizes)

    parts = group_units(units, Splitting(least, records, Size(size_max)))

    assert [block for part in parts for block in part] == [each.unit for each in units]
    assert all(parts)
    assert len(parts) >= min(least, len(units))
    for part in parts:
        assert len(part) == 1 or sum(sizes[each] for each in part) <= size_max
        assert len(part) == 1 or not records or sum(sizes[each] for each in part) <= records


def test_parts_that_are_wished_for_are_about_even() -> None:
    parts = group_units(weighed([10] * 12), Splitting(min_partitions=4))

    assert [len(part) for part in parts] == [3, 3, 3, 3]


def test_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="minPartitions"):
        msgspec.convert({"minPartitions": 0}, Splitting)
