"""The one reader of a stream's directory: what its files hold, and what is wrong with them.

`survey_directory` lists the files, reads the header and the length of every block, and decides
which blocks belong to the stream: those with its salt and the number of their file name. A damaged
header is mended from what else is known: a single byte by the header's checksum, more from the
block's index, and without an index from the salt, under which records of a plain block check out.
`block_contents` decides what one block holds. `find_losses` compares the blocks with each other and
with the high-water mark, and returns all damage.

Both readers of a directory stand on these functions: recovery acts on the findings, `StreamReader`
reports them. So both serve the same messages and name the same losses.

Invariant: everything here is a function of what the files hold. Nothing is written. A file of a
newer format raises UnsupportedVersion.

Called by recovery under the store's lock, and by readers beside a server that goes on writing. Any
thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from penstock.errors import CorruptStore, FormatError
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    ScannedBlock,
    correct_block_header,
    decode_block_header,
    record_seed,
    scan_starts,
)
from penstock.format.block_contents import (
    TAIL_REASON,
    BlockContents,
    index_fits,
    read_index_head,
)
from penstock.format.block_walker import BlockWalker
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, read_algorithms
from penstock.format.files import FileStart, ReadableFolder, read_file, read_starts
from penstock.format.index.block_index import BlockIndex
from penstock.format.layout import HIGH_WATER_NAME, STATE_NAME, block_name, index_name, sort_names
from penstock.format.record import DELETED, ENVELOPED, decode
from penstock.format.sequence_set import SequenceSet
from penstock.format.state.checkpoint import (
    Checkpoint,
    HighWater,
    decode_checkpoint,
    decode_high_water,
)
from penstock.format.subject_table import SubjectTable

GENERATIONS_TRIED = 64
"""A block whose header is lost is tried with this many generations of its checksum seed."""

SEQ_DELTA_MAX = 2**32 - 1
"""No block spans more sequences; a wider gap between two blocks was left on purpose."""

MISSING_BLOCK = "the block file is missing"
MISSING_BLOCK_END = "the end of the block is missing"
MISSING_LOG_END = "the end of the log is missing"


# What stands beside the blocks


class OnDiskState(msgspec.Struct):
    """The checkpoint and the high-water mark of a directory, as far as they can be read."""

    checkpoint: Checkpoint | None = None
    mark: HighWater | None = None
    has_checkpoint_file: bool = False
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def last_block(self) -> tuple[int, int]:
        """The last block's number and its durable bytes; (0, 0) if nothing records them."""
        recorded = [(0, 0) if self.mark is None else (self.mark.block, self.mark.block_bytes)]
        if self.checkpoint is not None:
            recorded += [(each.number, each.bytes) for each in self.checkpoint.blocks[-1:]]
        return max(recorded)

    @property
    def salt(self) -> int:
        """The stream's salt, 0 if nothing records it."""
        if self.checkpoint is not None:
            return self.checkpoint.salt
        return 0 if self.mark is None else self.mark.salt

    @property
    def last_seq(self) -> int:
        """The highest sequence that was ever recorded as durable."""
        recorded = [0 if self.mark is None else self.mark.last_seq]
        if self.checkpoint is not None:
            # The mark is not synced with every commit; the checkpoint is, with what it covers.
            recorded.append(self.checkpoint.last_seq)
        return max(recorded)

    @property
    def last_time_ns(self) -> int:
        """The time of the newest message that was ever recorded as durable."""
        recorded = [0 if self.mark is None else self.mark.last_time_ns]
        if self.checkpoint is not None:
            recorded.append(self.checkpoint.last_time_ns)
        return max(recorded)

    def durable_bytes(self, block: ScannedBlock) -> int:
        """Return how much of a block is known to be on stable storage."""
        number, size = self.last_block
        if number == block.number:
            return size
        return block.size if number > block.number else 0

    def drop_foreign(self, salt: int) -> None:
        """Forget a checkpoint or a mark of another stream, with a note."""
        if self.mark is not None and self.mark.salt not in (0, salt):
            self.notes.append("high.water is of another stream and not used")
            self.mark = None
        if self.checkpoint is not None and self.checkpoint.salt not in (0, salt):
            self.notes.append("checkpoint not used: it is of another stream")
            self.checkpoint = None


def read_mark(folder: ReadableFolder) -> HighWater | None:
    """Return the high-water mark, or None if no slot of it is valid."""
    data = read_file(folder, HIGH_WATER_NAME)
    if data is None:
        return None
    return decode_high_water(data, f"{folder.path}/{HIGH_WATER_NAME}")


