"""One block as a checkpoint tells of it."""

from typing import TypeAlias

from typing_extensions import disjoint_base

# `bytes` is also a member below, so the type goes by another name there.
_Bytes: TypeAlias = bytes

@disjoint_base
class BlockSummary:
    """One block in a checkpoint; `dead` is the bitmap of removed entries. Never changed."""

    def __init__(
        self,
        number: int,
        generation: int,
        base_seq: int,
        last_seq: int,
        count: int,
        live: int,
        bytes: int,
        live_bytes: int,
        live_disk_bytes: int,
        first_time_ns: int,
        last_time_ns: int,
        expiring: int,
        dead: _Bytes,
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
    def live(self) -> int:
        """Messages that are not removed."""
        ...

    @property
    def bytes(self) -> int:
        """The file's length."""
        ...

    @property
    def live_bytes(self) -> int:
        """What the live messages count for in the stream's bytes."""
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
    def expiring(self) -> int:
        """Messages with a time to live, removed ones included."""
        ...

    @property
    def dead(self) -> _Bytes:
        """The bitmap of removed entries, b"" where there are none."""
        ...

def encode_summary(summary: BlockSummary) -> bytes:
    """Give a summary's bytes, its bitmap included."""
    ...

def decode_summaries(
    data: bytes, at: int, end: int, count: int, path: str
) -> tuple[list[BlockSummary], int]:
    """Read `count` summaries from data[at:end]; give them and where they end.

    Raises CorruptStore where they do not fit.
    """
    ...
