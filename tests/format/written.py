"""Block files written record by record with the codec alone, for tests that then damage them.

A `BlockWriter` keeps what it wrote and where, so that a test can say which messages must survive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.format.block import HEADER_BYTES, BlockHeader, encode_block_header
from penstock.format.block_walker import BlockWalker
from penstock.format.columns import ColumnBuilder, MessageRow
from penstock.format.envelope import Unseal
from penstock.format.index.block_index import BlockIndex
from penstock.format.record import SKIP, TOMBSTONE, encode
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.format.varint import put_uvarint

START_NS = 1_700_000_000_000_000_000
U64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Written:
    """One record in the block: where it lies, and the message if it is one."""

    offset: int
    length: int
    seq: int
    message: MessageRow | None

    @property
    def end(self) -> int:
        return self.offset + self.length


class BlockWriter:
    """A block being written by a test."""

    def __init__(
        self, *, number: int = 7, salt: int = 0x5EED, base_seq: int = 1, generation: int = 0
    ) -> None:
        self.header = BlockHeader(number, salt, base_seq, START_NS, generation)
        self.data = bytearray(encode_block_header(self.header))
        self.records: list[Written] = []
        self.next_seq = base_seq

    def add(
        self,
        subject: bytes,
        payload: bytes = b"",
        *,
        headers: bytes = b"",
        seq: int | None = None,
        timestamp_ns: int | None = None,
        flags: int = 0,
        expires_ns: int = 0,
    ) -> int:
        """Write one record under the next or the given sequence; give the sequence."""
        seq = self.next_seq if seq is None else seq
        timestamp_ns = START_NS + seq if timestamp_ns is None else timestamp_ns
        offset = len(self.data)
        self.data += encode(
            subject,
            headers,
            payload,
            seq=seq,
            timestamp_ns=timestamp_ns,
            flags=flags,
            expires_ns=expires_ns,
            seed=(self.header.seed + offset) & U64,
        )
        message = MessageRow(seq, timestamp_ns, subject, headers, payload, offset)
        self.records.append(
            Written(offset, len(self.data) - offset, seq, None if flags else message)
        )
        self.next_seq = max(self.next_seq, seq + 1)
        return seq

    def add_many(self, subjects: Iterable[bytes]) -> None:
        """Write a message under each subject."""
        for subject in subjects:
            self.add(subject, b"payload of " + subject)

    def skip(self, count: int = 1) -> None:
        """Write a skip record over the next `count` sequences."""
        payload = bytearray()
        if count > 1:
            put_uvarint(payload, count)
        first = self.add(b"", bytes(payload), flags=SKIP)
        self.next_seq = first + count

    def bury(self, *seqs: int) -> None:
        """Write a tombstone of these sequences."""
        removed = SequenceSet()
        for seq in seqs:
            removed.add(seq)
        self.add(b"", removed.encode(), seq=self.next_seq - 1, flags=TOMBSTONE)

    @property
    def messages(self) -> list[MessageRow]:
        return [record.message for record in self.records if record.message is not None]

    def walker(self, data: bytes | None = None) -> BlockWalker:
        """Start a walk over the block, or over what a test made of its bytes."""
        return BlockWalker(
            bytes(self.data) if data is None else data,
            block=self.header.number,
            seed=self.header.seed,
            base_seq=self.header.base_seq,
        )

    def index(self, data: bytes | None = None, table: SubjectTable | None = None) -> BlockIndex:
        """Build the block's index by a walk."""
        index = BlockIndex(
            self.header.number,
            self.header.generation,
            self.header.base_seq,
            bytes(self.data[:HEADER_BYTES]),
            SubjectTable() if table is None else table,
        )
        self.walker(data).index_into(index)
        return index


def read_all(
    walker: BlockWalker, removed: SequenceSet | None = None, unseal: Unseal | None = None
) -> list[MessageRow]:
    """Walk to the end; give every message."""
    builder = ColumnBuilder()
    while walker.fill(builder, removed=removed, unseal=unseal):
        pass
    return list(builder.take(walker.block).messages())
