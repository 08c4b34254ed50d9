"""Scanning block directories in tasks: what a task is given, and how it reads it.

The driver takes stock of the directory once; a task gets a stretch of its blocks with what was
removed from them, so that every task, and a task that is run again, reads the same messages,
whatever a server beside it does meanwhile. Loaded by executors: nothing here knows of sessions.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.errors import CorruptStore, UsageError
from penstock.format.columns import ColumnBatch
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.format.files import LocalFile
from penstock.format.golang.directory import GoStreamReader
from penstock.format.reader import BlockInfo, Selection, StreamReader
from penstock.format.sequence_set import SequenceSet
from penstock.spark.arrow import Converter, needs_of
from penstock.spark.folders import open_folder
from penstock.spark.reading_options import OnCorruptRecord
from penstock.spark.schema import Column
from penstock.subjects import SubjectFilter

KEY_FILE_BYTES_MAX = 65_536


class Wanted(msgspec.Struct, frozen=True):
    """Which messages a scan is for; sent to tasks."""

    first_seq: int
    last_seq: int
    first_ns: int
    last_ns: int
    subjects: tuple[bytes, ...] | None
    rows_max: int
    bytes_max: int

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
        return GoStreamReader(self.path, key=self.secret())


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
    converter = Converter(columns, stretch.place.stream)
    for batch in _batches(stretch, columns, on_corrupt):
        yield converter.convert(batch)


def _batches(
    stretch: Stretch, columns: list[Column], on_corrupt: OnCorruptRecord
) -> Iterator[ColumnBatch]:
    selection = stretch.wanted.selection(columns)
    if stretch.place.is_go:
        yield from _go_batches(stretch, selection, on_corrupt)
        return
    secret = stretch.place.secret()
    reader = StreamReader.of_stock(
        open_folder(stretch.place.path),
        list(stretch.blocks),
        SequenceSet.decode(stretch.removed),
        stream=stretch.place.stream,
        key=None if secret is None else StoreKey(secret),
    )
    for block in reader.in_range(selection):
        yield from reader.block_batches(block, selection)
        _refuse(reader.damage, stretch, on_corrupt)


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
        _refuse(reader.report.damage, stretch, on_corrupt)


def _refuse(damage: list[Damage], stretch: Stretch, on_corrupt: OnCorruptRecord) -> None:
    if damage and on_corrupt is OnCorruptRecord.FAIL:
        raise CorruptStore(
            stretch.place.path,
            damage[0].offset,
            f"{damage[0]}; read around it with onCorruptRecord=skip",
        )
