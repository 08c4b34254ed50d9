"""Scanning block directories in tasks: what a task is given, and how it reads it.

The driver takes stock of the directory once; a task gets a stretch of its blocks with what was
removed from them, so that every task, and a task that is run again, reads the same messages,
whatever a server beside it does meanwhile. Loaded by executors: nothing here knows of sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from penstock.errors import UsageError
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.format.files import LocalFile
from penstock.format.golang.directory import GoStreamReader
from penstock.format.reader import BlockInfo, Selection, StreamReader
from penstock.format.sequence_set import SequenceSet
from penstock.spark.arrow import Converter, needs_of
from penstock.spark.blocks.corrupt_records import Scanned, treat_damage
from penstock.spark.folders import folder_at, open_folder
from penstock.spark.payloads import unpack
from penstock.spark.positions import DataLoss
from penstock.spark.reading_options import Batches, OnCorruptRecord, PayloadCompression, Range
from penstock.spark.schema import TIME_NS, Column
from penstock.subjects import SubjectFilter

KEY_FILE_BYTES_MAX = 65_536

SMALL_PART = 8
"""A batch is small with this part of the rows that it may have: the way of a batch to Spark takes
as long as that of some hundred rows."""

_TIME_NS = "penstock time_ns"
"""A column's name that no schema has."""


class Wanted(msgspec.Struct, frozen=True):
    """Which messages a scan is for; sent to tasks."""

    first_seq: int
    last_seq: int
    first_ns: int
    last_ns: int
    subjects: tuple[bytes, ...] | None
    rows_max: int
    bytes_max: int
    packed: PayloadCompression = PayloadCompression.NONE
    fail_on_data_loss: bool = True
    include_deleted: bool = False
    """Whether messages are wanted, too, that were removed and are still in their blocks."""

    @classmethod
    def of(
        cls,
        wanted: Range,
        batches: Batches,
        packed: PayloadCompression = PayloadCompression.NONE,
        fail_on_data_loss: bool = True,
    ) -> Wanted:
        """Give what options ask for; raises UsageError."""
        subjects = wanted.subjects()
        return cls(
            wanted.first_seq(),
            max(wanted.end_seq() - 1, 0),
            wanted.first_ns(),
            wanted.last_ns(),
            None if subjects is None else subjects.patterns,
            batches.arrow_batch_rows,
            batches.arrow_batch_bytes,
            packed,
            fail_on_data_loss,
        )

    def selection(self, columns: list[Column]) -> Selection:
        """Give it as readers take it."""
        needs = needs_of(columns)
        return Selection(
            first_seq=self.first_seq,
            last_seq=self.last_seq,
            first_ns=self.first_ns,
            last_ns=self.last_ns,
            subjects=None if self.subjects is None else SubjectFilter(self.subjects),
            headers=needs.headers,
            payloads=needs.payloads,
            rows_max=self.rows_max,
            bytes_max=self.bytes_max,
        )


class Place(msgspec.Struct, frozen=True):
    """Which stream's directory, and the file with the key that opens it, if it needs one."""

    path: str
    stream: str
    key_file: str = ""
    is_go: bool = False
    quarantine: str = ""
    """Where damage is set aside."""

    def secret(self) -> bytes | None:
        """Read the key; raises UsageError."""
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
        """Take stock of the directory."""
        secret = self.secret()
        key = None if secret is None else StoreKey(secret)
        return StreamReader(open_folder(self.path), stream=self.stream, key=key)

    def open_go(self) -> GoStreamReader:
        """Take stock of a directory of Go's server."""
        return GoStreamReader(self.path, key=self.secret(), open_folder=folder_at)


class Stretch(msgspec.Struct, frozen=True):
    """What one task reads."""

    place: Place
    wanted: Wanted
    blocks: tuple[BlockInfo, ...]
    removed: bytes
    """What was removed from these blocks when the plan was made, encoded."""


