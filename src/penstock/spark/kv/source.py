"""The format `penstock-kv`: a bucket of keys and values as a table.

    spark.read.format("penstock-kv").option("bucket", "PRICES").load()
    spark.read.format("penstock-kv").load("/data/jetstream/$G/streams/KV_PRICES")
    spark.readStream.format("penstock-kv").option("bucket", "PRICES").load()
    frame.write.format("penstock-kv").mode("append").option("bucket", "PRICES").save()

Through any NATS server, or from the bucket's directory without one. A table shows the newest value
of each key, or with mode=history every change that the bucket still holds; followed as a stream it
gives every change, by the positions and rules of `penstock`. Writing is in kv_write.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.spark.blocks import settings as block_settings
from penstock.spark.blocks.follow import BlockStreamReader
from penstock.spark.blocks.scan import StretchPartition, scan
from penstock.spark.folders import open_folder
from penstock.spark.kv.blocks import NewestPartition, plan_newest, read_newest
from penstock.spark.kv.latest import (
    BucketPartition,
    KeysPartition,
    plan_latest,
    read_bucket,
    read_keys,
)
from penstock.spark.kv.rows import Rows, requested_columns
from penstock.spark.kv.settings import FORMAT, KvSettings, Mode, read_settings
from penstock.spark.kv.write import KvStreamWriter, KvWriter, read_sink
from penstock.spark.reading_options import OnCorruptRecord
from penstock.spark.schema import spark_schema
from penstock.spark.streams.follow import StreamFollower
from penstock.spark.streams.read import RangePartition, read_range
from penstock.spark.streams.settings import bounds_of, find_streams, ranges_of


class KvReader(DataSourceReader):
    """Reads a bucket once."""

    def __init__(self, settings: KvSettings, rows: Rows) -> None:
        self._settings = settings
        self._rows = rows
        blocks = settings.blocks
        self._on_corrupt = OnCorruptRecord.FAIL if blocks is None else blocks.on_corrupt

    def partitions(self) -> list[InputPartition]:
        """Divide the bucket among tasks."""
        is_latest = self._settings.mode is Mode.LATEST
        if self._settings.blocks is not None:
            blocks = self._settings.blocks
            if is_latest:
                return plan_newest(blocks)
            return [StretchPartition(each) for each in block_settings.plan(blocks)]
        server = self._settings.server
        if server is None:
            raise UsageError("no bucket is given")
        if is_latest:
            return plan_latest(server, is_past=bool(self._settings.source.as_of))
        (facts,) = find_streams(server)
        return [
            RangePartition(each) for each in ranges_of(server, facts, *bounds_of(server, facts))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows."""
        rows = self._rows
        if isinstance(partition, KeysPartition):
            yield from read_keys(partition, rows)
        elif isinstance(partition, BucketPartition):
            yield from read_bucket(partition, rows)
        elif isinstance(partition, NewestPartition):
            yield from read_newest(partition, rows, self._on_corrupt)
        elif isinstance(partition, StretchPartition):
            yield from map(rows.convert, scan(partition.stretch, rows.needed, self._on_corrupt))
        elif isinstance(partition, RangePartition):
            yield from map(rows.convert, read_range(partition.wanted, rows.needed))


class KvFollower(StreamFollower):
    """Follows a bucket through its server."""

    def __init__(self, settings: KvSettings, rows: Rows) -> None:
        assert settings.server is not None
        super().__init__(settings.server, rows.needed)
        self._rows = rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's changes."""
        yield from map(self._rows.convert, super().read(partition))


class KvBlockFollower(BlockStreamReader):
    """Follows a bucket's directory."""

    def __init__(self, settings: KvSettings, rows: Rows) -> None:
        assert settings.blocks is not None
        super().__init__(settings.blocks, rows.needed)
        self._rows = rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's changes."""
        yield from map(self._rows.convert, super().read(partition))


class KvSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Give the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the columns that the options ask for, once the bucket is known to be there."""
        settings = read_settings(self.options)
        if settings.server is not None:
            find_streams(settings.server)
        else:
            open_folder(settings.source.path)
        return spark_schema(settings.source.chosen())

    def reader(self, schema: StructType) -> KvReader:
        """Give what reads the bucket once."""
        settings = read_settings(self.options)
        shows_all = settings.mode is Mode.HISTORY or settings.source.include_deletes
        columns = tuple(requested_columns(schema))
        return KvReader(settings, Rows(settings.bucket, columns, shows_all))

    def streamReader(self, schema: StructType) -> KvFollower | KvBlockFollower:  # noqa: N802
        """Give what follows the bucket."""
        settings = read_settings(self.options)
        if settings.source.as_of or settings.source.mode is Mode.LATEST:
            raise UsageError(f"{FORMAT}: what follows a bucket gives its changes: no asOf or mode")
        rows = Rows(settings.bucket, tuple(requested_columns(schema)), includes_deletes=True)
        if settings.blocks is not None:
            return KvBlockFollower(settings, rows)
        return KvFollower(settings, rows)

    def writer(self, schema: StructType, overwrite: bool) -> KvWriter:
        """Give what puts and deletes keys."""
        _refuse_overwrite(overwrite)
        return KvWriter(read_sink(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KvStreamWriter:  # noqa: N802
        """Give what puts and deletes what a query yields."""
        _refuse_overwrite(overwrite)
        return KvStreamWriter(read_sink(self.options, schema))


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise UsageError(f'{FORMAT}: keys are put and deleted one by one: mode("append")')