def read_state(folder: ReadableFolder) -> OnDiskState:
    """Read the checkpoint and the mark; a damaged checkpoint is noted and left out.

    Raises UnsupportedVersion.
    """
    state = OnDiskState()
    data = read_file(folder, STATE_NAME)
    if data is not None:
        state.has_checkpoint_file = True
        try:
            state.checkpoint = decode_checkpoint(data, f"{folder.path}/{STATE_NAME}")
        except CorruptStore as error:
            state.notes.append(f"checkpoint not used: {error.reason}")
    state.mark = read_mark(folder)
    return state


# The files of a directory


class Survey(msgspec.Struct):
    """The files of a directory, sorted by what they are."""

    folder: ReadableFolder
    state: OnDiskState
    salt: int
    blocks: dict[int, ScannedBlock]
    """By number, in order."""

    indexed: set[int]
    """The blocks that have an index file."""

    temporaries: list[str]
    """Files that an interrupted write left."""

    tombstones: SequenceSet = msgspec.field(default_factory=SequenceSet)
    """Removed messages, as recorded by the indexes of missing blocks."""

    never_acknowledged: list[ScannedBlock] = msgspec.field(default_factory=list)
    """A last block whose first commit was not finished: no message of it was acknowledged."""

    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def readable(self) -> list[int]:
        """The numbers of the blocks that can be read, in order."""
        return [number for number, block in self.blocks.items() if block.header is not None]


def missing_block(folder: ReadableFolder, number: int) -> ScannedBlock:
    """Return the entry of a block that has no file."""
    return ScannedBlock(number, f"{folder.path}/{block_name(number)}", reason=MISSING_BLOCK)


def survey_directory(
    folder: ReadableFolder,
    state: OnDiskState,
    starts: Callable[[list[str], int], list[FileStart]] | None = None,
) -> Survey:
    """Return the files of a directory; a checkpoint or mark of another stream leaves `state`.

    `starts` reads the first bytes of many files at once, where the file system has that. Raises
    FileNotFoundError if there is no such directory, and UnsupportedVersion.
    """
    names, indexed, temporaries = sort_names(folder.list_names())
    try:
        read = starts or (lambda wanted, size: read_starts(folder, wanted, size))
        images = read(list(names.values()), HEADER_BYTES)
    except FileNotFoundError:
        # Beside a writer a block may be removed after it was listed, and its index before it.
        names, images = _starts_left(folder, names)
        indexed &= names.keys()
    blocks = scan_starts(folder.path, names, images)
    survey = Survey(folder, state, _choose_salt(blocks, state.salt), blocks, indexed, temporaries)
    for block in blocks.values():
        if not block.belongs_to(survey.salt):
            _claim(survey, block)
    lone = sorted(indexed - names.keys())
    for number in lone:
        _add_lone_index(survey, number)
    if lone:
        survey.blocks = dict(sorted(blocks.items()))
    state.drop_foreign(survey.salt)
    _find_never_acknowledged(survey)
    return survey


def _starts_left(
    folder: ReadableFolder, names: dict[int, str]
) -> tuple[dict[int, str], list[FileStart]]:
    found: dict[int, str] = {}
    images: list[FileStart] = []
    for number, name in names.items():
        try:
            images += read_starts(folder, [name], HEADER_BYTES)
        except FileNotFoundError:
            continue
        found[number] = name
    return found, images


def _choose_salt(blocks: dict[int, ScannedBlock], recorded: int) -> int:
    """Return the stream's salt: the recorded one if a block has it, else that of most blocks."""
    headers = [block.header for block in blocks.values() if block.header is not None]
    if not headers or any(header.salt == recorded for header in headers):
        return recorded
    return Counter(header.salt for header in headers).most_common(1)[0][0]


def _claim(survey: Survey, block: ScannedBlock) -> None:
    """Decide whether a block belongs to the stream, and mend its header if that is damaged."""
    found = block.header
    if found is None:
        block.header = _mended(survey, block)
    elif found.salt != survey.salt:
        block.header, block.is_foreign = None, True
        block.reason = "a block of another stream"
    elif found.number != block.number:
        block.header, block.is_foreign = None, True
        block.reason = f"the header says block {found.number}"
    if block.header is None:
        index = _load_own_index(survey, block.number)
        if index is not None:
            block.first_seq, block.last_seq = index.base_seq, index.last_seq


def _load_own_index(survey: Survey, number: int) -> BlockIndex | None:
    """Return a block's index if it is whole and of this stream, else None."""
    name = index_name(number)
    path = f"{survey.folder.path}/{name}"
    data = read_file(survey.folder, name) if number in survey.indexed else None
    if data is None:
        return None
    try:
        index = BlockIndex.load(data, path)
        header = decode_block_header(index.header, path)
    except (CorruptStore, FormatError):
        return None
    is_ours = (header.salt, header.number) == (survey.salt or header.salt, number)
    return index if is_ours else None


