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

import msgspec

from penstock.errors import CorruptStore, FormatError, UsageError
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    correct_block_header,
    decode_block_header,
    encode_block_header,
)
from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import unsealer
from penstock.format.block_walker import BlockWalker
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.format.files import LocalFolder, ReadableFile, ReadableFolder
from penstock.format.index_picks import IndexPicks
from penstock.format.layout import block_name, block_number, index_name
from penstock.format.record import DELETED
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter

SEQ_MAX = 2**64 - 1
TIME_MIN = -(2**63)
TIME_MAX = 2**63 - 1
LOOKS_MAX = 8
"""How often a directory is listed again that has new blocks each time."""

PICKED_PART = 8
"""A filter that wants one message of these many, or fewer, has them picked out by the index."""

PICKED_GAP_BYTES = 4096
"""Records that lie as close as this are read together."""

TAIL_REASON = "no whole record up to the end"


class BlockInfo(msgspec.Struct, frozen=True):
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


class Selection(msgspec.Struct, frozen=True):
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

    def __post_init__(self) -> None:
        """Refuse batches that could hold nothing."""
        if self.rows_max < 1 or self.bytes_max < 1:
            raise UsageError("a batch holds at least one row and one byte")


class BlockCheck(msgspec.Struct):
    """What verifying one block found."""

    number: int
    bytes: int = 0
    messages: int = 0
    damage: list[Damage] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    tail_bytes: int = 0
    """Bytes after the last whole record: torn, or being written right now."""


class _Found(msgspec.Struct, frozen=True):
    """A block as it was found: by its index where that fits, else by a walk."""

    header: BlockHeader
    index: BlockIndex
    sealed: bool
    tail_bytes: int = 0
    """What a walk found after the last whole record."""


