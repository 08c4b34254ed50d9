"""The format `penstock-kv`: a bucket of keys and values as a table.

    spark.read.format("penstock-kv").option("bucket", "PRICES").load()
    spark.read.format("penstock-kv").load("/data/jetstream/$G/streams/KV_PRICES")
    spark.readStream.format("penstock-kv").option("bucket", "PRICES").load()
    frame.write.format("penstock-kv").mode("append").option("bucket", "PRICES").save()

Through any NATS server, or from the bucket's directory without one. A table shows the newest value
of each key, or with mode=history every change that the bucket still holds. A streaming query yields
every change, by the positions and rules of `penstock`.

Written, each row puts or deletes a key of the bucket. Columns: `key`, `value` (binary or text), and
optionally `operation` (PUT by default, DEL or PURGE) and `expected_revision`. Others are ignored,
so that one bucket's table can be written to another. A task waits for the acknowledgement of each
of its rows.

At least once: a task that is run again puts its rows again. That changes no value, because the last
one counts, but it takes an entry of each key's history. With `expected_revision` a row is stored
only if the key is at that revision (0: if it has none). A refusal fails the task; so does a task
that is run again, because its rows were stored already. Rows of one key keep their order within a
partition only: use `repartition("key")` first if a frame has several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from penstock.client.row_publisher import Rows as PublishedRows
from penstock.errors import ApiError, UsageError
from penstock.spark.blocks import settings as block_settings
from penstock.spark.blocks.source import BlockStreamReader
from penstock.spark.connection import ALIASES, Connection, streams_of
from penstock.spark.folder import open_folder
from penstock.spark.kv.latest import plan_latest, plan_newest
from penstock.spark.kv.rows import STREAM_PREFIX, Rows, requested_columns
from penstock.spark.kv.settings import FORMAT, KvSettings, Mode, check_bucket, read_settings
from penstock.spark.options import Options
from penstock.spark.part import StreamPart, partitions_of, read_partition
from penstock.spark.schema import spark_schema
from penstock.spark.sinks.settings import column_bytes
from penstock.spark.streams import settings as stream_settings
from penstock.spark.streams.settings import find_streams
from penstock.spark.streams.source import StreamFollower

# Writing

OPERATIONS = {"PUT": 0, "DEL": 1, "PURGE": 2, "Remove": 1, "MaxAge": 2}
"""The values of `operation`; a removal by a limit is written as what clients take it for."""

_OPERATION_LINES = ("", "KV-Operation: DEL\r\n", "KV-Operation: PURGE\r\nNats-Rollup: sub\r\n")
_EXPECTED = "Nats-Expected-Last-Subject-Sequence: "
_KEY = r"^[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*$"

COLUMN_TYPES = {
    "key": (StringType,),
    "value": (BinaryType, StringType),
    "operation": (StringType,),
    "expected_revision": (LongType, IntegerType),
}


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """Options: which bucket, and how many rows wait for their acknowledgement at a time."""

    bucket: str = ""
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4096


class Put(WriterCommitMessage):
    """What one task did."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class KvSink(msgspec.Struct, frozen=True):
    """All that a task needs to write to a bucket."""

    connection: Connection
    target: Target
    names: frozenset[str]

    def write(self, batches: Iterator[pa.RecordBatch]) -> Put:
        """Write every row; raise RefusedByServer, UsageError or OSError."""
        rows = 0
        with (
            streams_of(self.connection) as streams,
            streams.client.publishing_rows(in_flight=self.target.max_in_flight) as publisher,
        ):
            for batch in batches:
                publisher.publish(self._messages(batch))
                rows += batch.num_rows
        return Put(rows)

    def _messages(self, batch: pa.RecordBatch) -> PublishedRows:
        operations = self._operations(batch)
        return PublishedRows(
            column_bytes(self._subjects(batch), "key"),
            self._headers(batch, operations),
            column_bytes(self._values(batch, operations), "value"),
        )

    def _operations(self, batch: pa.RecordBatch) -> pa.Array:
        if "operation" not in self.names:
            return pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
        words = batch.column("operation").fill_null("PUT")
        known = pa.array(list(OPERATIONS))
        places = pc.index_in(words, value_set=known)
        if places.null_count:
            word = words.filter(pc.is_null(places))[0].as_py()
            raise UsageError(f"operation {word!r} is none: there are {', '.join(OPERATIONS)}")
        return pa.array(list(OPERATIONS.values()), pa.int32()).take(places)

    def _subjects(self, batch: pa.RecordBatch) -> pa.Array:
        keys = batch.column("key")
        is_key = pc.match_substring_regex(keys, _KEY).fill_null(False)
        if not pc.all(is_key, min_count=0).as_py():
            wrong = keys.filter(pc.invert(is_key))[0].as_py()
            raise UsageError(f"{wrong!r} is no key: letters, digits and - / _ = with single dots")
        return pc.binary_join_element_wise(f"$KV.{self.target.bucket}.", keys, "")

    def _values(self, batch: pa.RecordBatch, operations: pa.Array) -> pa.Array:
        if "value" not in self.names:
            return pa.repeat(pa.scalar(b"", pa.binary()), batch.num_rows)
        values = batch.column("value").cast(pa.binary())
        return pc.if_else(pc.equal(operations, 0), values, pa.scalar(b"", pa.binary()))

    def _headers(
        self, batch: pa.RecordBatch, operations: pa.Array
    ) -> tuple[memoryview, memoryview] | None:
        if not self.names & {"operation", "expected_revision"}:
            return None
        lines = pa.array(_OPERATION_LINES).take(operations)
        if "expected_revision" in self.names:
            numbers = batch.column("expected_revision").cast(pa.string())
            expected = pc.binary_join_element_wise(_EXPECTED, numbers, "\r\n", "")
            lines = pc.binary_join_element_wise(lines, expected.fill_null(""), "")
        blocks = pc.binary_join_element_wise("NATS/1.0\r\n", lines, "\r\n", "")
        return column_bytes(pc.if_else(pc.equal(lines, ""), "", blocks), "operation")


def read_sink(given: Mapping[str, str], schema: StructType) -> KvSink:
    """Return the sink for options and a frame's columns; raise UsageError, also without a
    bucket."""
    options = Options(FORMAT, given, ALIASES)
    connection = options.group(Connection)
    target = options.group(Target)
    options.finish()
    check_bucket(target.bucket)
    kinds = {field.name: field.dataType for field in schema.fields}
    for name, allowed in COLUMN_TYPES.items():
        if name in kinds and not isinstance(kinds[name], allowed):
            raise UsageError(f"{FORMAT}: column {name} cannot be {kinds[name].simpleString()}")
    if "key" not in kinds or not kinds.keys() & {"value", "operation"}:
        raise UsageError(f"{FORMAT}: the frame needs the columns key and value, or key, operation")
    with streams_of(connection) as streams:
        try:
            streams.call(f"STREAM.INFO.{STREAM_PREFIX}{target.bucket}")
        except ApiError as error:
            raise UsageError(f"bucket {target.bucket}: {error}") from None
    return KvSink(connection, target, frozenset(COLUMN_TYPES.keys() & kinds.keys()))


class KvWriter(DataSourceArrowWriter):
    """Writes a frame."""

    def __init__(self, sink: KvSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows."""
        return self._sink.write(iterator)


class KvStreamWriter(DataSourceStreamArrowWriter):
    """Writes a query's batches."""

    def __init__(self, sink: KvSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows."""
        return self._sink.write(iterator)


# Reading, and the format


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
