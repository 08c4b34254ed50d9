"""A set of sequences as sorted ranges, and its encoding."""

from collections.abc import Iterator

from typing_extensions import Buffer

from penstock.format.range_leaves import RangeLeaves

class SequenceSet(RangeLeaves):
    """A set of sequences (uint64); arguments outside uint64 raise OverflowError."""

    @property
    def first(self) -> int | None:
        """The lowest sequence, or None."""
        ...

    @property
    def last(self) -> int | None:
        """The highest sequence, or None."""
        ...

    def __len__(self) -> int: ...
    def __contains__(self, key: int, /) -> bool: ...
    def __iter__(self) -> Iterator[int]: ...
    def __eq__(self, value: object, /) -> bool: ...
    def add(self, seq: int) -> bool:
        """Add one sequence; tell whether it was missing."""
        ...

    def add_range(self, first: int, last: int) -> int:
        """Add first to last, both included; return how many were missing."""
        ...

    def remove(self, seq: int) -> bool:
        """Remove one sequence; tell whether it was there."""
        ...

    def remove_range(self, first: int, last: int) -> int:
        """Remove first to last, both included; return how many were there."""
        ...

    def update(self, other: SequenceSet) -> None:
        """Add every sequence of the other set."""
        ...

    def add_between(self, other: SequenceSet, first: int, last: int) -> None:
        """Add the sequences of another set that lie within first to last, both included."""
        ...

    def clear(self) -> None:
        """Remove everything and give the memory back."""
        ...

    def copy(self) -> SequenceSet:
        """Return a copy of the set."""
        ...

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Iterate over (first, last) in order; a change ahead of the iteration is seen."""
        ...

    def parts(self, ranges_max: int) -> list[SequenceSet]:
        """Return sets of at most `ranges_max` ranges each that together are this one."""
        ...

    def ranges_between(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Iterate over the parts of ranges that lie within first to last, in order."""
        ...

    def count_between(self, first: int, last: int) -> int:
        """Count the sequences from first to last, both included."""
        ...

    def memory_bytes(self) -> int:
        """Return how many bytes the set occupies."""
        ...

    def encode(self) -> bytes:
        """Return the bytes of the set; equal sets have equal bytes."""
        ...

    @staticmethod
    def decode(buffer: Buffer) -> SequenceSet:
        """Read an encoding back; raises FormatError for anything that `encode` does not write."""
        ...
