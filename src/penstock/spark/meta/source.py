"""The format `penstock-meta`: streams, blocks, consumers and subjects, without reading messages.

    spark.read.format("penstock-meta").option("table", "streams").option("servers", url).load()
    spark.read.format("penstock-meta").option("table", "blocks").load("/data/jetstream")

A table is read from a server, or from a directory without one: that of a stream, or any above it up
to a server's store. The table `blocks` needs a directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.limits import META_PARTS_MAX
from penstock.spark.connection import ALIASES, Connection, streams_of
from penstock.spark.folder import find_stream_folders, stream_name
from penstock.spark.meta import rows as meta_server
from penstock.spark.meta.rows import (
    TABLES,
    Row,
    TableName,
    directory_of,
    rows_of_folder,
    to_batches,
)
from penstock.spark.options import Names, Options
from penstock.spark.schema import Column, choose, requested, spark_schema
from penstock.subjects import SubjectFilter

FORMAT = "penstock-meta"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Which table, of which streams."""

    table: TableName | None = None
    path: str = ""
    key_file: str = ""
    stream: Names | None = None
    stream_pattern: str = ""
    subject: Names | None = None
    columns: Names | None = None


class MetaSettings(msgspec.Struct, frozen=True):
    """All options of one use of the format, checked."""

    connection: Connection
    source: Source
    table: TableName

    def wants(self, stream: str) -> bool:
        """Return True if a stream is selected by its name."""
        source = self.source
        if source.stream is not None and stream not in source.stream:
            return False
        return not source.stream_pattern or bool(re.fullmatch(source.stream_pattern, stream))

    def subjects(self) -> SubjectFilter:
        """Return the filter of subjects; raise UsageError for a wrong pattern."""
        return SubjectFilter(each.encode() for each in self.source.subject or ())


def read_settings(given: Mapping[str, str]) -> MetaSettings:
    """Return the checked options of the format; raise UsageError."""
    options = Options(FORMAT, given, ALIASES)
    source = options.group(Source)
    connection = options.group(Connection)
    options.finish()
    if source.table is None:
        raise UsageError(f"{FORMAT}: give the option table: {', '.join(TableName)}")
    if source.table is TableName.BLOCKS and not source.path:
        raise UsageError(f"{FORMAT}: blocks are told of by directories: .load(path)")
    if source.subject is not None and source.table is not TableName.SUBJECTS:
        raise UsageError(f"{FORMAT}: the option subject is for the table subjects")
    try:
        re.compile(source.stream_pattern)
    except re.error as error:
        raise UsageError(f"option streamPattern: {source.stream_pattern!r}: {error}") from None
    settings = MetaSettings(connection, source, source.table)
    settings.subjects()
    return settings


class StreamsPartition(InputPartition):
    """The streams that one task reads, by their names or their directories."""

    def __init__(self, streams: Sequence[str]) -> None:
        self.streams = tuple(streams)


class MetaReader(DataSourceReader):
    """Reads a table once."""

    def __init__(self, settings: MetaSettings, columns: list[Column]) -> None:
        self._settings = settings
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Divide the streams among tasks."""
        found = self._found()
        count = min(len(found), META_PARTS_MAX)
        return [StreamsPartition(found[place::count]) for place in range(count)]

    def _found(self) -> list[str]:
        settings = self._settings
        if settings.source.path:
            folders = find_stream_folders(settings.source.path)
            found = [each for each in folders if settings.wants(stream_name(each))]
        else:
            with streams_of(settings.connection) as streams:
                names = streams.pages("STREAM.NAMES", "streams", {})
                found = sorted(each for each in names if settings.wants(each))
        missing = set(settings.source.stream or ()) - {stream_name(each) for each in found}
        if missing:
            raise UsageError(f"{FORMAT}: no stream {', '.join(sorted(missing))}")
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows."""
        # Spark makes a partition of its own if there is none.
        if isinstance(partition, StreamsPartition):
            yield from to_batches(self._rows(partition.streams), self._columns)

    def _rows(self, found: Sequence[str]) -> Iterator[Row]:
        settings = self._settings
        for each in found:
            if settings.source.path:
                directory = directory_of(each, settings.source.key_file)
                yield from rows_of_folder(settings.table, directory, settings.subjects())
            else:
                yield from self._rows_of_server(each)

    def _rows_of_server(self, stream: str) -> Iterator[Row]:
        with streams_of(self._settings.connection) as streams:
            if self._settings.table is TableName.STREAMS:
                yield from meta_server.stream_rows(streams, stream)
            elif self._settings.table is TableName.CONSUMERS:
                yield from meta_server.consumer_rows(streams, stream)
            else:
                patterns = self._settings.source.subject or (">",)
                yield from meta_server.subject_rows(streams, stream, patterns)


class MetaSource(DataSource):
    """The format; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the table."""
        settings = read_settings(self.options)
        known = TABLES[settings.table]
        wanted = settings.source.columns
        return spark_schema(known if wanted is None else choose(wanted, known))

    def reader(self, schema: StructType) -> MetaReader:
        """Return a reader of the table."""
        settings = read_settings(self.options)
        return MetaReader(settings, requested(schema, TABLES[settings.table]))
