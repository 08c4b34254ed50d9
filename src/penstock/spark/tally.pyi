"""Messages counted by subject, hour and size, without a Python object for any of them."""

import msgspec
from typing_extensions import Buffer, disjoint_base

from penstock.format.index.block_index import BlockIndex
from penstock.format.sequence_set import SequenceSet
from penstock.subjects import SubjectFilter

class Cells(msgspec.Struct, frozen=True):
    """Cells as packed columns, 64 bits each, with the groups' names: offsets (int32) and bytes."""

    count: int
    group_offsets: bytes
    groups: bytes
    hours: bytes
    size_classes: bytes
    messages: bytes
    sizes: bytes
    first_seqs: bytes
    last_seqs: bytes
    first_times: bytes
    last_times: bytes

@disjoint_base
class Tally:
    """Cells being counted; see the module."""

    def __new__(
        cls, *, depth: int = -1, by_hour: bool = False, subjects: SubjectFilter | None = None
    ) -> Tally:
        """`depth` is how many tokens of a subject make its group; below 0 all of them."""
        ...

    @property
    def cell_count(self) -> int:
        """How many cells there are."""
        ...

    def add_index(
        self,
        index: BlockIndex,
        removed: SequenceSet,
        *,
        first_seq: int = 0,
        last_seq: int = ...,
        first_ns: int = ...,
        last_ns: int = ...,
    ) -> None:
        """Count the live messages of a block, by its index."""
        ...

    def add_rows(
        self,
        subject_offsets: Buffer,
        subjects: Buffer,
        sequences: Buffer,
        times: Buffer,
        sizes: Buffer,
    ) -> None:
        """Count rows of columns; a subject's offsets are one more than the rows."""
        ...

    def take(self) -> Cells:
        """Return the cells, and begin anew."""
        ...
