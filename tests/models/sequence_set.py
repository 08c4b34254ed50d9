"""A set of sequences as a plain Python set: slow, and obviously right."""

from __future__ import annotations

from collections.abc import Iterator


class SequenceSetModel:
    """What SequenceSet promises, said with a built-in set."""

    def __init__(self) -> None:
        self.members: set[int] = set()

    def add_range(self, first: int, last: int) -> int:
        """Add first to last; return how many were missing."""
        missing = set(range(first, last + 1)) - self.members
        self.members |= missing
        return len(missing)

    def remove_range(self, first: int, last: int) -> int:
        """Remove first to last; return how many were there."""
        there = self.members.intersection(range(first, last + 1))
        self.members -= there
        return len(there)

    def ranges_between(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Return the ranges that lie within first to last."""
        start: int | None = None
        previous = 0
        for seq in sorted(seq for seq in self.members if first <= seq <= last):
            if start is not None and seq != previous + 1:
                yield start, previous
                start = None
            start = seq if start is None else start
            previous = seq
        if start is not None:
            yield start, previous

    def ranges(self) -> list[tuple[int, int]]:
        """Return all ranges."""
        return list(self.ranges_between(0, 2**64 - 1))
