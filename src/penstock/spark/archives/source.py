"""The format `penstock-archive`: an archived stream as a table, alone or with the stream behind it.

    spark.read.format("penstock-archive").load("/archive/ORDERS")
    spark.read.format("penstock-archive").option("union", "true").option("servers", url).load(…)

Columns and options are those of `penstock`. A table holds what the newest manifest named when it
was planned; with `union` also what the stream held then, without a gap and without a message twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FORMAT, load_manifest
from penstock.spark.archives.settings import Settings, plan, read_settings
from penstock.spark.part import partitions_of, read_partition
from penstock.spark.schema import MESSAGE_COLUMNS, Column, requested, spark_schema


class ArchiveReader(DataSourceReader):
    """Reads an archive once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the archive, and of the stream behind it."""
        return partitions_of(plan(self._settings))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        return read_partition(partition, self._columns)


class ArchiveSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that the options ask for; raise UsageError if there is no archive."""
        settings = read_settings(self.options)
        load_manifest(ArchiveFolder(settings.folder))
        return spark_schema(settings.content.choose(MESSAGE_COLUMNS))

    def reader(self, schema: StructType) -> ArchiveReader:
        """Return a reader for one batch."""
        return ArchiveReader(read_settings(self.options), requested(schema, MESSAGE_COLUMNS))
