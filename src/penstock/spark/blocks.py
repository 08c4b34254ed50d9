"""The format `penstock-blocks`: a stream's block files as a table, without a server.

    spark.read.format("penstock-blocks").load("/data/jetstream/$G/streams/ORDERS")

Ours and Go's layout, on the local disk or any file system that pyarrow knows. Also beside a server
that goes on writing: a table is what was there when it was planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import CorruptStore, UsageError
from penstock.format.golang.directory import is_go_stream_directory
from penstock.format.reader import BlockInfo
from penstock.spark.block_scan import Place, Stretch, Wanted, removed_within, scan
from penstock.spark.folders import open_folder, stream_name
from penstock.spark.options import Options
from penstock.spark.plan import Splitting, group_blocks
from penstock.spark.reading_options import Batches, Content, OnCorruptRecord, Range
from penstock.spark.schema import BLOCK_COLUMNS, SEQUENCE, Column, requested, spark_schema

FORMAT = "penstock-blocks"


class Layout(StrEnum):
    """Whose files they are."""

    AUTO = "auto"
    NATIVE = "native"
    GO = "go"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Which directory, and how it is to be read."""

    path: str = ""
    stream: str = ""
    layout: Layout = Layout.AUTO
    key_file: str = ""
    on_corrupt_record: OnCorruptRecord = OnCorruptRecord.FAIL


class Settings(msgspec.Struct, frozen=True):
    """Everything that the options say."""

    place: Place
    wanted: Wanted
    splitting: Splitting
    content: Content
    on_corrupt: OnCorruptRecord


def read_settings(given: dict[str, str]) -> Settings:
    """Read the options of the format; raises UsageError."""
    options = Options(FORMAT, given)
    source = options.group(Source)
    wanted = options.group(Range)
    batches = options.group(Batches)
    splitting = options.group(Splitting)
    content = options.group(Content)
    options.finish()
    if not source.path:
        raise UsageError(f"{FORMAT}: give the stream's directory: .load(path)")
    subjects = wanted.subjects()
    return Settings(
        Place(source.path, source.stream or stream_name(source.path), source.key_file, _is_go(source)),
        Wanted(
            wanted.first_seq(),
            max(wanted.end_seq() - 1, 0),
            wanted.first_ns(),
            wanted.last_ns(),
            None if subjects is None else subjects.patterns,
            batches.arrow_batch_rows,
            batches.arrow_batch_bytes,
        ),
        splitting,
        content,
        source.on_corrupt_record,
    )


def _is_go(source: Source) -> bool:
    if source.layout is Layout.AUTO:
        return is_go_stream_directory(source.path)
    return source.layout is Layout.GO


def plan(settings: Settings) -> list[Stretch]:
    """Divide the wanted messages among tasks; raises CorruptStore where blocks cannot be read."""
    if settings.place.is_go:
        return _plan_go(settings)
    reader = settings.place.open()
    if reader.damage and settings.on_corrupt is OnCorruptRecord.FAIL:
        raise CorruptStore(settings.place.path, reader.damage[0].offset, str(reader.damage[0]))
    wanted = msgspec.structs.replace(settings.wanted, subjects=None)
    blocks = reader.candidates(wanted.selection([SEQUENCE]))
    return [
        Stretch(settings.place, settings.wanted, tuple(part), removed_within(reader.removed, part))
        for part in group_blocks(blocks, settings.splitting)
    ]


def _plan_go(settings: Settings) -> list[Stretch]:
    reader = settings.place.open_go()
    wanted = settings.wanted
    blocks = [
        BlockInfo(
            each.number, 0, each.bytes, each.first_seq, each.last_seq,
            each.last_seq - each.first_seq + 1, 0, 0, 0, True, reader.encrypted,
        )
        for each in reader.blocks
        if each.first_seq <= wanted.last_seq and each.last_seq >= wanted.first_seq
    ]  # fmt: skip
    place = msgspec.structs.replace(settings.place, stream=reader.name)
    return [
        Stretch(place, wanted, tuple(part), b"")
        for part in group_blocks(blocks, settings.splitting)
    ]


class StretchPartition(InputPartition):
    """A stretch, as Spark carries it to a task."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch


class BlockReader(DataSourceReader):
    """Reads a directory once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Divide the directory among tasks."""
        return [StretchPartition(each) for each in plan(self._settings)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield a task's messages."""
        # Spark makes a partition of its own where there is none.
        if isinstance(partition, StretchPartition):
            yield from scan(partition.stretch, self._columns, self._settings.on_corrupt)


class BlockSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Give the format's name."""
        return FORMAT

    def _read_settings(self) -> Settings:
        given: dict[str, Any] = dict(self.options)
        return read_settings(given)

    def schema(self) -> StructType:
        """Give the columns that the options ask for."""
        settings = self._read_settings()
        open_folder(settings.place.path)
        return spark_schema(settings.content.choose(BLOCK_COLUMNS))

    def reader(self, schema: StructType) -> BlockReader:
        """Give what reads the directory once."""
        return BlockReader(self._read_settings(), requested(schema, BLOCK_COLUMNS))
