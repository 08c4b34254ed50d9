"""Sorted disjoint ranges in chunked leaves; for compiled code."""

from typing_extensions import disjoint_base

@disjoint_base
class RangeLeaves:
    """The ranges that a SequenceSet is made of."""

    @property
    def range_count(self) -> int:
        """How many ranges there are."""
        ...
