"""What is live in one block, by its index: messages, bytes, the first of them, their subjects."""

from penstock.format.block_index import BlockIndex
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable

def add_live(
    index: BlockIndex, removed: SequenceSet, table: SubjectTable
) -> tuple[int, int, int, int]:
    """Count the entries that were not removed, in all and under their subjects in `table`.

    Gives (messages, bytes, first sequence, first time); without a message all are 0.
    """
    ...
