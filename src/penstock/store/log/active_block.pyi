"""The one block that is being written: its index, and the bytes on their way to the disk."""

from collections.abc import Callable
from typing import TypeAlias

from typing_extensions import disjoint_base

from penstock.format.index.block_index import BlockIndex
from penstock.format.sequence_set import SequenceSet
from penstock.store.vfs import File

_Reseal: TypeAlias = Callable[[int, int, bytes, bytes, bytes], bytes]

# `bytes` is also a member below, so the type goes by another name there.
_Bytes: TypeAlias = bytes

@disjoint_base
class Chunk:
    """Bytes of a block on their way to the disk."""

    @property
    def size(self) -> int:
        """How many bytes."""
        ...

    @property
    def start(self) -> int:
        """Where in the block file they belong."""
        ...

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@disjoint_base
class ActiveBlock:
    """The block being written; see the module."""

    def __init__(
        self,
        index: BlockIndex,
        path: str,
        seed: int,
        file: File | None = None,
        *,
        usual_bytes: int = 0,
    ) -> None: ...

    file: File | None
    file_bytes: int
    """How long the file is: behind the records come zeros, room for more."""

    @property
    def index(self) -> BlockIndex:
        """The block's index, which grows with it."""
        ...

    @property
    def number(self) -> int:
        """The block's number."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the block's checksums."""
        ...

    @property
    def path(self) -> str:
        """The block file's path."""
        ...

    @property
    def bytes(self) -> int:
        """What the file will hold once everything is written."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes that no chunk has taken yet."""
        ...

    @property
    def usual_bytes(self) -> int:
        """How much was taken at once lately, at the most: the next will be about as much."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the file is longer than what the block holds."""
        ...

    def append_skip(self, seq: int, count: int, timestamp_ns: int) -> int:
        """Reserve `count` sequences from `seq` on without data."""
        ...

    def append_tombstone(self, removed: SequenceSet, last_seq: int, timestamp_ns: int) -> None:
        """Append the removal of these sequences; `last_seq` is the stream's last one."""
        ...

    def copy_live(
        self,
        data: _Bytes,
        seed: int,
        old: BlockIndex,
        dead: _Bytes,
        reseal: _Reseal | None,
    ) -> list[int]:
        """Append the live records of another block's bytes; give the ordinals that are damaged.

        `dead` is the bitmap of removed entries; `reseal(seq, time, subject, headers, payload)`
        gives the new payload of an enveloped record.
        """
        ...

    def take(self) -> Chunk | None:
        """Hand over what is pending as a Chunk, or None."""
        ...

    def written(self) -> None:
        """Note that the oldest chunk in flight is in the file; old ones are forgotten."""
        ...

    def forget_written(self) -> None:
        """Drop the written bytes that are kept for readers (an erase must not leave them)."""
        ...
