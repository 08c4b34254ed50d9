"""A walk over the records of one block that steps over damage, and what is built from it."""

from typing_extensions import Buffer, disjoint_base

from penstock.format.columns import ColumnBuilder
from penstock.format.damage import Damage
from penstock.format.envelope import Unseal
from penstock.format.index.block_index import BlockIndex
from penstock.format.sequence_set import SequenceSet
from penstock.subjects import SubjectFilter

@disjoint_base
class BlockWalker:
    """One walk; see the module."""

    def __init__(
        self, data: Buffer, *, block: int, seed: int, base_seq: int, offset: int = 128
    ) -> None: ...
    @property
    def block(self) -> int:
        """The block's number, for reports."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the block's checksums."""
        ...

    @property
    def base_seq(self) -> int:
        """No record is below it."""
        ...

    @property
    def last_seq(self) -> int:
        """The highest sequence that a whole record told of."""
        ...

    @property
    def offset(self) -> int:
        """Where the next record is looked for."""
        ...

    @property
    def whole_bytes(self) -> int:
        """Where the last whole record ended."""
        ...

    @property
    def commit_start(self) -> int:
        """Where the last commit that left its first record began; 0 for none."""
        ...

    @property
    def damage(self) -> list[Damage]:
        """What was stepped over so far."""
        ...

    def agrees_with(self, index: BlockIndex) -> bool:
        """Walk to the end; tell whether every byte is whole and just what a loaded index says."""
        ...

    def index_into(self, index: BlockIndex) -> None:
        """Walk to the end and add every message to an index that is being built."""
        ...

    def fill(
        self,
        builder: ColumnBuilder,
        *,
        subjects: SubjectFilter | None = None,
        first_seq: int = 0,
        last_seq: int = ...,
        first_ns: int = ...,
        last_ns: int = ...,
        removed: SequenceSet | None = None,
        rows_max: int = 65536,
        bytes_max: int = 16777216,
        unseal: Unseal | None = None,
    ) -> bool:
        """Add messages to the columns until they are full or the walk ends (then False).

        `removed` holds sequences that are gone; `unseal(record fields) -> (headers, payload)`
        opens enveloped records.
        """
        ...
