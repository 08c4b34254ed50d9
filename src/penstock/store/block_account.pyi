"""The account of one block: how much of it is live, and where its index and files are."""

from typing import TypeAlias

from typing_extensions import disjoint_base

from penstock.format.block import BlockHeader
from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import Unseal
from penstock.format.block_summary import BlockSummary
from penstock.store.active_block import ActiveBlock
from penstock.store.block_files import BlockFiles

# `bytes` is also a member below, so the type goes by another name there.
_Bytes: TypeAlias = bytes

@disjoint_base
class Block:
    """One block's account."""

    index: BlockIndex | None
    index_pinned: bool
    active: ActiveBlock | None
    files: BlockFiles | None
    touched: bool
    unseal: Unseal | None
    header: BlockHeader | None
    expiring: int
    erased: int

    def __init__(
        self, number: int, generation: int, base_seq: int, seed: int, path: str
    ) -> None: ...
    @property
    def number(self) -> int:
        """The block's number."""
        ...

    @property
    def generation(self) -> int:
        """0 as first written, one more at each rewrite."""
        ...

    @property
    def base_seq(self) -> int:
        """No sequence of the block is below it."""
        ...

    @property
    def last_seq(self) -> int:
        """The highest sequence that the block accounts for."""
        ...

    @property
    def count(self) -> int:
        """Entries of its index, removed ones included."""
        ...

    @property
    def bytes(self) -> int:
        """The file's length."""
        ...

    @property
    def live(self) -> int:
        """Messages that are not removed."""
        ...

    @property
    def live_bytes(self) -> int:
        """What they count for in the stream's bytes."""
        ...

    @property
    def live_disk_bytes(self) -> int:
        """The bytes of their records."""
        ...

    @property
    def first_time_ns(self) -> int:
        """The earliest time of an entry."""
        ...

    @property
    def last_time_ns(self) -> int:
        """The latest time of an entry."""
        ...

    @property
    def seed(self) -> int:
        """The seed of its checksums."""
        ...

    @property
    def path(self) -> str:
        """The block file's path."""
        ...

    @property
    def dead_count(self) -> int:
        """Entries that were removed."""
        ...

    @property
    def dead_bitmap(self) -> _Bytes:
        """The bitmap of removed entries, b"" where there is none."""
        ...

    @staticmethod
    def restored(summary: BlockSummary, header: BlockHeader, path: str) -> Block:
        """Give the account of a block as a checkpoint tells it; the file's header is at hand."""
        ...

    def cut(self, last_seq: int) -> None:
        """Forget the sequences above one, after the file was cut behind it."""
        ...

    def follow(self, index: BlockIndex) -> None:
        """Take length, last sequence and times from an index that knows better."""
        ...

    def dead_at(self, ordinal: int) -> bool:
        """Tell whether an entry was removed."""
        ...
