"""Reading a stream's directory without a server: blocks, messages as columns, damage.

This is what recovery tools and Spark share. A reader takes stock of the directory once: which
blocks there are, what they hold by their indexes, and which messages their tombstones removed.
Batches are then read block by block, in any order and from any process, also beside a server that
goes on writing: of the block that is being written everything up to its last whole record is seen;
a block that was rewritten meanwhile still holds every message that is live; one that is gone held
none.

Read-only: it takes no lock and never opens a file for writing. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.errors import CorruptStore, FormatError
from penstock.format.block import HEADER_BYTES, BlockHeader, decode_block_header
from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import unsealer
from penstock.format.block_walker import BlockWalker
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.format.files import LocalFolder, ReadableFolder
from penstock.format.layout import block_name, block_number, index_name
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter

SEQ_MAX = 2**64 - 1
TIME_MIN = -(2**63)
TIME_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One block as the directory shows it; `count` includes removed messages."""

    number: int
    generation: int
    bytes: int
    base_seq: int
    last_seq: int
    count: int
    subjects: int
    first_time_ns: int
    last_time_ns: int
    sealed: bool
    encrypted: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages are wanted, and which of their columns."""

    first_seq: int = 0
    last_seq: int = SEQ_MAX
    first_ns: int = TIME_MIN
    last_ns: int = TIME_MAX
    subjects: SubjectFilter | None = None
    headers: bool = True
    payloads: bool = True
    rows_max: int = 65_536
    bytes_max: int = 16 * 1024 * 1024


@dataclass(slots=True)
class BlockCheck:
    """What verifying one block found."""

    number: int
    bytes: int = 0
    messages: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tail_bytes: int = 0
    """Bytes after the last whole record: torn, or being written right now."""


class StreamReader:
    """A stream's directory, read-only; see the module."""

    def __init__(
        self,
        folder: ReadableFolder | str,
        *,
        stream: str = "stream",
        key: StoreKey | None = None,
    ) -> None:
        """Take stock of a directory; `stream` and `key` open encrypted blocks.

        Raises FileNotFoundError, WrongKey, UnsupportedVersion.
        """
        self.folder = LocalFolder(folder) if isinstance(folder, str) else folder
        self.damage: list[Damage] = []
        self.removed = SequenceSet()
        self.blocks: list[BlockInfo] = []
        self._stream = stream.encode()
        self._key = key
        self._take_stock()

    def _take_stock(self) -> None:
        numbers = sorted(
            number
            for name in self.folder.list_names()
            if (number := block_number(name)) is not None
        )
        for number in numbers:
            try:
                index, sealed, header = self._index(number)
            except FileNotFoundError:
                continue
            except CorruptStore as error:
                self._report(Damage(number, 0, 0, error.reason, 1, 0))
                continue
            self.removed.update(index.tombstones)
            for damage in index.damage:
                self._report(damage)
            self.blocks.append(
                BlockInfo(
                    number,
                    index.generation,
                    index.block_bytes,
                    index.base_seq,
                    index.last_seq,
                    index.count,
                    index.subject_count,
                    index.first_time_ns,
                    index.last_time_ns,
                    sealed,
                    header.cipher != 0,
                )
            )

    def _report(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)

    @property
    def last_seq(self) -> int:
        """The highest sequence that any block accounts for; 0 for an empty stream."""
        return max((block.last_seq for block in self.blocks), default=0)

    def _read(self, name: str) -> bytes:
        file = self.folder.open(name)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def _index(self, number: int) -> tuple[BlockIndex, bool, BlockHeader]:
        """Give a block's index, from its file or from a walk; whether it is sealed; its header."""
        file = self.folder.open(block_name(number))
        try:
            head = file.read_at(0, HEADER_BYTES)
        finally:
            file.close()
        path = f"{self.folder.path}/{block_name(number)}"
        index: BlockIndex | None = None
        try:
            index = BlockIndex.load(self._read(index_name(number)), index_name(number))
        except (FileNotFoundError, CorruptStore, FormatError):
            index = None
        try:
            header = decode_block_header(head, path)
        except CorruptStore as error:
            if index is None:
                raise
            self._report(Damage(number, 0, HEADER_BYTES, error.reason, 1, 0))
            header = decode_block_header(index.header, path)
        if index is not None and index.generation == header.generation:
            return index, True, header
        return self._walked(header)[0], index is not None, header

    def _walked(self, header: BlockHeader) -> tuple[BlockIndex, BlockWalker, bytes]:
        data = self._read(block_name(header.number))
        walker = BlockWalker(
            data, block=header.number, seed=header.seed, base_seq=header.base_seq
        )
        index = BlockIndex(
            header.number, header.generation, header.base_seq, data[:HEADER_BYTES], SubjectTable()
        )
        walker.index_into(index)
        return index, walker, data

    # Messages

    def candidates(self, wanted: Selection) -> list[BlockInfo]:
        """Give the blocks that can hold a wanted message, without touching their data."""
        return [
            block
            for block in self.blocks
            if block.count
            and block.base_seq <= wanted.last_seq
            and block.last_seq >= wanted.first_seq
            and block.first_time_ns <= wanted.last_ns
            and block.last_time_ns >= wanted.first_ns
            and self._has_subject(block, wanted.subjects)
        ]

    def _has_subject(self, block: BlockInfo, subjects: SubjectFilter | None) -> bool:
        if subjects is None or subjects.everything or not block.sealed:
            return True
        try:
            index = BlockIndex.load(self._read(index_name(block.number)), index_name(block.number))
        except (FileNotFoundError, CorruptStore, FormatError):
            return True
        return index.count_matching(subjects) > 0

    def batches(self, wanted: Selection | None = None) -> Iterator[ColumnBatch]:
        """Yield the wanted live messages, block after block, in order of sequence."""
        wanted = wanted or Selection()
        for block in self.candidates(wanted):
            yield from self.block_batches(block, wanted)

    def block_batches(self, block: BlockInfo, wanted: Selection) -> Iterator[ColumnBatch]:
        """Yield the wanted live messages of one block; what is damaged is added to `damage`."""
        try:
            data = self._read(block_name(block.number))
        except FileNotFoundError:
            return
        path = f"{self.folder.path}/{block_name(block.number)}"
        try:
            header = decode_block_header(data[:HEADER_BYTES], path)
        except CorruptStore:
            header = decode_block_header(
                BlockIndex.load(self._read(index_name(block.number)), path).header, path
            )
        walker = BlockWalker(
            data, block=header.number, seed=header.seed, base_seq=header.base_seq
        )
        builder = ColumnBuilder(headers=wanted.headers, payloads=wanted.payloads)
        more = True
        while more:
            more = walker.fill(
                builder,
                subjects=wanted.subjects,
                first_seq=wanted.first_seq,
                last_seq=min(wanted.last_seq, max(block.last_seq, block.base_seq)),
                first_ns=wanted.first_ns,
                last_ns=wanted.last_ns,
                removed=self.removed,
                rows_max=wanted.rows_max,
                bytes_max=wanted.bytes_max,
                unseal=unsealer(header, self._stream, self._key, path),
            )
            if builder.count:
                yield builder.take(block.number)
        for damage in walker.damage:
            self._report(damage)

    # Verifying

    def verify(self) -> Iterator[BlockCheck]:
        """Read every byte of every block and compare it with its index; one result a block."""
        previous: BlockIndex | None = None
        numbers = [
            number
            for name in self.folder.list_names()
            if (number := block_number(name)) is not None
        ]
        for place, number in enumerate(sorted(numbers)):
            check = BlockCheck(number)
            try:
                previous = self._verify_block(check, previous, last=place == len(numbers) - 1)
            except FileNotFoundError:
                continue
            except CorruptStore as error:
                check.damage.append(Damage(number, error.offset, 0, error.reason, 1, 0))
                previous = None
            for damage in check.damage:
                self._report(damage)
            yield check

    def _verify_block(
        self, check: BlockCheck, previous: BlockIndex | None, *, last: bool
    ) -> BlockIndex:
        _, sealed, header = self._index(check.number)
        walked, walker, data = self._walked(header)
        check.bytes = len(data)
        check.messages = walked.count
        check.damage += walker.damage
        check.tail_bytes = len(data) - walker.whole_bytes
        unsealer(header, self._stream, self._key, block_name(check.number))
        if check.tail_bytes and (sealed or not last):
            check.damage.append(
                Damage(
                    check.number,
                    walker.whole_bytes,
                    check.tail_bytes,
                    "no whole record up to the end",
                    walked.last_seq + 1,
                    walked.last_seq,
                )
            )
        if (
            previous is not None
            and previous.generation == 0
            and header.previous_checksum not in (0, previous.last_checksum)
        ):
            check.notes.append(f"does not follow on the end of block {previous.number}")
        self._compare_index(check, walked, sealed=sealed, last=last)
        return walked

    def _compare_index(
        self, check: BlockCheck, walked: BlockIndex, *, sealed: bool, last: bool
    ) -> None:
        name = index_name(check.number)
        try:
            index = BlockIndex.load(self._read(name), name)
        except FileNotFoundError:
            if not last:
                check.notes.append("index missing: it is rebuilt when the store is opened")
            return
        except (CorruptStore, FormatError) as error:
            check.notes.append(f"index damaged: {error}")
            return
        if index.generation != walked.generation:
            check.notes.append("index of an older generation: it is rebuilt when opened")
        elif index.block_bytes > check.bytes:
            check.damage.append(
                Damage(
                    check.number,
                    check.bytes,
                    index.block_bytes - check.bytes,
                    "the file is shorter than its index says",
                    walked.last_seq + 1,
                    index.last_seq,
                )
            )
        elif index.count != walked.count and not walked.damage and not sealed:
            check.notes.append("index and block disagree")
