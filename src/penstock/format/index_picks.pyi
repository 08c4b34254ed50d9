"""Records picked out of a sealed block by its index, without reading what lies between them."""

from typing_extensions import Buffer, disjoint_base

from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import Unseal
from penstock.format.columns import ColumnBuilder
from penstock.format.sequence_set import SequenceSet
from penstock.subjects import SubjectFilter

@disjoint_base
class IndexPicks:
    """The wanted entries of one index; see the module."""

    def __init__(
        self,
        index: BlockIndex,
        subjects: SubjectFilter,
        *,
        first_seq: int,
        last_seq: int,
        first_ns: int,
        last_ns: int,
        removed: SequenceSet,
    ) -> None: ...
    @property
    def count(self) -> int:
        """How many records are wanted."""
        ...

    def stretches(
        self, gap_max: int, bytes_max: int, rows_max: int
    ) -> list[tuple[int, int, int, int]]:
        """Give (offset, bytes, first pick, end pick) of what is read together."""
        ...

    def fill(
        self,
        builder: ColumnBuilder,
        data: Buffer,
        offset: int,
        first: int,
        end: int,
        seed: int,
        unseal: Unseal | None,
    ) -> None:
        """Add picks whose bytes lie in `data`; raises FormatError where they are not there."""
        ...
