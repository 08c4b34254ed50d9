"""A stream's directory in numbers, by its block indexes, without a server and without a lock.

The numbers are those of the store's own state, except that expired messages are still counted: only
an open store removes them. Beside a server that writes, they are a snapshot.

Read-only; one thread at a time, as the reader. Called by the command line and by Spark's jobs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from penstock.errors import CorruptStore, FormatError
from penstock.format.block import BlockHeader, decode_block_header
from penstock.format.envelope import Cipher, Compression, read_algorithms
from penstock.format.index.block_index import BlockIndex
from penstock.format.index.pick import add_live
from penstock.format.layout import block_name
from penstock.format.reader import SEQ_MAX, StreamReader
from penstock.format.record import ENVELOPED, decode
from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter

RECORDS_LOOKED_AT = 64
"""The newest records of which one must be compressed for the stream to be called so."""


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream in numbers; an empty one's first sequence is the next to come."""

    messages: int
    bytes: int
    """Counted as the reference server counts: 30 + subject + payload (+ 4 + headers) a message."""

    first_seq: int
    first_time_ns: int
    last_seq: int
    last_time_ns: int
    table: SubjectTable
    """The subjects with their number of messages."""

    live_by_block: dict[int, int]

    @property
    def subjects(self) -> int:
        """The number of distinct subjects."""
        return self.table.live

    @property
    def deleted(self) -> int:
        """Sequences between first and last without a message."""
        return max(self.last_seq - self.first_seq + 1 - self.messages, 0)


def top_subjects(summary: StreamSummary, count: int) -> list[tuple[bytes, int]]:
    """Return the subjects with the most messages, most first."""
    totals = summary.table.totals(SubjectFilter([]))
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:count]


def summarize(reader: StreamReader) -> StreamSummary:
    """Add up the blocks that a reader found."""
    messages = size = first_seq = first_time_ns = last_time_ns = 0
    table = SubjectTable()
    live_by_block: dict[int, int] = {}
    for block in reader.blocks:
        if not block.count:
            continue
        last_time_ns = max(last_time_ns, block.last_time_ns)
        try:
            index = reader.load_index(block.number)
        except (FileNotFoundError, CorruptStore):
            continue
        live, live_bytes, seq, time_ns = add_live(index, reader.removed, table)
        live_by_block[block.number] = live
        if live and not messages:
            first_seq, first_time_ns = seq, time_ns
        messages += live
        size += live_bytes
    last_seq = reader.last_seq
    return StreamSummary(
        messages,
        size,
        first_seq or last_seq + 1,
        first_time_ns,
        last_seq,
        last_time_ns,
        table,
        live_by_block,
    )


def find_sealing(reader: StreamReader) -> tuple[Compression, Cipher]:
    """Return how the newest records are compressed and encrypted, for a writer that goes on."""
    for block in reversed(reader.blocks):
        try:
            index = reader.load_index(block.number)
            data = reader.read_block(block.number)
        except (FileNotFoundError, CorruptStore):
            continue
        if index.count:
            header = decode_block_header(index.header, block_name(block.number))
            return _newest_compression(index, data, header), Cipher(header.cipher)
    return Compression.NONE, Cipher.NONE


def _newest_compression(index: BlockIndex, data: bytes, header: BlockHeader) -> Compression:
    # What does not get smaller is stored as it is, so one record alone does not tell.
    for ordinal in range(index.count - 1, max(index.count - 1 - RECORDS_LOOKED_AT, -1), -1):
        _, offset, length, *_ = index.entry(ordinal)
        seed = (header.seed + offset) & SEQ_MAX
        with contextlib.suppress(FormatError):
            record = decode(data[offset : offset + length], seed=seed)
            if record.flags & ENVELOPED and (found := read_algorithms(record.payload)[0]):
                return found
    return Compression.NONE
