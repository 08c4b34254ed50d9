"""Reading a stream's directory without a server: blocks, messages as columns, damage.

A reader surveys the directory once: which blocks there are, what they hold by their indexes, which
messages their tombstones removed, and what is lost. Batches are then read block by block, in any
order and from any process, also beside a server that goes on writing. Of the block that is being
written, everything up to its last whole record is read. A block that was rewritten meanwhile still
holds every live message; a block that is gone held none.

Invariant: a reader serves what the store would serve after it recovered this directory, and reports
the same losses; both judge by `directory`. What a writer has begun and not finished is left out and
is no damage.

Read-only: it takes no lock and never opens a file for writing. One thread at a time. Called by
Spark, by the command line and by tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from penstock.errors import CorruptStore, FormatError, UsageError
from penstock.format.block import HEADER_BYTES, BlockHeader, ScannedBlock, decode_block_header
from penstock.format.block_contents import (
    TAIL_REASON,
    BlockContents,
    index_fits,
    read_index_head,
    walk_block,
    walk_last,
    walk_sealed,
)
from penstock.format.block_folder import BlockFolder
from penstock.format.block_walker import BlockWalker
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.damage import Damage
from penstock.format.directory import (
    Losses,
    OnDiskState,
    Survey,
    durable_bytes,
    find_losses,
    held_only_removed,
    missing_log_end,
    read_mark,
    read_state,
    survey_directory,
)
from penstock.format.envelope import StoreKey, unsealer
from penstock.format.files import ReadableFile, ReadableFolder
from penstock.format.index.block_index import BlockIndex
from penstock.format.index.pick import IndexPicks
from penstock.format.layout import block_name
from penstock.format.sequence_set import SequenceSet
from penstock.limits import DIRECTORY_LOOKS_MAX
from penstock.subjects import SubjectFilter

SEQ_MAX = 2**64 - 1
TIME_MIN = -(2**63)
TIME_MAX = 2**63 - 1

PICKED_PART = 8
"""A filter that wants one message of these many, or fewer, has them picked out by the index."""

PICKED_GAP_BYTES = 4096
"""Records that lie as close as this are read together."""


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
        super().__init__(folder, stream=stream, key=key)
        self.removed = SequenceSet()
        self.blocks: list[BlockInfo] = []
        self.gone: list[BlockInfo] = []
        """Blocks that were to be read and were not there any more."""

        self.last_seq = 0
        """The highest sequence that a block or the high-water mark accounts for; 0 if none does."""

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
        """Return a reader of blocks that another reader found, without a survey of its own."""
        reader = cls.__new__(cls)
        reader._begin(folder, stream, key)
        reader.blocks = blocks
        reader.removed = removed
        reader.last_seq = max((block.last_seq for block in blocks), default=0)
        return reader

    # The survey

    def _take_stock(self) -> None:
        # Beside a writer blocks come and go. A tombstone may have moved on into a block that was
        # not listed yet, and a block that was the last may have been finished: so the directory is
        # listed again until no new block has appeared. If a writer makes blocks faster than they
        # are surveyed, the newest are left to the next reader.
        known: dict[int, BlockContents] = {}
        is_complete = False
        for looks_left in reversed(range(DIRECTORY_LOOKS_MAX)):
            state = self._read_state(is_complete)
            survey = survey_directory(self.folder, state)
            opened = self._open_blocks(survey, known)
            losses = self._find_losses(survey, opened)
            is_suspect = _is_suspect(survey, opened, losses)
            if is_suspect and not is_complete:
                # The mark is enough to read a directory that is whole, and much shorter.
                is_complete = True
            elif looks_left and is_suspect and losses.damage and self._went_on(state):
                # What seemed lost may have been removed.
                continue
            elif not looks_left or survey.blocks.keys() >= set(self.block_numbers()):
                self._adopt(survey, opened, losses)
                return

    def _went_on(self, state: OnDiskState) -> bool:
        return read_mark(self.folder) != state.mark

    def _read_state(self, is_complete: bool) -> OnDiskState:
        # Read before the blocks, which then hold at least what it records.
        mark = None if is_complete else read_mark(self.folder)
        return read_state(self.folder) if mark is None else OnDiskState(mark=mark)

    def _open_blocks(self, survey: Survey, known: dict[int, BlockContents]) -> list[BlockContents]:
        numbers = survey.readable
        opened = []
        for number in numbers:
            block = survey.blocks[number]
            contents = known.get(number)
            if contents is None or contents.is_walked or contents.header != block.header:
                try:
                    contents = self._open_block(survey, block, is_last=number == numbers[-1])
                except FileNotFoundError:
                    # Removed since it was listed: all that it held was.
                    del survey.blocks[number]
                    continue
                known[number] = contents
            opened.append(contents)
        return opened

    def _open_block(self, survey: Survey, block: ScannedBlock, *, is_last: bool) -> BlockContents:
        header = block.header
        assert header is not None, "only readable blocks are opened"
        if block.number in survey.indexed:
            head = read_index_head(self.folder, block.number)
            if head is not None and index_fits(head, header, block.size):
                return BlockContents(header, head)
        data = self.read_block(block.number)
        if data[:HEADER_BYTES] != block.image:
            # Rewritten since it was surveyed.
            with contextlib.suppress(CorruptStore):
                header = decode_block_header(data[:HEADER_BYTES], block.path)
        if not is_last:
            return walk_sealed(header, data)
        durable = durable_bytes(survey, header, len(data))
        return walk_last(walk_block(header, data), durable=durable, last_seq=survey.state.last_seq)

    def _find_losses(self, survey: Survey, opened: list[BlockContents]) -> Losses:
        last_seq = max((each.head.last_seq for each in opened), default=0)
        losses = find_losses(survey, opened, last_seq=last_seq)
        end = (opened[-1].header.number, opened[-1].head.block_bytes) if opened else (0, 0)
        lost = missing_log_end(survey.state, losses.damage, last_seq=last_seq, end=end)
        if lost is not None:
            losses.damage.append(lost)
        return losses

    def _adopt(self, survey: Survey, opened: list[BlockContents], losses: Losses) -> None:
        self.removed = losses.removed
        self.blocks = [_info_of(each) for each in opened]
        self.last_seq = max([survey.state.last_seq, *(block.last_seq for block in self.blocks)])
        for block in survey.blocks.values():
            if block.header is not None and block.reason:
                self.report(Damage(block.number, 0, HEADER_BYTES, block.reason, 1, 0))
        for damage in losses.damage:
            self.report(damage)

    def _is_known(self, block: int, offset: int) -> bool:
        return any((each.block, each.offset) == (block, offset) for each in self.damage)

    def surveyed_bytes(self, header: BlockHeader, data: bytes) -> bytes:
        """Return what the survey found of a block: what follows was torn, or written since."""
        for block in self.blocks:
            if (block.number, block.generation) == (header.number, header.generation):
                return data[: block.bytes]
        return data

    # Messages

    def in_range(self, wanted: Selection) -> list[BlockInfo]:
        """Return the blocks that can hold a message of the wanted sequences and times."""
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
        """Return the blocks that can hold a wanted message, and how many at most, by their indexes.

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
            data = self.read_block(block.number)
            header = self.header(block.number, data[:HEADER_BYTES])
        except FileNotFoundError:
            self.gone.append(block)
            return
        if header.generation == block.generation:
            # What follows was torn, or written since.
            data = data[: block.bytes]
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
            if not held_only_removed(damage, self.removed):
                self.report(damage)
        if (
            walker.offset >= len(data)
            and walker.whole_bytes < block.bytes
            and header.generation == block.generation
            and not self._is_known(block.number, walker.whole_bytes)
        ):
            size = block.bytes - walker.whole_bytes
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


def _is_of(index: BlockIndex, block: BlockInfo) -> bool:
    # Whether an index is of a block as it was found: it may have changed since.
    return (index.generation, index.base_seq, index.block_bytes) == (
        block.generation,
        block.base_seq,
        block.bytes,
    )


def _is_suspect(survey: Survey, opened: list[BlockContents], losses: Losses) -> bool:
    # Damage that an index records was judged when the index was made.
    judged = [damage for each in opened if not each.is_walked for damage in each.head.damage]
    return (
        bool(survey.never_acknowledged)
        or any(each.torn for each in opened)
        or any(damage not in judged for damage in losses.damage)
    )


def _info_of(contents: BlockContents) -> BlockInfo:
    header, head = contents.header, contents.head
    return BlockInfo(
        head.number,
        head.generation,
        head.block_bytes,
        head.base_seq,
        head.last_seq,
        head.count,
        head.subject_count,
        head.first_time_ns,
        head.last_time_ns,
        not contents.is_walked or header.generation > 0,
        header.cipher != 0,
    )
