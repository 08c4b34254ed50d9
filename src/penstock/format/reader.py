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

import contextlib
from collections.abc import Iterator

import msgspec

from penstock.errors import CorruptStore, FormatError, UsageError
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    decode_block_header,
    encode_block_header,
)
from penstock.format.block_folder import BlockFolder, Found, Unfinished, Walked
from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import unsealer
from penstock.format.block_order import TAIL_REASON, ends_early, follows, tail_damage
from penstock.format.block_walker import BlockWalker
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.format.files import ReadableFile, ReadableFolder
from penstock.format.index_picks import IndexPicks
from penstock.format.layout import block_name, index_name
from penstock.format.record import DELETED
from penstock.format.sequence_set import SequenceSet
from penstock.subjects import SubjectFilter

SEQ_MAX = 2**64 - 1
TIME_MIN = -(2**63)
TIME_MAX = 2**63 - 1
BLOCK_MAX = 2**32 - 1
LOOKS_MAX = 8
"""How often a directory is listed again that has new blocks each time."""

PICKED_PART = 8
"""A filter that wants one message of these many, or fewer, has them picked out by the index."""

PICKED_GAP_BYTES = 4096
"""Records that lie as close as this are read together."""

INDEX_MISSING = "index missing: it is rebuilt when the store is opened"
INDEX_OLD = "index of another generation: it is rebuilt when opened"
UNFINISHED = "begun and not finished"


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


