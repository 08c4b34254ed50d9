"""Opening the blocks of a directory: by their indexes, or by a scan where those do not serve.

The last block is scanned, unless a checkpoint tells that it was sealed when the store was stopped:
what was being written when a process ended lies at its end, and here it is told what of that is
torn and what is damage.

What always holds: nothing is written.

Called by recovery.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import msgspec

from penstock.errors import PenstockError
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    decode_block_header,
    encode_block_header,
)
from penstock.format.block_index import BlockIndex
from penstock.format.block_walker import BlockWalker
from penstock.format.damage import Damage
from penstock.format.layout import block_name
from penstock.format.state import Checkpoint, HighWater
from penstock.format.subject_table import SubjectTable
from penstock.store.block_account import Block
from penstock.store.block_head import BlockHead
from penstock.store.block_survey import Survey, read_file
from penstock.store.engine import Engine

Walked: TypeAlias = tuple[bytes, BlockIndex, BlockWalker]
"""A block's bytes, the index that was made of them, and the walker that made it."""


class FoundBlock(msgspec.Struct):
    """A block that was opened, by its index or by a scan."""

    block: Block
    index: BlockIndex
    is_scanned: bool = False
    durable_bytes: int = 0
    """Of the last block: what is known to be on stable storage."""

    torn: bytes = b""
    """Of the last block: what is to be cut off."""

    written: bytes = b""
    """Of the last block: what is whole, and perhaps not on stable storage yet."""


class EarlyWalk:
    """The walk through the last block, begun while all the others are looked at.

    It takes most of an opening's time and needs nothing but its own file; both halves run without
    the interpreter lock for nearly all of it. What comes of it counts only for a block whose header
    is the one that it met.
    """

    def __init__(self, engine: Engine, number: int) -> None:
        self._name = block_name(number)
        self._path = engine.file_path(self._name)
        self._header: BlockHeader | None = None
        self._walked: Walked | None = None
        self._thread = threading.Thread(target=self._run, args=(engine,), daemon=True)
        self._thread.start()

    def _run(self, engine: Engine) -> None:
        # Whatever fails here is met again, and told, where the block is due.
        with contextlib.suppress(OSError, PenstockError):
            data = read_file(engine, self._name) or b""
            self._header = decode_block_header(data[:HEADER_BYTES], self._path)
            self._walked = _walk(self._header, data)

    def wait(self) -> None:
        """Let nothing of it go on."""
        self._thread.join()

    def take(self, header: BlockHeader) -> Walked | None:
        """Give what came of it, once, where it is of the block with this header."""
        self._thread.join()
        walked, self._walked = self._walked, None
        return walked if self._header == header else None


class Known(msgspec.Struct):
    """What is told apart from the blocks."""

    checkpoint: Checkpoint | None
    mark: HighWater | None
    early: EarlyWalk | None = None

    @property
    def last_block(self) -> tuple[int, int]:
        """The number of the last block that is told of, 0 for none, and how long it was."""
        told = [(0, 0) if self.mark is None else (self.mark.block, self.mark.block_bytes)]
        if self.checkpoint is not None:
            told += [(each.number, each.bytes) for each in self.checkpoint.blocks[-1:]]
        return max(told)

    @property
    def salt(self) -> int:
        """The stream's salt, 0 where nothing tells it."""
        if self.checkpoint is not None:
            return self.checkpoint.salt
        return 0 if self.mark is None else self.mark.salt

    @property
    def last_seq(self) -> int:
        """The highest sequence that was ever told to be durable."""
        told = [0 if self.mark is None else self.mark.last_seq]
        if self.checkpoint is not None:
            # The mark is not synced with every commit; the checkpoint is, with what it tells of.
            told.append(self.checkpoint.last_seq)
        return max(told)

    @property
    def last_time_ns(self) -> int:
        """The time of the newest message that was ever told to be durable."""
        told = [0 if self.mark is None else self.mark.last_time_ns]
        if self.checkpoint is not None:
            told.append(self.checkpoint.last_time_ns)
        return max(told)

    def durable_bytes(self, head: BlockHead) -> int:
        """Give how much of a block is known to be on stable storage."""
        number, size = self.last_block
        if number == head.number:
            return size
        return head.size if number > head.number else 0

    def is_settled(self, found: FoundBlock) -> bool:
        """Tell whether the checkpoint covers all of the last block: the store was stopped."""
        if self.checkpoint is None or not self.checkpoint.blocks:
            return False
        last = self.checkpoint.blocks[-1]
        return (last.number, last.bytes) == (found.block.number, found.index.block_bytes)


