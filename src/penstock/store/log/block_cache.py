"""What is kept open and in memory of sealed blocks: their files and their indexes, both bounded.

Both caches give everything a second chance: an entry that was touched since it was last looked at
stays. An index file that is missing or damaged is built again from its block.

Under the store's lock.
"""

from __future__ import annotations

import contextlib
from collections import deque
from functools import partial

from penstock.errors import CorruptStore, FormatError
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    decode_block_header,
    encode_block_header,
)
from penstock.format.block_walker import BlockWalker
from penstock.format.envelope import unsealer
from penstock.format.index.block_index import BlockIndex
from penstock.format.index.head import count_wanted
from penstock.format.layout import STATE_NAME, index_name
from penstock.format.subject_table import SubjectTable
from penstock.limits import INDEX_CACHE_BYTES_MAX, OPEN_BLOCKS_MAX
from penstock.store.directory import StoreDirectory
from penstock.store.health import StoreHealth
from penstock.store.log.block import Block, BlockFiles
from penstock.store.log.ledger import Ledger
from penstock.store.settings import StoreSettings
from penstock.store.vfs import File
from penstock.subjects import SubjectFilter


class BlockCache:
    """Open files and loaded indexes of sealed blocks; see the module."""

    def __init__(
        self, settings: StoreSettings, directory: StoreDirectory, health: StoreHealth
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._health = health
        self._ledger: Ledger | None = None
        self.rebuilt_indexes: set[int] = set()
        """Blocks whose index had to be built again because its file was of no use."""

        self._indexed: deque[Block] = deque()
        self._index_bytes = 0
        self._opened: deque[Block] = deque()

    def follow(self, ledger: Ledger) -> None:
        """Note in this ledger from now on whether there is room for more indexes."""
        self._ledger = ledger

    @property
    def index_bytes(self) -> int:
        """Memory held by loaded indexes."""
        return self._index_bytes

    def open_files(self, block: Block) -> BlockFiles:
        """Open a block's files, closing others where too many are open."""
        while len(self._opened) >= OPEN_BLOCKS_MAX:
            other = self._opened.popleft()
            if other.touched and other.files is not None:
                other.touched = False
                self._opened.append(other)
            else:
                self._close(other)
        if block.unseal is None:
            self._find_key(block)
        block_file = self._directory.files.open(block.path, "read")
        block.files = BlockFiles(block.path, block_file, partial(self._open_index, block))
        self._opened.append(block)
        return block.files

    def _open_index(self, block: Block) -> File | None:
        # Single entries are read from it and nothing checks them, so all of it is checked now.
        if self.read_index(block) is None:
            return None
        return self._directory.files.open(
            self._directory.file_path(index_name(block.number)), "read"
        )

    def _header(self, block: Block) -> BlockHeader:
        # The index has a copy of it.
        if block.header is None:
            file = self._directory.files.open(block.path, "read")
            try:
                block.header = decode_block_header(file.read_at(0, HEADER_BYTES), block.path)
            except CorruptStore:
                block.header = decode_block_header(self.index_of(block).header, block.path)
            finally:
                file.close()
        return block.header

    def _find_key(self, block: Block) -> None:
        # The header tells how the block's envelopes are opened.
        name = self._settings.config.name.encode()
        block.unseal = unsealer(self._header(block), name, self._settings.key, block.path)

    def index_of(self, block: Block) -> BlockIndex:
        """Return a block's index, from memory or from its file."""
        return block.index if block.index is not None else self.load_index(block)

    def last_checksum(self, block: Block) -> int:
        """Return the checksum of a block's last record, or 0 if unknown; loads no index."""
        index = block.index if block.index is not None else self.read_index(block)
        return 0 if index is None else index.last_checksum

    def load_index(self, block: Block) -> BlockIndex:
        """Bring a sealed block's index into memory, building it again where it must be."""
        index = self.read_index(block)
        if index is None:
            index = self._rebuild(block)
        block.index = index
        self.admit(block)
        return index

    def read_index(self, block: Block) -> BlockIndex | None:
        """Return the index from its file, or None if it is missing, damaged or of another block."""
        files = self._directory.files
        path = self._directory.file_path(index_name(block.number))
        try:
            file = files.open(path, "read")
        except FileNotFoundError:
            return None
        try:
            index = BlockIndex.load(file.read_at(0, file.size()), path)
        except (CorruptStore, FormatError) as error:
            self._health.note_problem(error)
            return None
        finally:
            file.close()
        if (index.number, index.generation) != (block.number, block.generation):
            return None
        return index

    def count_wanted(self, block: Block, subjects: SubjectFilter) -> int | None:
        """Return how many entries a filter wants by the index's subjects alone, or None to load it.

        Dead ones are counted. It is read anew each time, some percent of the index.
        """
        header = self._header(block)
        try:
            file = self._directory.files.open(
                self._directory.file_path(index_name(block.number)), "read"
            )
        except FileNotFoundError:
            return None
        try:
            return count_wanted(file, encode_block_header(header), subjects)
        except CorruptStore as error:
            self._health.note_problem(error)
            return None
        finally:
            file.close()

    def _rebuild(self, block: Block) -> BlockIndex:
        file = self._directory.files.open(block.path, "read")
        try:
            data = file.read_at(0, file.size())
        finally:
            file.close()
        index = build_index(data, block)
        if index.count != block.count:
            error = CorruptStore(
                block.path,
                0,
                f"the index is lost and the block holds {index.count} of {block.count} records: "
                "reopen the store to take stock",
            )
            self._doubt_sums(error)
            raise error
        try:
            self._directory.replace_index(block.number, index.encode())
        except OSError as error:
            self._health.note_problem(error)
        self.rebuilt_indexes.add(block.number)
        return BlockIndex.load(index.encode(), block.path)

    def _doubt_sums(self, error: CorruptStore) -> None:
        # The blocks are not as counted: no writes, and the next open adds them up.
        self._health.fail(error)
        with contextlib.suppress(OSError):
            self._directory.files.unlink(self._directory.file_path(STATE_NAME))

    def admit(self, block: Block) -> None:
        """Count a loaded index, and let go of others where they are too many."""
        assert block.index is not None, "an index is counted when it is loaded"
        self._indexed.append(block)
        block.index_bytes = block.index.memory_bytes()
        self._index_bytes += block.index_bytes
        turns = len(self._indexed)
        while self._index_bytes > INDEX_CACHE_BYTES_MAX and len(self._indexed) > 1 and turns > 0:
            other = self._indexed.popleft()
            if other is block or (other.touched and turns > len(self._indexed) // 2):
                other.touched = False
                self._indexed.append(other)
                turns -= 1
                continue
            self._drop_index(other)
        if self._ledger is not None:
            self._ledger.note_index_room(self._index_bytes * 8 < INDEX_CACHE_BYTES_MAX * 7)

    def forget(self, block: Block) -> None:
        """Close a block's files and drop its index: it was rewritten or removed."""
        if block in self._opened:
            self._opened.remove(block)
        self._close(block)
        if block in self._indexed:
            self._indexed.remove(block)
            self._drop_index(block)
        block.unseal = None

    def close(self) -> None:
        """Close every file and drop every index."""
        while self._opened:
            self._close(self._opened.popleft())
        while self._indexed:
            self._drop_index(self._indexed.popleft())

    def _close(self, block: Block) -> None:
        if block.files is not None:
            block.files.close()
            block.files = None

    def _drop_index(self, block: Block) -> None:
        if block.index is not None:
            self._index_bytes -= block.index_bytes
            if not block.index_pinned:
                block.index = None


def build_index(data: bytes, block: Block) -> BlockIndex:
    """Build a block's index from its bytes, and freeze it."""
    index = BlockIndex(
        block.number, block.generation, block.base_seq, data[:HEADER_BYTES], SubjectTable()
    )
    walker = BlockWalker(data, block=block.number, seed=block.seed, base_seq=block.base_seq)
    walker.index_into(index)
    index.freeze()
    return index