def _mended(survey: Survey, block: ScannedBlock) -> BlockHeader | None:
    corrected = correct_block_header(block.image, block.path)
    if corrected is not None and corrected.number == block.number:
        survey.salt = survey.salt or corrected.salt
        return corrected if corrected.salt == survey.salt else None
    index = _load_own_index(survey, block.number)
    if index is not None:
        return decode_block_header(index.header, block.path)
    return _header_by_records(survey, block) if survey.salt else None


def _header_by_records(survey: Survey, block: ScannedBlock) -> BlockHeader | None:
    """Return a header with the generation under which the records of a plain block check out."""
    data = read_file(survey.folder, block_name(block.number)) or b""
    before = [
        other.header.base_seq
        for number, other in survey.blocks.items()
        if number < block.number and other.header is not None
    ]
    base_seq = max(before, default=1)
    for generation in range(GENERATIONS_TRIED):
        seed = record_seed(survey.salt, block.number, generation)
        walker = BlockWalker(data, block=block.number, seed=seed, base_seq=base_seq)
        probe = BlockIndex(block.number, generation, base_seq, bytes(HEADER_BYTES), SubjectTable())
        walker.index_into(probe)
        if walker.whole_bytes > HEADER_BYTES:
            if _is_encrypted(probe, data, seed):
                # Its key is lost with its header.
                return None
            # No block begins before its first message, nor with the last of the one before.
            first = probe.entry(0)[0] if probe.count else probe.last_seq + 1
            block.has_one_commit = walker.commit_start <= HEADER_BYTES
            return BlockHeader(block.number, survey.salt, first, 0, generation)
    return None


def _is_encrypted(index: BlockIndex, data: bytes, seed: int) -> bool:
    for ordinal in range(index.count):
        _, offset, length, _, _, flags, _ = index.entry(ordinal)
        if flags & ENVELOPED and not flags & DELETED:
            record = decode(data[offset : offset + length], seed=(seed + offset) & (2**64 - 1))
            return read_algorithms(record.payload)[1] is not Cipher.NONE
    return False


def _add_lone_index(survey: Survey, number: int) -> None:
    """Add a block of which only the index is left: an index is removed before its block."""
    index = _load_own_index(survey, number)
    if index is None:
        survey.notes.append(f"{index_name(number)}: an index without its block, left alone")
        return
    block = missing_block(survey.folder, number)
    block.first_seq, block.last_seq = index.base_seq, index.last_seq
    survey.blocks[number] = block
    survey.tombstones.update(index.tombstones)


def _find_never_acknowledged(survey: Survey) -> None:
    """Leave out a last block that was begun and never finished.

    The first commit of a block writes its header. If that commit alone was written, and nothing
    records that it was acknowledged, a last block without its header is no loss.
    """
    ours = [block for block in survey.blocks.values() if not block.is_foreign]
    last = ours[-1] if ours else None
    if (
        last is not None
        and (last.header is None or last.has_one_commit)
        and last.last_seq < last.first_seq
        and survey.state.durable_bytes(last) == 0
    ):
        last.header = None
        survey.never_acknowledged.append(last)


# What is lost


def durable_bytes(survey: Survey, header: BlockHeader, size: int) -> int:
    """Return how many bytes of the last readable block are known to be durable."""
    number = header.number
    durable = survey.state.durable_bytes(survey.blocks[number])
    if any(other.number > number and other.size for other in survey.blocks.values()):
        return max(durable, size)
    if durable < size and number in survey.indexed:
        # An index is written after the sync of all that it describes.
        index = read_index_head(survey.folder, number)
        if index is not None and index_fits(index, header, size):
            return size
    return durable


class Losses(msgspec.Struct):
    """The damage of a directory, and remarks that are no loss."""

    removed: SequenceSet
    """The sequences that tombstones of the opened blocks remove."""

    damage: list[Damage] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


def removed_sequences(survey: Survey, opened: Sequence[BlockContents]) -> SequenceSet:
    """Return all sequences that the tombstones of the opened blocks remove."""
    removed = survey.tombstones.copy()
    for each in opened:
        removed.update(each.head.tombstones)
    return removed


