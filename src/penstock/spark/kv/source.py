"""The format `penstock-kv`: a bucket of keys and values as a table.

    spark.read.format("penstock-kv").option("bucket", "PRICES").load()
    spark.read.format("penstock-kv").load("/data/jetstream/$G/streams/KV_PRICES")
    spark.readStream.format("penstock-kv").option("bucket", "PRICES").load()
    frame.write.format("penstock-kv").mode("append").option("bucket", "PRICES").save()

Through any NATS server, or from the bucket's directory without one. A table shows the newest value
of each key, or with mode=history every change that the bucket still holds. A streaming query yields
every change, by the positions and rules of `penstock`. Writing is in `kv.write`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.spark.blocks import settings as block_settings
from penstock.spark.blocks.source import BlockStreamReader
from penstock.spark.folder import open_folder
from penstock.spark.kv.latest import plan_latest, plan_newest
from penstock.spark.kv.rows import Rows, requested_columns
from penstock.spark.kv.settings import FORMAT, KvSettings, Mode, read_settings
from penstock.spark.kv.write import KvStreamWriter, KvWriter, read_sink
from penstock.spark.part import StreamPart, partitions_of, read_partition
from penstock.spark.schema import spark_schema
from penstock.spark.streams import settings as stream_settings
from penstock.spark.streams.settings import find_streams
from penstock.spark.streams.source import StreamFollower


class KvReader(DataSourceReader):
    """Reads a bucket once."""

    def __init__(self, settings: KvSettings, rows: Rows) -> None:
        self._settings = settings
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the bucket."""
        return partitions_of(self._parts())

    def _parts(self) -> list[StreamPart]:
        is_latest = self._settings.mode is Mode.LATEST
        blocks, server = self._settings.blocks, self._settings.server
        if blocks is not None:
            return plan_newest(blocks) if is_latest else block_settings.plan(blocks)
        if server is None:
            raise UsageError("no bucket is given")
        if is_latest:
            return plan_latest(server, is_past=bool(self._settings.source.as_of))
        return stream_settings.plan(server)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows."""
        return map(self._rows.convert, read_partition(partition, self._rows.needed))


class KvFollower(StreamFollower):
    """Follows a bucket through its server."""

    def __init__(self, settings: KvSettings, rows: Rows) -> None:
        assert settings.server is not None
        super().__init__(settings.server, rows.needed)
        self._rows = rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's changes."""
        return map(self._rows.convert, super().read(partition))


class KvBlockFollower(BlockStreamReader):
    """Follows a bucket's directory."""

    def __init__(self, settings: KvSettings, rows: Rows) -> None:
        assert settings.blocks is not None
        super().__init__(settings.blocks, rows.needed)
        self._rows = rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's changes."""
        return map(self._rows.convert, super().read(partition))


class KvSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that the options ask for; raise UsageError if there is no bucket."""
        settings = read_settings(self.options)
        if settings.server is not None:
            find_streams(settings.server)
        else:
            open_folder(settings.source.path)
        return spark_schema(settings.source.chosen())

    def reader(self, schema: StructType) -> KvReader:
        """Return a reader for one batch."""
        settings = read_settings(self.options)
        shows_all = settings.mode is Mode.HISTORY or settings.source.include_deletes
        columns = tuple(requested_columns(schema))
        return KvReader(settings, Rows(settings.bucket, columns, shows_all))

    def streamReader(self, schema: StructType) -> KvFollower | KvBlockFollower:  # noqa: N802
        """Return a reader for a streaming query."""
        settings = read_settings(self.options)
        if settings.source.as_of or settings.source.mode is Mode.LATEST:
            raise UsageError(f"{FORMAT}: what follows a bucket gives its changes: no asOf or mode")
        rows = Rows(settings.bucket, tuple(requested_columns(schema)), includes_deletes=True)
        if settings.blocks is not None:
            return KvBlockFollower(settings, rows)
        return KvFollower(settings, rows)

    def writer(self, schema: StructType, overwrite: bool) -> KvWriter:
        """Return a writer that puts and deletes keys."""
        _refuse_overwrite(overwrite)
        return KvWriter(read_sink(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KvStreamWriter:  # noqa: N802
        """Return a writer that puts and deletes the keys of a query's batches."""
        _refuse_overwrite(overwrite)
        return KvStreamWriter(read_sink(self.options, schema))


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise UsageError(f'{FORMAT}: keys are put and deleted one by one: mode("append")')
