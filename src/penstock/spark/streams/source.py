"""The format `penstock`: streams as tables, through their server.

    spark.read.format("penstock").option("stream", "ORDERS").load()
    spark.readStream.format("penstock").option("streams", "A,B").load()

Works with Penstock's server and with any other NATS server. A table is what the streams held when
it was planned; reading leaves nothing behind on the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.pushdown import narrow
from penstock.spark.schema import MESSAGE_COLUMNS, Column, requested, spark_schema
from penstock.spark.sinks.settings import read_sink
from penstock.spark.sinks.sink import RowStreamWriter, RowWriter
from penstock.spark.streams.follow import StreamFollower
from penstock.spark.streams.read import RangePartition, read_range
from penstock.spark.streams.settings import (
    FORMAT,
    Settings,
    bounds_of,
    find_streams,
    ranges_of,
    read_settings,
)


class StreamBatchReader(DataSourceReader):
    """Reads streams once."""

    def __init__(self, settings: Settings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Divide the streams among tasks."""
        return [
            RangePartition(each)
            for facts in find_streams(self._settings)
            for each in ranges_of(self._settings, facts, *bounds_of(self._settings, facts))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages."""
        # Spark makes a partition of its own where there is none.
        if isinstance(partition, RangePartition):
            yield from read_range(partition.wanted, self._columns)


class NarrowedStreamReader(StreamBatchReader):
    """Reads what a query's filters may want; Spark calls it only where that is switched on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters; all are handed back, for Spark to look at each row."""
        found = narrow(filters, self._columns)
        self._settings = msgspec.structs.replace(self._settings, narrowed=found)
        return filters


class StreamSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Give the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the columns that the options ask for, once the streams are known to be there."""
        settings = read_settings(self.options)
        find_streams(settings)
        return spark_schema(settings.content.choose(settings.content.known(MESSAGE_COLUMNS)))

    def reader(self, schema: StructType) -> StreamBatchReader:
        """Give what reads the streams once."""
        settings = read_settings(self.options)
        kind = NarrowedStreamReader if settings.pushdown.pushdown else StreamBatchReader
        return kind(settings, requested(schema, settings.content.known(MESSAGE_COLUMNS)))

    def streamReader(self, schema: StructType) -> StreamFollower:  # noqa: N802 - Spark's name
        """Give what follows the streams."""
        settings = read_settings(self.options)
        columns = requested(schema, settings.content.known(MESSAGE_COLUMNS))
        return StreamFollower(settings, columns)

    def writer(self, schema: StructType, overwrite: bool) -> RowWriter:
        """Give what publishes a frame."""
        return RowWriter(read_sink(self.options, schema, overwrites=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowStreamWriter:  # noqa: N802
        """Give what publishes what a query yields."""
        return RowStreamWriter(
            read_sink(self.options, schema, overwrites=overwrite, is_streaming=True)
        )
