"""Scanning block directories in tasks: a range of blocks, its messages, and its damage.

The driver opens the directory once. A task gets a range of its blocks with the sequences that were
removed from them, so that every task, and a task that is run again, reads the same messages,
whatever a server that has the directory open does meanwhile.

Damage is handled by the option `onCorruptRecord`:

    fail            the query fails, and says which block, which offset and which sequences
    skip            everything around the damage is read
    quarantine      the same, and the damage is kept at `quarantinePath`:

        <stream>/<block>-<offset>-<hash>.bytes      the damaged bytes of the block file
        <stream>/<block>-<offset>-<hash>.json       a `QuarantineReport`

The names and contents of these files follow from the damage alone, and a file appears whole or not
at all: a task that is run again, twice at a time or by another query leaves the same files. If a
whole block cannot be read, the whole file is kept. The same holds for Go's layout, whose blocks are
compressed.

Loaded by executors: nothing here uses a session.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptStore, UsageError
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.format.files import LocalFile, ReadableFolder
from penstock.format.golang.directory import GoStreamReader
from penstock.format.hashing import xxh64
from penstock.format.layout import block_name
from penstock.format.reader import BlockInfo, StreamReader
from penstock.format.sequence_set import SequenceSet
from penstock.limits import KEY_FILE_BYTES_MAX
from penstock.spark.archives.folder import ArchiveFolder, HashingFile
from penstock.spark.arrow import Converter, unpack
from penstock.spark.folder import folder_at, open_folder
from penstock.spark.options import OnCorruptRecord
from penstock.spark.part import MessageSelection
from penstock.spark.position import DataLoss
from penstock.spark.schema import TIME_NS, Column

SMALL_PART = 8
"""A batch is small with this part of the rows that it may have: to hand a batch to Spark takes as
long as some hundred rows do."""

_TIME_NS = "penstock time_ns"
"""A column's name that no schema has."""


class StreamDirectory(msgspec.Struct, frozen=True):
    """The directory of a stream, and the file with its key if it is encrypted."""

    path: str
    stream: str
    key_file: str = ""
    is_go: bool = False
    quarantine: str = ""
    """The folder where damage is kept."""

    def secret(self) -> bytes | None:
        """Return the key, or None if no file is named; raise UsageError if it cannot be read."""
        if not self.key_file:
            return None
        try:
            file = LocalFile(self.key_file)
        except OSError as error:
            raise UsageError(f"option keyFile: {error}") from None
        try:
            return file.read_at(0, KEY_FILE_BYTES_MAX).strip()
        finally:
            file.close()

    def open(self) -> StreamReader:
        """Return a reader of the blocks that the directory has now."""
        return StreamReader(open_folder(self.path), stream=self.stream, key=self._key())

    def open_blocks(self, blocks: Sequence[BlockInfo], removed: SequenceSet) -> StreamReader:
        """Return a reader of blocks that are known already, without a look at the others."""
        return StreamReader.of_stock(
            open_folder(self.path), list(blocks), removed, stream=self.stream, key=self._key()
        )

    def _key(self) -> StoreKey | None:
        secret = self.secret()
        return None if secret is None else StoreKey(secret)

    def open_go(self) -> GoStreamReader:
        """Return a reader of a directory of Go's server."""
        return GoStreamReader(self.path, key=self.secret(), open_folder=folder_at)


