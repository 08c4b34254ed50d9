"""The blocks of a stream's directory, found one by one: headers, indexes, walks, and their damage.

A block is told of by the head of its index where that fits it, else by walking it. What is damaged
is noted in `damage`, once; a damaged header is mended where its index or its checksum allows it.

Read-only: it takes no lock and never opens a file for writing. One thread at a time. For readers of
whole streams; see `reader`.
"""

from __future__ import annotations

import msgspec

from penstock.errors import CorruptStore
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    correct_block_header,
    decode_block_header,
    encode_block_header,
)
from penstock.format.block_index import BlockIndex
from penstock.format.block_walker import BlockWalker
from penstock.format.damage import Damage
from penstock.format.files import LocalFolder, ReadableFolder
from penstock.format.index_head import IndexHead, count_wanted, read_head, read_unverified
from penstock.format.layout import block_name, block_number, index_name
from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter


class Found(msgspec.Struct, frozen=True):
    """A block as it was found: by the head of its index where that fits, else by a walk."""

    header: BlockHeader
    head: IndexHead
    sealed: bool
    tail_bytes: int = 0
    """What a walk found after the last whole record."""


class Walked(msgspec.Struct, frozen=True):
    """A block that was walked."""

    found: Found
    index: BlockIndex
    walker: BlockWalker
    data: bytes


class Unfinished(CorruptStore):
    """A block file that is shorter than a header: of the newest block, it is being begun."""


class BlockFolder:
    """A directory's blocks; see the module."""

    def __init__(self, folder: ReadableFolder | str) -> None:
        self.folder = LocalFolder(folder) if isinstance(folder, str) else folder
        self.damage: list[Damage] = []

    def block_numbers(self) -> list[int]:
        """Give the numbers of the blocks that are there now, in order."""
        return sorted(
            number
            for name in self.folder.list_names()
            if (number := block_number(name)) is not None
        )

    def report(self, damage: Damage) -> None:
        """Note damage, once."""
        if damage not in self.damage:
            self.damage.append(damage)

    def read_file(self, name: str) -> bytes:
        """Give a whole file of the directory; raises FileNotFoundError."""
        file = self.folder.open(name)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def path(self, number: int) -> str:
        """Give where a block is, for people."""
        return f"{self.folder.path}/{block_name(number)}"

    def load_index(self, number: int) -> BlockIndex:
        """Give a block's index, removed messages included, walking the block where it has none.

        Raises FileNotFoundError where the block is gone, CorruptStore where its header is.
        """
        head = self.header_bytes(number)
        index = self.index_file(number)
        header = self.header(number, head, index)
        if index is not None and _fits(index, header):
            return index
        return self.walk(number).index

    def find(self, number: int) -> Found:
        """Tell what a block holds, reading no more than it must; raises as `load_index` does."""
        head = self.header_bytes(number)
        index = self._index_head(number)
        header = self.header(number, head, index)
        if index is not None and _fits(index, header):
            return Found(header, index, sealed=True)
        return self.walk(number).found

    def header_bytes(self, number: int) -> bytes:
        """Give the first bytes of a block; raises FileNotFoundError."""
        file = self.folder.open(block_name(number))
        try:
            return file.read_at(0, HEADER_BYTES)
        finally:
            file.close()

    def index_file(self, number: int) -> BlockIndex | None:
        """Give what the index file says, or None where it is missing or damaged."""
        try:
            return BlockIndex.load(self.read_file(index_name(number)), index_name(number))
        except (FileNotFoundError, CorruptStore):
            return None

    def _index_head(self, number: int) -> IndexHead | None:
        """Give the head of the index file, or None where it is missing or damaged."""
        try:
            file = self.folder.open(index_name(number))
        except FileNotFoundError:
            return None
        try:
            head = read_head(file)
        except CorruptStore:
            head = None
        finally:
            file.close()
        if head is not None:
            return head
        whole = self.index_file(number)
        return None if whole is None else IndexHead.of(whole)

    def count_wanted(self, number: int, subjects: SubjectFilter) -> int | None:
        """Give how many entries of a block a filter wants, by its index; None where none tells.

        Removed messages are counted, too. Raises FileNotFoundError where the block is gone.
        """
        header = self.header_bytes(number)
        try:
            file = self.folder.open(index_name(number))
        except FileNotFoundError:
            return None
        try:
            count = count_wanted(file, header, subjects)
        except CorruptStore:
            count = None
        finally:
            file.close()
        if count is not None:
            return count
        whole = self.index_file(number)
        if whole is None or whole.header != header:
            return None
        return whole.count_matching(subjects)

    def unverified_index(self, number: int, subjects: SubjectFilter) -> BlockIndex | None:
        """Give an index to look for what a filter wants, not verified; None as of `index_file`."""
        try:
            file = self.folder.open(index_name(number))
        except FileNotFoundError:
            return None
        try:
            return read_unverified(file, subjects)
        except CorruptStore:
            return None
        finally:
            file.close()

    def header(self, number: int, head: bytes, index: BlockIndex | IndexHead | None) -> BlockHeader:
        """Read a block's header; a damaged one is reported and mended, by the index or alone."""
        path = self.path(number)
        try:
            header = decode_block_header(head, path)
            reason = f"the header says block {header.number}"
        except CorruptStore as error:
            header, reason = None, error.reason
        if header is not None and header.number == number:
            return header
        if index is not None and index.number == number:
            mended: BlockHeader | None = decode_block_header(index.header, path)
        else:
            mended = correct_block_header(head, path)
        if mended is None or mended.number != number:
            kind = Unfinished if len(head) < HEADER_BYTES else CorruptStore
            raise kind(path, 0, reason)
        self.report(Damage(number, 0, HEADER_BYTES, reason, 1, 0))
        return mended

    def walk(self, number: int) -> Walked:
        """Build a block's index anew from its bytes; raises as `load_index` does."""
        data = self.read_file(block_name(number))
        head = data[:HEADER_BYTES]
        header = self.header(number, head, self.index_file(number))
        walker = BlockWalker(data, block=number, seed=header.seed, base_seq=header.base_seq)
        index = BlockIndex(number, header.generation, header.base_seq, head, SubjectTable())
        walker.index_into(index)
        # Only a sealed block is ever rewritten.
        is_sealed = header.generation > 0
        tail_bytes = len(data) - walker.whole_bytes
        found = Found(header, IndexHead.of(index), is_sealed, tail_bytes)
        return Walked(found, index, walker, data)


def _fits(index: BlockIndex | IndexHead, header: BlockHeader) -> bool:
    # An index fits one generation of one block, whose header it repeats. Another block may have
    # had the number before, and a rewrite may have overtaken its index.
    return index.header == encode_block_header(header)
