"""Records picked out of a sealed block by its index, without reading what lies between them."""

from typing_extensions import disjoint_base

from penstock.format.columns import ColumnBuilder
from penstock.format.envelope import Unseal
from penstock.format.files import ReadableFile
from penstock.format.index.block_index import BlockIndex
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter

def read_entries(fd: int, ordinals: bytes, count: int) -> bytes:
    """Return single entries of an index file by their numbers; raises FormatError for none such."""
    ...

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
    @staticmethod
    def of_unverified(index: BlockIndex, subjects: SubjectFilter) -> IndexPicks:
        """Pick all that is wanted by an index whose entries were not verified."""
        ...

    @property
    def index(self) -> BlockIndex:
        """Whose entries they are."""
        ...

    @property
    def count(self) -> int:
        """How many records are wanted."""
        ...

    def fill(
        self,
        builder: ColumnBuilder,
        file: ReadableFile,
        first: int,
        *,
        gap_max: int,
        bytes_max: int,
        rows_max: int,
        seed: int,
        unseal: Unseal | None,
    ) -> int:
        """Add picks from `first` on, read from the block's file; give the first that is left.

        Raises FormatError where a record is not what the index says.
        """
        ...

def add_live(
    index: BlockIndex, removed: SequenceSet, table: SubjectTable
) -> tuple[int, int, int, int]:
    """Count the entries that were not removed, in all and under their subjects in `table`.

    Returns (messages, bytes, first sequence, first time); without a message all are 0.
    """
    ...