class BlockRange(msgspec.Struct, frozen=True):
    """Consecutive blocks of a directory: a source of a `StreamPart`."""

    directory: StreamDirectory
    blocks: tuple[BlockInfo, ...]
    removed: bytes
    """The sequences that were removed from these blocks when the plan was made, encoded."""

    on_corrupt: OnCorruptRecord = OnCorruptRecord.FAIL

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.directory.stream

    @property
    def first_seq(self) -> int:
        """The first sequence of the first block."""
        return self.blocks[0].base_seq

    @property
    def last_seq(self) -> int:
        """The last sequence of the last block."""
        return self.blocks[-1].last_seq

    @property
    def count(self) -> int:
        """How many messages the blocks hold, removed ones included."""
        return sum(each.count for each in self.blocks)

    @property
    def bytes(self) -> int:
        """How many bytes the blocks have."""
        return sum(each.bytes for each in self.blocks)

    def read(
        self, selection: MessageSelection, columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected messages; raise CorruptStore if damage fails the query."""
        if self.directory.is_go:
            yield from _scan_go(self, selection, columns)
            return
        removed = SequenceSet.decode(self.removed)
        converter = Converter(columns, self.stream, removed)
        left_out = SequenceSet() if selection.include_deleted else removed
        for batch in _gathered(_batches(self, selection, columns, left_out), selection):
            yield converter.convert(batch)


def removed_within(removed: SequenceSet, blocks: Sequence[BlockInfo]) -> bytes:
    """Return the removed sequences of consecutive blocks, encoded for a `BlockRange`."""
    within = SequenceSet()
    for first, last in removed.ranges_between(blocks[0].base_seq, blocks[-1].last_seq):
        within.add_range(first, last)
    return within.encode()


# Our own layout


def _batches(
    source: BlockRange,
    selection: MessageSelection,
    columns: Sequence[Column],
    left_out: SequenceSet,
) -> Iterator[ColumnBatch]:
    selected = selection.for_reader(columns)
    reader = source.directory.open_blocks(source.blocks, left_out)
    handled = 0
    for block in reader.in_range(selected):
        for batch in reader.block_batches(block, selected):
            yield unpack(batch, selection.packed)
        handle_damage(reader.damage[handled:], source.directory, source.on_corrupt)
        handled = len(reader.damage)
        if reader.gone and selection.fail_on_data_loss:
            _refuse_loss(reader, block)


def _gathered(batches: Iterator[ColumnBatch], selection: MessageSelection) -> Iterator[ColumnBatch]:
    """Yield small batches of several blocks as one: a filter may leave few messages of each."""
    builder = ColumnBuilder()
    blocks: list[tuple[int, int]] = []

    def taken() -> ColumnBatch:
        batch = msgspec.structs.replace(builder.take(blocks[0][0]), blocks=tuple(blocks))
        blocks.clear()
        return batch

    for batch in batches:
        size = len(batch.subjects) + len(batch.headers) + len(batch.payloads)
        is_small = batch.count * SMALL_PART <= selection.rows_max
        if builder.count and (
            not is_small
            or builder.count + batch.count > selection.rows_max
            or builder.data_bytes() + size > selection.bytes_max
        ):
            yield taken()
        if is_small:
            builder.extend(batch)
            blocks.append((batch.block, batch.count))
        else:
            yield batch
    if builder.count:
        yield taken()


def _refuse_loss(reader: StreamReader, block: BlockInfo) -> None:
    # A block whose messages were all removed when the plan was made may go. Any other block took
    # messages with it that were to be read.
    ranges = list(reader.removed.ranges_between(block.base_seq, block.last_seq))
    if block in reader.gone and ranges != [(block.base_seq, block.last_seq)]:
        raise DataLoss(
            f"{reader.path(block.number)}: sequences {block.base_seq} to {block.last_seq} were to "
            "be read, and the block is gone; with failOnDataLoss=false what is left is read"
        )


# Go's layout


def _scan_go(
    source: BlockRange, selection: MessageSelection, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    # Go's blocks are read by sequences and subjects alone: times are filtered by a column.
    time_ns = msgspec.structs.replace(TIME_NS, shown_as=_TIME_NS)
    converter = Converter([*columns, time_ns], source.stream)
    for batch in _go_batches(source, selection, columns):
        found = converter.convert(unpack(batch, selection.packed))
        times = found.column(_TIME_NS)
        is_selected = pc.and_(
            pc.greater_equal(times, selection.first_ns), pc.less_equal(times, selection.last_ns)
        )
        yield found.drop_columns([_TIME_NS]).filter(is_selected)


def _go_batches(
    source: BlockRange, selection: MessageSelection, columns: Sequence[Column]
) -> Iterator[ColumnBatch]:
    selected = selection.for_reader(columns)
    reader = source.directory.open_go()
    for block in source.blocks:
        yield from reader.batches(
            first_seq=max(selected.first_seq, block.base_seq, 1),
            last_seq=min(selected.last_seq, block.last_seq),
            subjects=selected.subjects,
            headers=selected.headers,
            payloads=selected.payloads,
        )
        damage = reader.report.damage_by_block.get(block.number, ())
        handle_damage(damage, source.directory, source.on_corrupt)


# Damage


class QuarantineReport(msgspec.Struct, frozen=True):
    """One damage, as it is reported beside its bytes."""

    stream: str
    path: str
    file: str
    offset: int
    length: int
    reason: str
    first_sequence: int
    last_sequence: int
    """Below the first: no sequence is missing."""

    kept: str
    kept_from: int
    kept_bytes: int


def handle_damage(
    found: Sequence[Damage], directory: StreamDirectory, on_corrupt: OnCorruptRecord
) -> None:
    """Raise CorruptStore, keep damage in the quarantine, or do nothing, as the option says."""
    if found and on_corrupt is OnCorruptRecord.FAIL:
        raise CorruptStore(
            open_folder(directory.path).path,
            found[0].offset,
            f"{found[0]}; read around it with onCorruptRecord=skip",
        )
    if found and on_corrupt is OnCorruptRecord.QUARANTINE:
        blocks = open_folder(directory.path)
        quarantine = ArchiveFolder(directory.quarantine)
        for each in found:
            _keep_damage(quarantine, each, blocks, directory)


def _keep_damage(
    quarantine: ArchiveFolder, damage: Damage, blocks: ReadableFolder, directory: StreamDirectory
) -> None:
    file, start, data = _damaged_bytes(damage, blocks, is_go=directory.is_go)
    name = f"{directory.stream}/{damage.block:06d}-{damage.offset}-{xxh64(data):016x}"
    report = QuarantineReport(
        directory.stream,
        blocks.path,
        file,
        damage.offset,
        damage.length,
        damage.reason,
        damage.first_seq,
        damage.last_seq,
        f"{name}.bytes",
        start,
        len(data),
    )
    document = msgspec.json.format(msgspec.json.encode(report))
    for suffix, contents in (("bytes", data), ("json", document)):
        if quarantine.size(f"{name}.{suffix}") != len(contents):
            quarantine.write(f"{name}.{suffix}", functools.partial(_fill, contents))


def _damaged_bytes(
    damage: Damage, blocks: ReadableFolder, *, is_go: bool
) -> tuple[str, int, bytes]:
    """Return the file's name, the offset of the bytes that are kept, and these bytes."""
    name = f"{damage.block}.blk" if is_go else block_name(damage.block)
    is_whole = is_go or not damage.length
    try:
        file = blocks.open(name)
    except FileNotFoundError:
        return name, damage.offset, b""
    try:
        if is_whole:
            return name, 0, file.read_at(0, file.size())
        return name, damage.offset, file.read_at(damage.offset, damage.length)
    finally:
        file.close()


def _fill(contents: bytes, file: HashingFile) -> None:
    file.write(contents)
