"""Batches of messages as columns: packed offsets and one data buffer each, as in Arrow."""

from collections.abc import Iterator

import msgspec
from typing_extensions import disjoint_base

class MessageRow(msgspec.Struct, frozen=True):
    """One message, for people and tests; `offset` is its place in the block file."""

    seq: int
    timestamp_ns: int
    subject: bytes
    headers: bytes
    payload: bytes
    offset: int = 0

class ColumnBatch(msgspec.Struct, frozen=True):
    """`count` messages of a block, or of `blocks`, as little-endian packed columns."""

    block: int
    count: int
    sequences: bytes
    timestamps: bytes
    offsets: bytes
    subject_offsets: bytes
    subjects: bytes
    header_offsets: bytes
    headers: bytes
    payload_offsets: bytes
    payloads: bytes
    blocks: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int: ...
    def messages(self) -> Iterator[MessageRow]:
        """Yield each row as a MessageRow."""
        ...

@disjoint_base
class ColumnBuilder:
    """Columns being filled; see the module."""

    def __new__(cls, *, headers: bool = True, payloads: bool = True) -> ColumnBuilder: ...
    @property
    def count(self) -> int:
        """Messages added since the last `take`."""
        ...

    def append(
        self,
        seq: int,
        timestamp_ns: int,
        offset: int,
        subject: bytes,
        headers: bytes,
        payload: bytes,
    ) -> None:
        """Add one message from Python objects."""
        ...

    def extend(self, batch: ColumnBatch) -> None:
        """Add all messages of a ColumnBatch."""
        ...

    def data_bytes(self) -> int:
        """Return how many bytes of subjects, headers and payloads are held."""
        ...

    def take(self, block: int) -> ColumnBatch:
        """Hand over what was added as a ColumnBatch of that block, and start afresh."""
        ...