class StreamReader(BlockFolder):
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
        super().__init__(folder)
        self.removed = SequenceSet()
        self.blocks: list[BlockInfo] = []
        self.gone: list[BlockInfo] = []
        """Blocks that were to be read and were not there any more."""

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

    def _take_stock(self) -> None:
        # Beside a writer blocks come and go. A tombstone may have moved on into a block that was
        # not listed yet, and a block that was the last may have been finished: so it is looked
        # again until no new block has appeared. A writer that makes blocks faster than they are
        # looked at does not hold us for ever: what came last is then for the next reader.
        listed: set[int] = set()
        found: dict[int, Found] = {}
        for _ in range(LOOKS_MAX):
            numbers = self.block_numbers()
            if listed.issuperset(numbers):
                break
            listed.update(numbers)
            for number in numbers:
                if number not in found or not found[number].sealed:
                    self._look_at(number, found, newest=number == numbers[-1])
        blocks = [found[number] for number in sorted(found)]
        for place, block in enumerate(blocks):
            self._add_block(block, blocks[place + 1] if place + 1 < len(blocks) else None)

    def _look_at(self, number: int, found: dict[int, Found], *, newest: bool) -> None:
        try:
            found[number] = self.find(number)
        except FileNotFoundError:
            found.pop(number, None)
        except CorruptStore as error:
            if not (newest and isinstance(error, Unfinished)):
                self.report(Damage(number, 0, 0, error.reason, 1, 0))

    def _add_block(self, found: Found, following: Found | None) -> None:
        index = found.head
        self.removed.update(index.tombstones)
        for damage in index.damage:
            self.report(damage)
        if following is not None:
            header = following.header
            if ends_early(found.header, found.head, found.tail_bytes, header):
                self.report(tail_damage(index, found.tail_bytes, header.base_seq - 1))
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

    @property
    def last_seq(self) -> int:
        """The highest sequence that any block accounts for; 0 for an empty stream."""
        return max((block.last_seq for block in self.blocks), default=0)

    # Messages

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

    def candidates(self, wanted: Selection) -> Iterator[tuple[BlockInfo, int]]:
        """Give the blocks that can hold a wanted message, and how many at most, by their indexes.

        Removed messages are counted as well, and so are those of other sequences and times.
        """
        subjects = wanted.subjects
        for block in self.in_range(wanted):
            count: int | None = block.count
            if block.sealed and subjects is not None and not subjects.everything:
                with contextlib.suppress(FileNotFoundError):
                    count = self.count_wanted(block.number, subjects)
            if count is None or count > 0:
                yield block, block.count if count is None else count

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

    def _picked_batches(self, block: BlockInfo, wanted: Selection) -> Iterator[ColumnBatch | None]:
        """Yield what a filter wants little of, by the index; None at the end where that was all."""
        if not block.sealed or wanted.subjects is None or wanted.subjects.everything:
            return
        try:
            picks = self._picks(block, wanted, wanted.subjects)
            if picks is None or picks.count * PICKED_PART > block.count:
                return
            if not picks.count:
                yield None
                return
            file = self.folder.open(block_name(block.number))
        except (FileNotFoundError, FormatError):
            return
        try:
            # A rewrite may have overtaken the index.
            if file.read_at(0, HEADER_BYTES) == picks.index.header:
                yield from self._pick(file, picks, wanted)
                yield None
        except FormatError:
            # What was damaged or rewritten meanwhile, a walk tells.
            return
        finally:
            file.close()

    def _picks(
        self, block: BlockInfo, wanted: Selection, subjects: SubjectFilter
    ) -> IndexPicks | None:
        # Every record that is picked is verified. Where none is left out for another reason than
        # its subject, the entries therefore need not be.
        if self._is_whole_wanted(block, wanted):
            index = self.unverified_index(block.number, subjects)
            if index is not None and _is_of(index, block):
                return IndexPicks.of_unverified(index, subjects)
        index = self.index_file(block.number)
        if index is None or not _is_of(index, block):
            return None
        return IndexPicks(
            index,
            subjects,
            first_seq=wanted.first_seq,
            last_seq=wanted.last_seq,
            first_ns=wanted.first_ns,
            last_ns=wanted.last_ns,
            removed=self.removed,
        )

    def _is_whole_wanted(self, block: BlockInfo, wanted: Selection) -> bool:
        return (
            wanted.first_seq <= block.base_seq
            and wanted.last_seq >= block.last_seq
            and wanted.first_ns <= block.first_time_ns
            and wanted.last_ns >= block.last_time_ns
            and not any(self.removed.ranges_between(block.base_seq, block.last_seq))
        )

    def _pick(
        self, file: ReadableFile, picks: IndexPicks, wanted: Selection
    ) -> Iterator[ColumnBatch]:
        number = picks.index.number
        path = self.path(number)
        header = decode_block_header(picks.index.header, path)
        unseal = unsealer(header, self._stream, self._key, path)
        builder = ColumnBuilder(headers=wanted.headers, payloads=wanted.payloads)
        done = 0
        while done < picks.count:
            done = picks.fill(
                builder,
                file,
                done,
                gap_max=PICKED_GAP_BYTES,
                bytes_max=wanted.bytes_max,
                rows_max=wanted.rows_max,
                seed=header.seed,
                unseal=unseal,
            )
            if builder.count:
                yield builder.take(number)

    def _walked_batches(self, block: BlockInfo, wanted: Selection) -> Iterator[ColumnBatch]:
        try:
            data = self.read_file(block_name(block.number))
        except FileNotFoundError:
            self.gone.append(block)
            return
        header = self.header(block.number, data[:HEADER_BYTES], self.index_file(block.number))
        unseal = unsealer(header, self._stream, self._key, self.path(block.number))
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
            self.report(damage)
        if (
            walker.offset >= len(data)
            and walker.whole_bytes < block.bytes
            and header.generation == block.generation
            and not self._is_known(block.number, walker.whole_bytes)
        ):
            size = max(block.bytes, len(data)) - walker.whole_bytes
            self.report(
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

    def verify(self, first_block: int = 0, last_block: int = BLOCK_MAX) -> Iterator[BlockCheck]:
        """Read every byte of every block and compare it with its index; one result a block.

        The numbers bound the blocks that are read, so that several processes can share the work;
        a reader needs no stock of the directory for that.
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
        found, walker = walked.found, walked.walker
        check.bytes = len(walked.data)
        check.messages = walked.index.count
        check.damage += walker.damage
        check.tail_bytes = found.tail_bytes
        unsealer(found.header, self._stream, self._key, self.path(check.number))
        if previous is not None and not follows(found.header, previous):
            check.notes.append(f"does not follow on the end of block {previous.number}")
        index = self._compare_index(check, walked, last=not later)
        following = None if index is not None else self._next_header(later)
        if index is not None:
            end = max(check.bytes, index.block_bytes)
            if end > walker.whole_bytes:
                lost = end - walker.whole_bytes
                check.damage.append(tail_damage(walked.index, lost, index.last_seq))
        elif following is not None and ends_early(
            found.header, found.head, found.tail_bytes, following
        ):
            last_seq = following.base_seq - 1
            check.damage.append(tail_damage(walked.index, found.tail_bytes, last_seq))
        return walked.index

    def _next_header(self, later: list[int]) -> BlockHeader | None:
        for number in later:
            with contextlib.suppress(FileNotFoundError, CorruptStore):
                return decode_block_header(self.header_bytes(number), self.path(number))
        return None

    def _verify_sealed(self, check: BlockCheck, previous: BlockIndex | None) -> BlockIndex | None:
        """Verify a sealed block against its index in one walk; None where that is not enough."""
        index = self.index_file(check.number)
        if index is None:
            return None
        data = self.read_file(block_name(check.number))
        try:
            header = decode_block_header(data[:HEADER_BYTES], self.path(check.number))
        except CorruptStore:
            return None
        if index.header != data[:HEADER_BYTES] or (
            previous is not None and not follows(header, previous)
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
        """Note what is wrong with a block's index; give it where it fits the block."""
        name = index_name(check.number)
        try:
            image = self.read_file(name)
            index = BlockIndex.load(image, name)
        except FileNotFoundError:
            if not last:
                check.notes.append(INDEX_MISSING)
            return None
        except CorruptStore as error:
            check.notes.append(f"index damaged: {error}")
            return None
        if index.header != encode_block_header(walked.found.header):
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


def _is_of(index: BlockIndex, block: BlockInfo) -> bool:
    # Whether an index is of a block as it was found: it may have changed since.
    return (index.generation, index.base_seq, index.block_bytes) == (
        block.generation,
        block.base_seq,
        block.bytes,
    )