class StretchPartition(InputPartition):
    """A stretch, as Spark carries it to a task."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch


def removed_within(removed: SequenceSet, blocks: list[BlockInfo]) -> bytes:
    """Give what was removed from these blocks, as a stretch carries it."""
    within = SequenceSet()
    for first, last in removed.ranges_between(blocks[0].base_seq, blocks[-1].last_seq):
        within.add_range(first, last)
    return within.encode()


def scan(
    stretch: Stretch, columns: list[Column], on_corrupt: OnCorruptRecord
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a stretch; raises CorruptStore where they are damaged."""
    if stretch.place.is_go:
        yield from _scan_go(stretch, columns, on_corrupt)
        return
    removed = SequenceSet.decode(stretch.removed)
    converter = Converter(columns, stretch.place.stream, removed)
    unwanted = SequenceSet() if stretch.wanted.include_deleted else removed
    for batch in _gathered(_batches(stretch, columns, on_corrupt, unwanted), stretch.wanted):
        yield converter.convert(batch)


def _batches(
    stretch: Stretch, columns: list[Column], on_corrupt: OnCorruptRecord, unwanted: SequenceSet
) -> Iterator[ColumnBatch]:
    selection = stretch.wanted.selection(columns)
    secret = stretch.place.secret()
    reader = StreamReader.of_stock(
        open_folder(stretch.place.path),
        list(stretch.blocks),
        unwanted,
        stream=stretch.place.stream,
        key=None if secret is None else StoreKey(secret),
    )
    known = 0
    for block in reader.in_range(selection):
        for batch in reader.block_batches(block, selection):
            yield unpack(batch, stretch.wanted.packed)
        treat(reader.damage[known:], stretch.place, on_corrupt)
        known = len(reader.damage)
        if reader.gone and stretch.wanted.fail_on_data_loss:
            _refuse_loss(reader, block)


def _gathered(batches: Iterator[ColumnBatch], wanted: Wanted) -> Iterator[ColumnBatch]:
    """Put the few messages together that a filter leaves of each block."""
    builder = ColumnBuilder()
    blocks: list[tuple[int, int]] = []

    def taken() -> ColumnBatch:
        batch = msgspec.structs.replace(builder.take(blocks[0][0]), blocks=tuple(blocks))
        blocks.clear()
        return batch

    for batch in batches:
        size = len(batch.subjects) + len(batch.headers) + len(batch.payloads)
        is_small = batch.count * SMALL_PART <= wanted.rows_max
        if builder.count and (
            not is_small
            or builder.count + batch.count > wanted.rows_max
            or builder.data_bytes() + size > wanted.bytes_max
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
    # A block of which nothing was left when the plan was made may go; any other took messages with
    # it that were to be read.
    ranges = list(reader.removed.ranges_between(block.base_seq, block.last_seq))
    if block in reader.gone and ranges != [(block.base_seq, block.last_seq)]:
        raise DataLoss(
            f"{reader.path(block.number)}: sequences {block.base_seq} to {block.last_seq} were to "
            "be read, and the block is gone; with failOnDataLoss=false what is left is read"
        )


def _scan_go(
    stretch: Stretch, columns: list[Column], on_corrupt: OnCorruptRecord
) -> Iterator[pa.RecordBatch]:
    # Go's blocks are read by sequences and subjects alone: the time is a column more to go by.
    time_ns = msgspec.structs.replace(TIME_NS, shown_as=_TIME_NS)
    converter = Converter([*columns, time_ns], stretch.place.stream)
    first_ns, last_ns = stretch.wanted.first_ns, stretch.wanted.last_ns
    for batch in _go_batches(stretch, stretch.wanted.selection(columns), on_corrupt):
        found = converter.convert(unpack(batch, stretch.wanted.packed))
        times = found.column(_TIME_NS)
        is_wanted = pc.and_(pc.greater_equal(times, first_ns), pc.less_equal(times, last_ns))
        yield found.drop_columns([_TIME_NS]).filter(is_wanted)


def _go_batches(
    stretch: Stretch, selection: Selection, on_corrupt: OnCorruptRecord
) -> Iterator[ColumnBatch]:
    reader = stretch.place.open_go()
    for block in stretch.blocks:
        yield from reader.batches(
            first_seq=max(selection.first_seq, block.base_seq, 1),
            last_seq=min(selection.last_seq, block.last_seq),
            subjects=selection.subjects,
            headers=selection.headers,
            payloads=selection.payloads,
        )
        treat(reader.report.damage_by_block.get(block.number, ()), stretch.place, on_corrupt)


def treat(damage: Sequence[Damage], place: Place, on_corrupt: OnCorruptRecord) -> None:
    """Do with damage in a directory what the policy says; raises CorruptStore."""
    if damage:
        where = Scanned(open_folder(place.path), place.stream, place.is_go)
        treat_damage(damage, where, on_corrupt, place.quarantine)