class Stock(msgspec.Struct):
    """What one attempt to take stock comes to."""

    found: list[FoundBlock] = msgspec.field(default_factory=list)
    never_acknowledged: list[BlockHead] = msgspec.field(default_factory=list)
    """Blocks whose first commit was not finished."""

    scanned: list[int] = msgspec.field(default_factory=list)
    rebuilt: list[int] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


def open_blocks(
    engine: Engine, survey: Survey, known: Known, stock: Stock, numbers: list[int]
) -> list[FoundBlock]:
    """Open blocks by their indexes, scanning those that have none, on all cores."""
    found: dict[int, FoundBlock] = {}
    to_scan: list[BlockHead] = []
    for number in numbers:
        head = survey.heads[number]
        index = None if number == numbers[-1] else _index_of(engine, head)
        if index is None:
            to_scan.append(head)
            if number != numbers[-1]:
                stock.rebuilt.append(number)
        else:
            found[number] = FoundBlock(_block_of(head), index)
    stock.scanned += [head.number for head in to_scan]

    def scan(head: BlockHead) -> FoundBlock:
        if head.number == numbers[-1]:
            return _scan_last(engine, survey, known, head)
        return _scan_sealed(engine, head)

    for each in _on_all_cores(scan, to_scan):
        found[each.block.number] = each
    return [found[number] for number in numbers]


def _on_all_cores(
    scan: Callable[[BlockHead], FoundBlock], heads: list[BlockHead]
) -> list[FoundBlock]:
    if len(heads) < 2:
        # A server opens many stores at once, and a thread for each costs more than a short scan.
        return [scan(head) for head in heads]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(scan, heads))


def header_of(head: BlockHead) -> BlockHeader:
    """Give the header of a block that can be read."""
    assert head.header is not None, "only blocks that can be read are opened"
    return head.header


def _block_of(head: BlockHead) -> Block:
    header = header_of(head)
    block = Block(header.number, header.generation, header.base_seq, header.seed, head.path)
    block.header = header
    return block


def _index_of(engine: Engine, head: BlockHead) -> BlockIndex | None:
    """Give a sealed block's index where it is whole and fits the file."""
    index = engine.cache.read_index(_block_of(head))
    if index is None or index.block_bytes != head.size:
        return None
    return index if index.header == encode_block_header(header_of(head)) else None


def _walk(header: BlockHeader, data: bytes) -> Walked:
    index = BlockIndex(
        header.number,
        header.generation,
        header.base_seq,
        encode_block_header(header),
        SubjectTable(),
    )
    walker = BlockWalker(data, block=header.number, seed=header.seed, base_seq=header.base_seq)
    walker.index_into(index)
    return data, index, walker


def _scan_sealed(engine: Engine, head: BlockHead) -> FoundBlock:
    data = read_file(engine, block_name(head.number)) or b""
    _, index, walker = _walk(header_of(head), data)
    _count_tail(index, walker, len(data), walker.last_seq)
    return FoundBlock(_block_of(head), index, is_scanned=True)


def _count_tail(index: BlockIndex, walker: BlockWalker, size: int, last_seq: int) -> None:
    """Report what lies behind the last whole record of a block that is not written to again."""
    if size > walker.whole_bytes:
        index.damage.append(
            Damage(
                index.number,
                walker.whole_bytes,
                size - walker.whole_bytes,
                "no whole record up to the end",
                walker.last_seq + 1,
                last_seq,
            )
        )
        index.cover(size)


def _scan_last(engine: Engine, survey: Survey, known: Known, head: BlockHead) -> FoundBlock:
    """Scan the last block and tell what of its end is torn and what is damaged.

    A commit is synced before the next one is written. So, beyond what is known to be durable,
    bytes that are missing can only be the last commit's, which was never acknowledged: it is cut
    off where it first fails, and what arrived of it behind that place goes too.
    """
    walked = None if known.early is None else known.early.take(header_of(head))
    if walked is None:
        walked = _walk(header_of(head), read_file(engine, block_name(head.number)) or b"")
    data, index, walker = walked
    durable = known.durable_bytes(head)
    if any(other.number > head.number and other.size for other in survey.heads.values()):
        durable = max(durable, len(data))
    cut = min(
        (
            damage.offset
            for damage in walker.damage
            if damage.offset >= durable and damage.offset > walker.commit_start
        ),
        default=walker.whole_bytes,
    )
    if cut < walker.whole_bytes:
        _, index, walker = _walk(header_of(head), data[:cut])
    found = FoundBlock(_block_of(head), index, is_scanned=True, durable_bytes=durable)
    if walker.whole_bytes < durable:
        _count_tail(index, walker, len(data), max(known.last_seq, walker.last_seq))
    else:
        found.torn = data[walker.whole_bytes :]
        found.written = data[min(durable, walker.whole_bytes) : walker.whole_bytes]
    return found
