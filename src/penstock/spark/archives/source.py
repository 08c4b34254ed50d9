"""The format `penstock-archive`: an archived stream as a table, alone or with the stream behind it.

    spark.read.format("penstock-archive").load("/archive/ORDERS")
    spark.read.format("penstock-archive").option("union", "true").option("servers", url).load(…)

Columns and options are those of `penstock`. A table is what the newest manifest named when it was
planned; with `union` it goes on with what the stream held then, without a gap and without a
message twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FORMAT, load_manifest
from penstock.spark.archives.scan import ArchivePart, ArchivePartition, scan_archive
from penstock.spark.archives.settings import Settings, plan, read_settings
from penstock.spark.archives.union import LivePartition, read_live
from penstock.spark.schema import MESSAGE_COLUMNS, Column, requested, spark_schema


class ArchiveReader(DataSourceReader):
    """Reads an archive once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Divide the archive among tasks, and the stream behind it."""
        return [
            ArchivePartition(each) if isinstance(each, ArchivePart) else LivePartition(each)
            for each in plan(self._settings)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        # Spark makes a partition of its own where there is none.
        if isinstance(partition, ArchivePartition):
            yield from scan_archive(partition.part, self._columns)
        elif isinstance(partition, LivePartition):
            yield from read_live(partition.part, self._columns)


class ArchiveSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Give the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the columns that the options ask for, once there is an archive."""
        settings = read_settings(self.options)
        load_manifest(ArchiveFolder(settings.place))
        return spark_schema(settings.content.choose(MESSAGE_COLUMNS))

    def reader(self, schema: StructType) -> ArchiveReader:
        """Give what reads the archive once."""
        return ArchiveReader(read_settings(self.options), requested(schema, MESSAGE_COLUMNS))
