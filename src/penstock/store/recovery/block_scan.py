"""Opening the blocks of a directory: by their indexes, or by a scan if those do not serve.

The last block is scanned, unless a checkpoint records that it was sealed when the store was
stopped: its end may hold what was being written when a process ended. What each block holds, and
what of its end is torn or damaged, is decided by `format.block_contents`.

Invariant: nothing is written.

Called by recovery, on all cores where there is more than one block to scan.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from penstock.errors import PenstockError
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    ScannedBlock,
    decode_block_header,
)
from penstock.format.block_contents import (
    BlockContents,
    Walked,
    index_fits,
    walk_block,
    walk_last,
    walk_sealed,
)
from penstock.format.directory import Survey, durable_bytes
from penstock.format.files import ReadableFile, read_file
from penstock.format.layout import block_name
from penstock.store.log.block import Block
from penstock.store.log.block_cache import BlockCache
from penstock.store.vfs import FileSystem


class StoreFolder:
    """A folder of the store's file system, as the readers of the format see folders."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = path
        self._files = files

    def list_names(self) -> list[str]:
        """Return the names in the folder; raises FileNotFoundError."""
        return self._files.list_names(self.path)

    def open(self, name: str) -> ReadableFile:
        """Open a file of the folder; raises FileNotFoundError."""
        return self._files.open(f"{self.path}/{name}", "read")


class OpenedBlock(msgspec.Struct):
    """A block of the store, and what its file holds."""

    block: Block
    contents: BlockContents


class EarlyWalk:
    """The walk through the last block, begun while all the others are surveyed.

    It takes most of the time of an open and needs nothing but its own file; both halves run without
    the interpreter lock for nearly all of it. Its result is used only if the survey finds the same
    header for the block.
    """

    def __init__(self, folder: StoreFolder, number: int) -> None:
        self._name = block_name(number)
        self._folder = folder
        self._walked: Walked | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # A failure here is met again, and raised, when the block is opened.
        with contextlib.suppress(OSError, PenstockError):
            data = read_file(self._folder, self._name) or b""
            header = decode_block_header(data[:HEADER_BYTES], f"{self._folder.path}/{self._name}")
            self._walked = walk_block(header, data)

    def wait(self) -> None:
        """Return when the walk has ended."""
        self._thread.join()

    def take(self, header: BlockHeader) -> Walked | None:
        """Return the result, once, if it is of the block with this header."""
        self._thread.join()
        walked, self._walked = self._walked, None
        return walked if walked is not None and walked.header == header else None


class Opened(msgspec.Struct):
    """The blocks that one attempt to fill the ledger opened, in order."""

    blocks: list[OpenedBlock] = msgspec.field(default_factory=list)
    scanned: list[int] = msgspec.field(default_factory=list)
    rebuilt: list[int] = msgspec.field(default_factory=list)
    """Sealed blocks whose index is missing or does not fit."""

    @property
    def contents(self) -> list[BlockContents]:
        """What the blocks hold."""
        return [each.contents for each in self.blocks]


def open_blocks(
    cache: BlockCache, survey: Survey, early: EarlyWalk | None, numbers: list[int]
) -> Opened:
    """Open blocks by their indexes, scanning those that have none, on all cores."""
    opened = Opened()
    found: dict[int, BlockContents] = {}
    to_scan: list[ScannedBlock] = []
    for number in numbers:
        scanned = survey.blocks[number]
        contents = None if number == numbers[-1] else _by_index(cache, scanned)
        if contents is None:
            to_scan.append(scanned)
            if number != numbers[-1]:
                opened.rebuilt.append(number)
        else:
            found[number] = contents
    opened.scanned += [scanned.number for scanned in to_scan]

    def scan(scanned: ScannedBlock) -> BlockContents:
        if scanned.number == numbers[-1]:
            return _scan_last(survey, early, scanned)
        return walk_sealed(header_of(scanned), _bytes_of(survey, scanned))

    for contents in _on_all_cores(scan, to_scan):
        found[contents.header.number] = contents
    opened.blocks = [OpenedBlock(block_of(survey.blocks[each]), found[each]) for each in numbers]
    return opened


def _on_all_cores(
    scan: Callable[[ScannedBlock], BlockContents], blocks: list[ScannedBlock]
) -> list[BlockContents]:
    if len(blocks) < 2:
        # A server opens many stores at once, and a thread for each costs more than a short scan.
        return [scan(block) for block in blocks]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(scan, blocks))


def header_of(scanned: ScannedBlock) -> BlockHeader:
    """Return the header of a block that can be read."""
    assert scanned.header is not None, "only blocks that can be read are opened"
    return scanned.header


def block_of(scanned: ScannedBlock) -> Block:
    """Return the store's block of a file that can be read."""
    header = header_of(scanned)
    block = Block(header.number, header.generation, header.base_seq, header.seed, scanned.path)
    block.header = header
    return block


def _bytes_of(survey: Survey, scanned: ScannedBlock) -> bytes:
    return read_file(survey.folder, block_name(scanned.number)) or b""


def _by_index(cache: BlockCache, scanned: ScannedBlock) -> BlockContents | None:
    """Return what a sealed block holds by its index, or None if that is damaged or does not fit."""
    header = header_of(scanned)
    index = cache.read_index(block_of(scanned))
    if index is None or not index_fits(index, header, scanned.size):
        return None
    return BlockContents(header, index)


def _scan_last(survey: Survey, early: EarlyWalk | None, scanned: ScannedBlock) -> BlockContents:
    header = header_of(scanned)
    walked = None if early is None else early.take(header)
    if walked is None:
        walked = walk_block(header, _bytes_of(survey, scanned))
    durable = durable_bytes(survey, header, len(walked.data))
    return walk_last(walked, durable=durable, last_seq=survey.state.last_seq)
