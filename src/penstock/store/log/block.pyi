"""A block of an open store: its counts, its open files, and the messages read from it."""

from collections.abc import Callable
from typing import TypeAlias

from typing_extensions import disjoint_base

from penstock.format.block import BlockHeader, BlockSummary
from penstock.format.envelope import Unseal
from penstock.format.index.block_index import BlockIndex
from penstock.store.log.active_block import ActiveBlock
from penstock.store.vfs import File

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
    index_bytes: int

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
        """Return a block as a checkpoint describes it; the caller has read the file's header."""
        ...

    def cut(self, last_seq: int) -> None:
        """Forget the sequences above one, after the file was cut behind it."""
        ...

    def follow(self, index: BlockIndex) -> int:
        """Take length, last sequence and times from an index that knows better."""
        ...

    def dead_at(self, ordinal: int) -> bool:
        """Return True if an entry was removed."""
        ...

@disjoint_base
class BlockFiles:
    """The open files of one block; `open_index` gives its index file when it is first needed."""

    def __init__(
        self, path: str, block_file: File, open_index: Callable[[], File | None]
    ) -> None: ...
    @property
    def path(self) -> str:
        """The block file's path."""
        ...

    def read_bytes(self, offset: int, size: int) -> bytes:
        """Read `size` bytes of the block; raises CorruptStore where it ends before."""
        ...

    def close(self) -> None:
        """Close both files."""
        ...

@disjoint_base
class StoredMessage:
    """One message of the store."""

    @property
    def seq(self) -> int:
        """Its sequence."""
        ...

    @property
    def timestamp_ns(self) -> int:
        """When it was stored."""
        ...

    @property
    def expires_ns(self) -> int:
        """When its own time to live ends; 0 for never."""
        ...

    @property
    def subject(self) -> bytes:
        """The subject it was stored under."""
        ...

    @property
    def headers(self) -> bytes:
        """The header block as it came, or b""."""
        ...

    @property
    def payload(self) -> bytes:
        """The payload."""
        ...
