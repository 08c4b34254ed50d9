"""The format `penstock`: streams as tables, through their server.

    spark.read.format("penstock").option("stream", "ORDERS").load()
    spark.readStream.format("penstock").option("streams", "A,B").load()

Works with Penstock's server and with any other NATS server. A table is what the streams held when
it was planned; reading leaves nothing behind on the server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.spark.schema import MESSAGE_COLUMNS, Column, requested, spark_schema
from penstock.spark.sink import RowStreamWriter, RowWriter, read_sink
from penstock.spark.stream_follow import StreamFollower
from penstock.spark.stream_read import RangePartition, read_range
from penstock.spark.stream_settings import (
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
        return spark_schema(settings.content.choose(MESSAGE_COLUMNS))

    def reader(self, schema: StructType) -> StreamBatchReader:
        """Give what reads the streams once."""
        return StreamBatchReader(read_settings(self.options), requested(schema, MESSAGE_COLUMNS))

    def streamReader(self, schema: StructType) -> StreamFollower:  # noqa: N802 - Spark's name
        """Give what follows the streams."""
        return StreamFollower(read_settings(self.options), requested(schema, MESSAGE_COLUMNS))

    def writer(self, schema: StructType, overwrite: bool) -> RowWriter:
        """Give what publishes a frame."""
        _refuse_overwrite(overwrite)
        return RowWriter(read_sink(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowStreamWriter:  # noqa: N802
        """Give what publishes what a query yields."""
        _refuse_overwrite(overwrite)
        return RowStreamWriter(read_sink(self.options, schema))


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise UsageError(f'{FORMAT}: a stream is only ever appended to: mode("append")')
