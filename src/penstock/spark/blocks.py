"""The format `penstock-blocks`: a stream's block files as a table, without a server.

    spark.read.format("penstock-blocks").load("/data/jetstream/$G/streams/ORDERS")

Ours and Go's layout, on the local disk or any file system that pyarrow knows. Also beside a server
that goes on writing: a table is what was there when it was planned.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.spark.block_scan import StretchPartition, scan
from penstock.spark.block_settings import FORMAT, Settings, plan, read_settings
from penstock.spark.block_stream import BlockStreamReader
from penstock.spark.folders import open_folder
from penstock.spark.schema import BLOCK_COLUMNS, Column, requested, spark_schema


class BlockReader(DataSourceReader):
    """Reads a directory once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Divide the directory among tasks."""
        return [StretchPartition(each) for each in plan(self._settings)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
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

    def schema(self) -> StructType:
        """Give the columns that the options ask for."""
        settings = read_settings(self.options)
        open_folder(settings.place.path)
        return spark_schema(settings.content.choose(BLOCK_COLUMNS))

    def reader(self, schema: StructType) -> BlockReader:
        """Give what reads the directory once."""
        settings = read_settings(self.options)
        if settings.starts_at_end:
            raise UsageError(f"{FORMAT}: startingOffsets=latest is for following a directory")
        return BlockReader(settings, requested(schema, BLOCK_COLUMNS))

    def streamReader(self, schema: StructType) -> BlockStreamReader:  # noqa: N802 - Spark's name
        """Give what follows the directory."""
        return BlockStreamReader(read_settings(self.options), requested(schema, BLOCK_COLUMNS))