def find_losses(survey: Survey, opened: Sequence[BlockContents], *, last_seq: int) -> Losses:
    """Return the damage of the opened blocks, the blocks that cannot be read, and the gaps.

    A block records where it begins, which is where the block before it ended. So what is missing
    between two blocks with consecutive numbers is lost, unless a tombstone removed it. Between
    other blocks, one may have been removed with all that it held, and nothing is reported.

    `last_seq` is the last sequence of all blocks, of those that were not opened as well.
    """
    removed = removed_sequences(survey, opened)
    losses = Losses(removed)
    for each in opened:
        for damage in each.head.damage:
            _add_damage(losses, damage, removed)
    reported = {block.number for block in survey.never_acknowledged}
    for before, after in pairwise(opened):
        _find_gap(losses, survey, before, after, removed, reported)
    for block in survey.blocks.values():
        if block.header is None and block.number not in reported:
            _add_lost_block(losses, survey, opened, block, removed, last_seq)
    _find_missing_end(losses, survey, last_seq)
    return losses


def held_only_removed(damage: Damage, removed: SequenceSet) -> bool:
    """Return True if damage cost only removed messages: an interrupted erasure leaves that."""
    size = damage.last_seq - damage.first_seq + 1
    return size > 0 and removed.count_between(damage.first_seq, damage.last_seq) == size


def _add_damage(losses: Losses, damage: Damage, removed: SequenceSet) -> None:
    if held_only_removed(damage, removed):
        losses.notes.append(f"{damage}; removed before")
    else:
        losses.damage.append(damage)


def _find_gap(
    losses: Losses,
    survey: Survey,
    before: BlockContents,
    after: BlockContents,
    removed: SequenceSet,
    reported: set[int],
) -> None:
    first = before.head.last_seq + 1
    for damage in before.head.damage:
        first = max(first, damage.last_seq + 1)
    last = after.header.base_seq - 1
    missing = last - first + 1
    if missing <= 0 or missing >= SEQ_DELTA_MAX:
        return
    start, end = before.header.number, after.header.number
    lost = [
        block
        for block in survey.blocks.values()
        if block.header is None and start < block.number < end
    ]
    if not lost and end != start + 1:
        return
    if removed.count_between(first, last) == missing:
        return
    reported.update(block.number for block in lost)
    tail = next((each for each in before.head.damage if each.reason == TAIL_REASON), None)
    if lost:
        damage = Damage(lost[0].number, 0, lost[0].size, lost[0].reason, first, last)
    elif tail is not None and tail.last_seq < tail.first_seq == first and tail in losses.damage:
        # Only the next block shows what the tail held.
        losses.damage.remove(tail)
        damage = msgspec.structs.replace(tail, last_seq=last)
    else:
        damage = Damage(start, before.head.block_bytes, 0, MISSING_BLOCK_END, first, last)
    losses.damage.append(damage)


def _add_lost_block(
    losses: Losses,
    survey: Survey,
    opened: Sequence[BlockContents],
    block: ScannedBlock,
    removed: SequenceSet,
    log_end: int,
) -> None:
    first, last = block.first_seq, block.last_seq
    if first > last:
        # Nothing records what it held, but the blocks around it do not hold it.
        if not opened or block.number > opened[-1].header.number:
            first, last = log_end + 1, survey.state.last_seq
        elif block.number < opened[0].header.number:
            first, last = 1, opened[0].header.base_seq - 1
    size = max(last - first + 1, 0)
    if size and removed.count_between(first, last) == size:
        first, last, size = 1, 0, 0
    if block.is_foreign and not size:
        losses.notes.append(f"{block_name(block.number)}: {block.reason}, left alone")
        return
    losses.damage.append(Damage(block.number, 0, block.size, block.reason, first, last))


def _find_missing_end(losses: Losses, survey: Survey, last_seq: int) -> None:
    """Find a last block that is gone or shorter than it was, if only removals went with it."""
    mark = survey.state.mark
    if mark is None or mark.last_seq > last_seq or not mark.block:
        return
    number = max(survey.blocks, default=0)
    block = survey.blocks.get(mark.block)
    if block is None and mark.block > number:
        losses.damage.append(Damage(mark.block, 0, 0, MISSING_BLOCK, 1, 0))
    elif block is not None and block.number == number and block.size < mark.block_bytes:
        losses.damage.append(Damage(number, block.size, 0, MISSING_BLOCK_END, 1, 0))


def missing_log_end(
    state: OnDiskState, known: Sequence[Damage], *, last_seq: int, end: tuple[int, int]
) -> Damage | None:
    """Return the damage if sequences behind the log's end were durable, or None.

    `known` is all other damage: sequences that it covers are not reported twice. `end` is the last
    block's number and length.
    """
    if state.last_seq <= last_seq:
        return None
    if any(each.first_seq <= last_seq + 1 and each.last_seq >= state.last_seq for each in known):
        return None
    return Damage(*end, 0, MISSING_LOG_END, last_seq + 1, state.last_seq)