class _Unfinished(CorruptStore):
    """A block file that is shorter than a header: of the newest block, it is being begun."""


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

        Raises FileNotFoundError and UnsupportedVersion. A missing or wrong key shows when messages
        are read: what a stream holds by its subjects is not secret.
        """
        self._begin(folder, stream, key)
        self._take_stock()

    def _begin(self, folder: ReadableFolder | str, stream: str, key: StoreKey | None) -> None:
        self.folder = LocalFolder(folder) if isinstance(folder, str) else folder
        self.damage: list[Damage] = []
        self.removed = SequenceSet()
        self.blocks: list[BlockInfo] = []
        self._stream = stream.encode()
        self._key = key

    @classmethod
    def of_stock(
        cls,
        folder: ReadableFolder | str,
        blocks: list[BlockInfo],
        removed: SequenceSet,
        *,
        stream: str = "stream",
        key: StoreKey | None = None,
    ) -> StreamReader:
        """Read blocks that another reader found, without looking at the directory again."""
        reader = cls.__new__(cls)
        reader._begin(folder, stream, key)
        reader.blocks = blocks
        reader.removed = removed
        return reader

    def _block_numbers(self) -> list[int]:
        return sorted(
            number
            for name in self.folder.list_names()
            if (number := block_number(name)) is not None
        )

    def _take_stock(self) -> None:
        # Beside a writer blocks come and go. A tombstone may have moved on into a block that was
        # not listed yet, and a block that was the last may have been finished: so it is looked
        # again until no new block has appeared. A writer that makes blocks faster than they are
        # looked at does not hold us for ever: what came last is then for the next reader.
        listed: set[int] = set()
        found: dict[int, _Found] = {}
        for _ in range(LOOKS_MAX):
            numbers = self._block_numbers()
            if listed.issuperset(numbers):
                break
            listed.update(numbers)
            for number in numbers:
                if number not in found or not found[number].sealed:
                    self._look_at(number, found, newest=number == numbers[-1])
        blocks = [found[number] for number in sorted(found)]
        for place, block in enumerate(blocks):
            self._add_block(block, blocks[place + 1] if place + 1 < len(blocks) else None)

    def _look_at(self, number: int, found: dict[int, _Found], *, newest: bool) -> None:
        try:
            found[number] = self._find(number)
        except FileNotFoundError:
            found.pop(number, None)
        except CorruptStore as error:
            if not (newest and isinstance(error, _Unfinished)):
                self._report(Damage(number, 0, 0, error.reason, 1, 0))

    def _add_block(self, found: _Found, following: _Found | None) -> None:
        index = found.index
        self.removed.update(index.tombstones)
        for damage in index.damage:
            self._report(damage)
        if following is not None:
            header = following.header
            if _ends_early(found, header.number, header.base_seq):
                self._report(_tail_damage(index, found.tail_bytes, header.base_seq - 1))
        self.blocks.append(
            BlockInfo(
                index.number,
                index.generation,
                index.block_bytes,
                index.base_seq,
                index.last_seq,
                index.count,
                index.subject_count,
                index.first_time_ns,
                index.last_time_ns,
                found.sealed,
                found.header.cipher != 0,
            )
        )

    def _is_known(self, block: int, offset: int) -> bool:
        return any((each.block, each.offset) == (block, offset) for each in self.damage)

    def _report(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)

    @property
    def last_seq(self) -> int:
        """The highest sequence that any block accounts for; 0 for an empty stream."""
        return max((block.last_seq for block in self.blocks), default=0)

    def read_file(self, name: str) -> bytes:
        """Give a whole file of the directory; raises FileNotFoundError."""
        file = self.folder.open(name)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def load_index(self, number: int) -> BlockIndex:
        """Give a block's index, removed messages included, walking the block where it has none.

        Raises FileNotFoundError where the block is gone, CorruptStore where its header is.
        """
        return self._find(number).index

    def _path(self, number: int) -> str:
        return f"{self.folder.path}/{block_name(number)}"

    def _index_file(self, number: int) -> BlockIndex | None:
        """Give what the index file says, or None where it is missing or damaged."""
        try:
            return BlockIndex.load(self.read_file(index_name(number)), index_name(number))
        except (FileNotFoundError, CorruptStore):
            return None

    def _header(self, number: int, head: bytes, index: BlockIndex | None) -> BlockHeader:
        """Read a block's header; a damaged one is reported and mended, by the index or alone."""
        path = self._path(number)
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
            kind = _Unfinished if len(head) < HEADER_BYTES else CorruptStore
            raise kind(path, 0, reason)
        self._report(Damage(number, 0, HEADER_BYTES, reason, 1, 0))
        return mended

    def _find(self, number: int) -> _Found:
        file = self.folder.open(block_name(number))
        try:
            head = file.read_at(0, HEADER_BYTES)
        finally:
            file.close()
        index = self._index_file(number)
        header = self._header(number, head, index)
        # An index fits one generation of one block, whose header it repeats. Another block may
        # have had the number before, and a rewrite may have overtaken its index.
        if index is not None and index.header == encode_block_header(header):
            return _Found(header, index, sealed=True)
        return self._walk(number)[0]

    def _walk(self, number: int) -> tuple[_Found, BlockWalker, bytes]:
        data = self.read_file(block_name(number))
        head = data[:HEADER_BYTES]
        header = self._header(number, head, self._index_file(number))
        walker = BlockWalker(data, block=number, seed=header.seed, base_seq=header.base_seq)
        index = BlockIndex(number, header.generation, header.base_seq, head, SubjectTable())
        walker.index_into(index)
        # Only a sealed block is ever rewritten.
        found = _Found(header, index, header.generation > 0, len(data) - walker.whole_bytes)
        return found, walker, data

    # Messages

    def candidates(self, wanted: Selection) -> list[BlockInfo]:
        """Give the blocks that can hold a wanted message, without touching their data."""
        return [
            block for block in self.in_range(wanted) if self._has_subject(block, wanted.subjects)
        ]

    def in_range(self, wanted: Selection) -> list[BlockInfo]:
        """Give the blocks that can hold a message of the wanted sequences and times."""
        return [
            block
            for block in self.blocks
            if block.count
            and block.base_seq <= wanted.last_seq
            and block.last_seq >= wanted.first_seq
            and block.first_time_ns <= wanted.last_ns
            and block.last_time_ns >= wanted.first_ns
        ]

    def _has_subject(self, block: BlockInfo, subjects: SubjectFilter | None) -> bool:
        if subjects is None or subjects.everything:
            return True
        index = self._fitting_index(block)
        return index is None or index.count_matching(subjects) > 0

    def batches(self, wanted: Selection | None = None) -> Iterator[ColumnBatch]:
        """Yield the wanted live messages, block after block, in order of sequence."""
        wanted = wanted or Selection()
        for block in self.in_range(wanted):
            yield from self.block_batches(block, wanted)

    def block_batches(self, block: BlockInfo, wanted: Selection) -> Iterator[ColumnBatch]:
        """Yield the wanted live messages of one block; what is damaged is added to `damage`."""
        done_seq = 0
        for batch in self._picked_batches(block, wanted):
            if batch is None:
                return
            done_seq = int.from_bytes(batch.sequences[-8:], "little")
            yield batch
        if done_seq:
            wanted = msgspec.structs.replace(wanted, first_seq=done_seq + 1)
        yield from self._walked_batches(block, wanted)

    def _fitting_index(self, block: BlockInfo) -> BlockIndex | None:
        """Give the index of a sealed block as it was found, or None where it has changed."""
        index = self._index_file(block.number) if block.sealed else None
        if index is None or (index.generation, index.base_seq, index.block_bytes) != (
            block.generation,
            block.base_seq,
            block.bytes,
        ):
            return None
        return index

    def _picked_batches(self, block: BlockInfo, wanted: Selection) -> Iterator[ColumnBatch | None]:
        """Yield what a filter wants little of, by the index; None at the end where that was all."""
        if wanted.subjects is None or wanted.subjects.everything:
            return
        index = self._fitting_index(block)
        if index is None:
            return
        picks = IndexPicks(
            index,
            wanted.subjects,
            first_seq=wanted.first_seq,
            last_seq=wanted.last_seq,
            first_ns=wanted.first_ns,
            last_ns=wanted.last_ns,
            removed=self.removed,
        )
        if picks.count * PICKED_PART > index.count:
            return
        if not picks.count:
            yield None
            return
        try:
            file = self.folder.open(block_name(block.number))
        except FileNotFoundError:
            return
        try:
            # A rewrite may have overtaken the index.
            if file.read_at(0, HEADER_BYTES) == index.header:
                yield from self._pick(file, block.number, picks, wanted)
                yield None
        except FormatError:
            # What was damaged or rewritten meanwhile, a walk tells.
            return
        finally:
            file.close()

    def _pick(
        self, file: ReadableFile, number: int, picks: IndexPicks, wanted: Selection
    ) -> Iterator[ColumnBatch]:
        header = decode_block_header(file.read_at(0, HEADER_BYTES), self._path(number))
        unseal = unsealer(header, self._stream, self._key, self._path(number))
        builder = ColumnBuilder(headers=wanted.headers, payloads=wanted.payloads)
        for offset, size, first, end in picks.stretches(
            PICKED_GAP_BYTES, wanted.bytes_max, wanted.rows_max
        ):
            if builder.count and (
                builder.count + end - first > wanted.rows_max
                or builder.data_bytes() + size > wanted.bytes_max
            ):
                yield builder.take(number)
            data = file.read_at(offset, size)
            picks.fill(builder, data, offset, first, end, header.seed, unseal)
        if builder.count:
            yield builder.take(number)

    def _walked_batches(self, block: BlockInfo, wanted: Selection) -> Iterator[ColumnBatch]:
        try:
            data = self.read_file(block_name(block.number))
        except FileNotFoundError:
            return
        header = self._header(block.number, data[:HEADER_BYTES], self._index_file(block.number))
        unseal = unsealer(header, self._stream, self._key, self._path(block.number))
        walker = BlockWalker(data, block=block.number, seed=header.seed, base_seq=header.base_seq)
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
                unseal=unseal,
            )
            if builder.count:
                yield builder.take(block.number)
        for damage in walker.damage:
            self._report(damage)
        if (
            walker.offset >= len(data)
            and walker.whole_bytes < block.bytes
            and header.generation == block.generation
            and not self._is_known(block.number, walker.whole_bytes)
        ):
            size = max(block.bytes, len(data)) - walker.whole_bytes
            self._report(
                Damage(
                    block.number,
                    walker.whole_bytes,
                    size,
                    TAIL_REASON,
                    walker.last_seq + 1,
                    block.last_seq,
                )
            )

    # Verifying

    def verify(self) -> Iterator[BlockCheck]:
        """Read every byte of every block and compare it with its index; one result a block."""
        previous: BlockIndex | None = None
        numbers = self._block_numbers()
        for number in numbers:
            check = BlockCheck(number)
            try:
                previous = self._verify_block(check, previous, last=number == numbers[-1])
            except FileNotFoundError:
                continue
            except CorruptStore as error:
                previous = None
                if number == numbers[-1] and isinstance(error, _Unfinished):
                    check.notes.append("begun and not finished")
                else:
                    check.damage.append(Damage(number, error.offset, 0, error.reason, 1, 0))
            for damage in check.damage:
                self._report(damage)
            yield check

    def _verify_block(
        self, check: BlockCheck, previous: BlockIndex | None, *, last: bool
    ) -> BlockIndex:
        sound = self._verify_sealed(check, previous)
        if sound is not None:
            return sound
        found, walker, data = self._walk(check.number)
        check.bytes = len(data)
        check.messages = found.index.count
        check.damage += walker.damage
        check.tail_bytes = found.tail_bytes
        unsealer(found.header, self._stream, self._key, self._path(check.number))
        if previous is not None and not _follows(found.header, previous):
            check.notes.append(f"does not follow on the end of block {previous.number}")
        index = self._compare_index(check, found, last=last)
        following = next((block for block in self.blocks if block.number > check.number), None)
        if index is not None:
            end = max(check.bytes, index.block_bytes)
            if end > walker.whole_bytes:
                lost = end - walker.whole_bytes
                check.damage.append(_tail_damage(found.index, lost, index.last_seq))
        elif following is not None and _ends_early(found, following.number, following.base_seq):
            last_seq = following.base_seq - 1
            check.damage.append(_tail_damage(found.index, found.tail_bytes, last_seq))
        return found.index

    def _verify_sealed(self, check: BlockCheck, previous: BlockIndex | None) -> BlockIndex | None:
        """Verify a sealed block against its index in one walk; None where that is not enough."""
        index = self._index_file(check.number)
        if index is None:
            return None
        data = self.read_file(block_name(check.number))
        try:
            header = decode_block_header(data[:HEADER_BYTES], self._path(check.number))
        except CorruptStore:
            return None
        if index.header != data[:HEADER_BYTES] or (
            previous is not None and not _follows(header, previous)
        ):
            return None
        walker = BlockWalker(data, block=check.number, seed=header.seed, base_seq=header.base_seq)
        if not walker.agrees_with(index):
            return None
        unsealer(header, self._stream, self._key, self._path(check.number))
        check.bytes = len(data)
        check.messages = index.count
        return index

    def _compare_index(self, check: BlockCheck, found: _Found, *, last: bool) -> BlockIndex | None:
        """Note what is wrong with a block's index; give it where it fits the block."""
        name = index_name(check.number)
        try:
            image = self.read_file(name)
            index = BlockIndex.load(image, name)
        except FileNotFoundError:
            if not last:
                check.notes.append("index missing: it is rebuilt when the store is opened")
            return None
        except CorruptStore as error:
            check.notes.append(f"index damaged: {error}")
            return None
        if index.header != encode_block_header(found.header):
            check.notes.append("index of another generation: it is rebuilt when opened")
            return None
        found.index.freeze()
        whole = not check.damage and not found.tail_bytes
        if whole and found.index.encode() != image and self._disagree(index, found.index):
            check.notes.append("index and block disagree")
        return index

    def _disagree(self, index: BlockIndex, walked: BlockIndex) -> bool:
        # An erased message keeps its entry as it was when the index was written.
        if index.count != walked.count or index.tombstones != walked.tombstones:
            return True
        pairs = ((index.entry(place), walked.entry(place)) for place in range(index.count))
        return any(one != other and not other[5] & DELETED for one, other in pairs)


def _ends_early(found: _Found, next_number: int, next_base_seq: int) -> bool:
    """Tell whether a block lacks records that it had when the next one was begun."""
    if found.tail_bytes:
        return True
    # As first written, a block accounts for every sequence up to the next one's base.
    return (
        found.header.generation == 0
        and found.header.number + 1 == next_number
        and found.index.last_seq + 1 < next_base_seq
    )


def _follows(header: BlockHeader, previous: BlockIndex) -> bool:
    """Tell whether a block was begun after the last record of the one before."""
    if previous.generation or header.previous_checksum in (0, previous.last_checksum):
        return True
    if not previous.count:
        return False
    # An erased record has another checksum than it had then.
    _, offset, length, _, _, flags, _ = previous.entry(previous.count - 1)
    return offset + length == previous.block_bytes and flags & DELETED != 0


def _tail_damage(index: BlockIndex, size: int, last_seq: int) -> Damage:
    """Tell of the end of a block whose records are lost, up to a sequence."""
    return Damage(index.number, index.block_bytes, size, TAIL_REASON, index.last_seq + 1, last_seq)
