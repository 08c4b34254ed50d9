"""The records of one block of Go's nats-server, from its plain (decrypted, unpacked) bytes."""

from array import array
from dataclasses import dataclass

from typing_extensions import Buffer

from penstock.format.columns import ColumnBuilder
from penstock.format.golang.state import SubjectMatcher

@dataclass(slots=True)
class DamagedBytes:
    """Bytes of a block that hold no whole record, and the sequences before and after (0: none)."""

    offset: int
    length: int
    reason: str
    seq_before: int
    seq_after: int

class GoBlock:
    """The records of a block: what lives, what was removed, and what is damaged."""

    row_count: int
    first_ordered_seq: int
    last_ordered_seq: int
    highest_seq: int
    highest_timestamp_ns: int
    tombstones: list[int]
    erased: list[int]
    skipped: list[int]
    damage: list[DamagedBytes]

    def __init__(self, plain: Buffer, key: bytes) -> None: ...
    @property
    def first_seq(self) -> int:
        """Return the lowest sequence of a message in the block, or 0."""
        ...
    @property
    def last_seq(self) -> int:
        """Return the highest sequence of a message in the block, or 0."""
        ...
    def fill(
        self,
        builder: ColumnBuilder,
        first_seq: int,
        last_seq: int,
        deleted: array[int],
        subjects: SubjectMatcher | None = None,
    ) -> bytes:
        """Add the messages of a range of sequences; give their sizes on disk, as u32."""
        ...
