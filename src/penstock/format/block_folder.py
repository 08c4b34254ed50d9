"""The blocks of a stream's directory, one at a time: their headers, indexes and records.

For readers that know which blocks they want. A block is described by its index if that fits it,
else by walking it. A damaged header is mended as `directory` mends it; damage is noted in `damage`,
once. `verify` reads every byte of every block and compares it with its index.

Read-only: it takes no lock and never opens a file for writing, and works beside a server that goes
on writing. One thread at a time. Called by `StreamReader` and by Spark tasks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from penstock.errors import CorruptStore
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    decode_block_header,
    encode_block_header,
)
from penstock.format.block_contents import (
    TAIL_REASON,
    Walked,
    index_fits,
    walk_block,
    without_room,
)
from penstock.format.block_walker import BlockWalker
from penstock.format.damage import Damage
from penstock.format.directory import read_state, survey_directory
from penstock.format.envelope import StoreKey, unsealer
from penstock.format.files import FileStart, LocalFolder, ReadableFolder, read_file, read_starts
from penstock.format.index.block_index import BlockIndex
from penstock.format.index.head import count_wanted, read_unverified
from penstock.format.layout import block_name, block_number, index_name
from penstock.format.record import DELETED
from penstock.subjects import SubjectFilter

BLOCK_MAX = 2**32 - 1
INDEX_MISSING = "index missing: it is rebuilt when the store is opened"
INDEX_OLD = "index of another generation: it is rebuilt when opened"
UNFINISHED = "begun and not finished"


class BlockCheck(msgspec.Struct):
    """What verifying one block found."""

    number: int
    bytes: int = 0
    messages: int = 0
    damage: list[Damage] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    tail_bytes: int = 0
    """Bytes after the last whole record: torn, or being written right now."""


class Unfinished(CorruptStore):
    """A last block that was begun and never finished: no message of it was acknowledged."""


class BlockFolder:
    """A directory's blocks; see the module."""

    def __init__(
        self,
        folder: ReadableFolder | str,
        *,
        stream: str = "stream",
        key: StoreKey | None = None,
    ) -> None:
        """Name the directory; nothing is read yet. `stream` and `key` open encrypted blocks."""
        self.folder = LocalFolder(folder) if isinstance(folder, str) else folder
        self.damage: list[Damage] = []
        self._stream = stream.encode()
        self._key = key

    def block_numbers(self) -> list[int]:
        """Return the numbers of the blocks that are there now, in order."""
        return sorted(
            number
            for name in self.folder.list_names()
            if (number := block_number(name)) is not None
        )

    def report(self, damage: Damage) -> None:
        """Note damage, once for each place."""
        if not any(damage.is_at(each) for each in self.damage):
            self.damage.append(damage)

    def path(self, number: int) -> str:
        """Return a block's path, for messages to people."""
        return f"{self.folder.path}/{block_name(number)}"

    def read_block(self, number: int) -> bytes:
        """Return the bytes of a block file; raises FileNotFoundError."""
        data = read_file(self.folder, block_name(number))
        if data is None:
            raise FileNotFoundError(self.path(number))
        return data

    def start(self, number: int) -> FileStart:
        """Return the length and the header's bytes of a block; raises FileNotFoundError."""
        return read_starts(self.folder, [block_name(number)], HEADER_BYTES)[0]

    def load_index(self, number: int) -> BlockIndex:
        """Return a block's index, removed messages included; walks a block without a fitting one.

        Raises FileNotFoundError if the block is gone, CorruptStore if its header is damaged.
        """
        size, image = self.start(number)
        header = self.header(number, image)
        index = self.index_file(number)
        if index is not None and index_fits(index, header, size):
            return index
        data = self.read_block(number)
        header = self.header(number, data[:HEADER_BYTES])
        return walk_block(header, self.surveyed_bytes(header, data)).index

    def surveyed_bytes(self, header: BlockHeader, data: bytes) -> bytes:
        """Return the part of a block's bytes that is read: all of them without a survey."""
        return data

    def header(self, number: int, image: bytes) -> BlockHeader:
        """Return a block's header by its bytes; a damaged header is reported and mended.

        Raises CorruptStore if it cannot be mended.
        """
        path = self.path(number)
        with contextlib.suppress(CorruptStore):
            header = decode_block_header(image, path)
            if header.number == number:
                return header
        # Rare, and it takes the whole directory to judge.
        survey = survey_directory(self.folder, read_state(self.folder))
        block = survey.blocks.get(number)
        if block is None:
            raise FileNotFoundError(path)
        if block.header is None:
            kind = Unfinished if block in survey.never_acknowledged else CorruptStore
            raise kind(path, 0, block.reason)
        if block.reason:
            self.report(Damage(number, 0, HEADER_BYTES, block.reason, 1, 0))
        return block.header

    def walk(self, number: int) -> Walked:
        """Build a block's index anew from its bytes; raises as `load_index` does."""
        data = self.read_block(number)
        return walk_block(self.header(number, data[:HEADER_BYTES]), data)

    # Indexes

    def index_file(self, number: int) -> BlockIndex | None:
        """Return the index file's content, or None if it is missing or damaged."""
        name = index_name(number)
        data = read_file(self.folder, name)
        with contextlib.suppress(CorruptStore):
            return None if data is None else BlockIndex.load(data, name)
        return None

    def count_wanted(self, number: int, subjects: SubjectFilter) -> int | None:
        """Return how many entries of a block a filter wants by its index, None without an index.

        Removed messages are counted, too. Raises FileNotFoundError if the block is gone.
        """
        _, header = self.start(number)
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
        """Return an unverified index of the entries that a filter wants; None as `index_file`."""
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

    # Verifying

    def verify(self, first_block: int = 0, last_block: int = BLOCK_MAX) -> Iterator[BlockCheck]:
        """Read every byte of every block and compare it with its index; one result a block.

        The numbers bound the blocks that are read, so that several processes can share the work;
        a reader needs no survey of the directory for that.
        """
        numbers = self.block_numbers()
        wanted = [number for number in numbers if first_block <= number <= last_block]
        before = [number for number in numbers if number < first_block]
        previous = self.index_file(before[-1]) if before else None
        for place, number in enumerate(wanted, len(before)):
            check = BlockCheck(number)
            later = numbers[place + 1 :]
            try:
                previous = self._verify_block(check, previous, later)
            except FileNotFoundError:
                continue
            except CorruptStore as error:
                previous = None
                if not later and isinstance(error, Unfinished):
                    check.notes.append(UNFINISHED)
                else:
                    check.damage.append(Damage(number, error.offset, 0, error.reason, 1, 0))
            for damage in check.damage:
                self.report(damage)
            yield check

    def _verify_block(
        self, check: BlockCheck, previous: BlockIndex | None, later: list[int]
    ) -> BlockIndex:
        sound = self._verify_sealed(check, previous)
        if sound is not None:
            return sound
        walked = self.walk(check.number)
        header, walker = walked.header, walked.walker
        check.bytes = len(walked.data)
        check.messages = walked.index.count
        check.damage += walker.damage
        tail = walked.data[walker.whole_bytes :]
        check.tail_bytes = len(tail if later else without_room(tail))
        unsealer(header, self._stream, self._key, self.path(check.number))
        if previous is not None and not _follows(header, previous):
            check.notes.append(f"does not follow on the end of block {previous.number}")
        index = self._compare_index(check, walked, last=not later)
        following = None if index is not None else self._next_header(later)
        if index is not None:
            end = max(check.bytes, index.block_bytes)
            if end > walker.whole_bytes:
                lost = end - walker.whole_bytes
                check.damage.append(_tail_damage(walked.index, lost, index.last_seq))
        elif following is not None and _ends_early(walked, check.tail_bytes, following):
            last_seq = following.base_seq - 1
            check.damage.append(_tail_damage(walked.index, check.tail_bytes, last_seq))
        return walked.index

    def _next_header(self, later: list[int]) -> BlockHeader | None:
        for number in later:
            with contextlib.suppress(FileNotFoundError, CorruptStore):
                return decode_block_header(self.start(number)[1], self.path(number))
        return None

    def _verify_sealed(self, check: BlockCheck, previous: BlockIndex | None) -> BlockIndex | None:
        """Verify a sealed block against its index in one walk; return None if that does not do."""
        index = self.index_file(check.number)
        if index is None:
            return None
        data = self.read_block(check.number)
        try:
            header = decode_block_header(data[:HEADER_BYTES], self.path(check.number))
        except CorruptStore:
            return None
        if index.header != data[:HEADER_BYTES] or (
            previous is not None and not _follows(header, previous)
        ):
            return None
        walker = BlockWalker(data, block=check.number, seed=header.seed, base_seq=header.base_seq)
        if not walker.agrees_with(index):
            return None
        unsealer(header, self._stream, self._key, self.path(check.number))
        check.bytes = len(data)
        check.messages = index.count
        return index

    def _compare_index(self, check: BlockCheck, walked: Walked, *, last: bool) -> BlockIndex | None:
        """Note what is wrong with a block's index; return it if it fits the block."""
        name = index_name(check.number)
        try:
            image = read_file(self.folder, name)
            if image is None:
                if not last:
                    check.notes.append(INDEX_MISSING)
                return None
            index = BlockIndex.load(image, name)
        except CorruptStore as error:
            check.notes.append(f"index damaged: {error}")
            return None
        if index.header != encode_block_header(walked.header):
            check.notes.append(INDEX_OLD)
            return None
        walked.index.freeze()
        whole = not check.damage and not check.tail_bytes
        if whole and walked.index.encode() != image and self._disagree(index, walked.index):
            check.notes.append("index and block disagree")
        return index

    def _disagree(self, index: BlockIndex, walked: BlockIndex) -> bool:
        # An erased message keeps its entry as it was when the index was written.
        if index.count != walked.count or index.tombstones != walked.tombstones:
            return True
        pairs = ((index.entry(place), walked.entry(place)) for place in range(index.count))
        return any(one != other and not other[5] & DELETED for one, other in pairs)


def _ends_early(walked: Walked, tail_bytes: int, following: BlockHeader) -> bool:
    """Return True if a block lacks records that it had when the next one was begun."""
    if tail_bytes:
        return True
    # As first written, a block accounts for every sequence up to the next one's base.
    header = walked.header
    return (
        header.generation == 0
        and header.number + 1 == following.number
        and walked.index.last_seq + 1 < following.base_seq
    )


def _follows(header: BlockHeader, previous: BlockIndex) -> bool:
    """Return True if a block was begun after the last record of the one before."""
    if previous.generation or header.previous_checksum in (0, previous.last_checksum):
        return True
    if not previous.count:
        return False
    # An erased record has another checksum than it had then.
    _, offset, length, _, _, flags, _ = previous.entry(previous.count - 1)
    return offset + length == previous.block_bytes and flags & DELETED != 0


def _tail_damage(index: BlockIndex, size: int, last_seq: int) -> Damage:
    """Return the damage of a block's end whose records are lost, up to a sequence."""
    return Damage(index.number, index.block_bytes, size, TAIL_REASON, index.last_seq + 1, last_seq)
