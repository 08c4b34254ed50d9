"""The format `penstock-blocks`: a stream's block files as a table, without a server.

    spark.read.format("penstock-blocks").load("/data/jetstream/$G/streams/ORDERS")

Ours and Go's layout, on the local disk or any file system that pyarrow knows. Also beside a server
that goes on writing: a table is what was there when it was planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.spark.blocks.follow import BlockStreamReader
from penstock.spark.blocks.scan import StretchPartition, scan
from penstock.spark.blocks.settings import FORMAT, Settings, narrowed, plan, read_settings
from penstock.spark.folders import open_folder
from penstock.spark.pushdown import narrow
from penstock.spark.schema import Column, requested, spark_schema


class BlockReader(DataSourceReader):
    """Reads a directory once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns
        self._is_empty = False

    def partitions(self) -> list[InputPartition]:
        """Divide the directory among tasks."""
        if self._is_empty:
            return []
        return [StretchPartition(each) for each in plan(self._settings)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        # Spark makes a partition of its own where there is none.
        if isinstance(partition, StretchPartition):
            yield from scan(partition.stretch, self._columns, self._settings.on_corrupt)


class NarrowedBlockReader(BlockReader):
    """Reads what a query's filters may want; Spark calls it only where that is switched on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters; all are handed back, for Spark to look at each row."""
        found = narrowed(self._settings, narrow(filters, self._columns))
        self._is_empty = found is None
        self._settings = found or self._settings
        return filters


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
        return spark_schema(settings.content.choose(settings.columns()))

    def reader(self, schema: StructType) -> BlockReader:
        """Give what reads the directory once."""
        settings = read_settings(self.options)
        if settings.starts_at_end:
            raise UsageError(f"{FORMAT}: startingOffsets=latest is for following a directory")
        kind = NarrowedBlockReader if settings.pushdown.pushdown else BlockReader
        return kind(settings, requested(schema, settings.columns()))

    def streamReader(self, schema: StructType) -> BlockStreamReader:  # noqa: N802 - Spark's name
        """Give what follows the directory."""
        settings = read_settings(self.options)
        columns = requested(schema, settings.columns())
        return BlockStreamReader(settings, columns)
