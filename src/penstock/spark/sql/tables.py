"""What can be read as a table: streams and buckets of a server, directories and archives.

Only names and options: nothing is opened but the connection that asks a server for its streams.
Used in the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.spark import schema
from penstock.spark.archives.manifest import FORMAT as ARCHIVE_FORMAT
from penstock.spark.blocks.settings import FORMAT as BLOCK_FORMAT
from penstock.spark.connecting import Connection, streams_of
from penstock.spark.jobs.inputs import Input
from penstock.spark.kv import rows as kv_rows
from penstock.spark.kv.settings import FORMAT as KV_FORMAT
from penstock.spark.options import Options
from penstock.spark.sql.catalog import Table
from penstock.spark.streams.settings import FORMAT as STREAM_FORMAT

_MESSAGE = (
    schema.STREAM,
    schema.SUBJECT,
    schema.SEQUENCE,
    schema.TIMESTAMP,
    schema.TIME_NS,
    schema.HEADER_MAP,
    schema.SIZE,
    schema.DATA,
)
_BLOCK = (*_MESSAGE, schema.BLOCK, schema.OFFSET)


def tables_of_server(connection: Mapping[str, str]) -> list[Table]:
    """Ask a server for its streams; `connection` has options of the format `penstock`."""
    options = Options(STREAM_FORMAT, connection)
    wanted = options.group(Connection)
    options.finish()
    with streams_of(wanted) as streams:
        names = sorted(streams.pages("STREAM.NAMES", "streams", {}))
    return [_table_of_stream(each, dict(connection)) for each in names]


def _table_of_stream(name: str, connection: dict[str, str]) -> Table:
    source = Input(STREAM_FORMAT, {**connection, "stream": name})
    if name.startswith(kv_rows.STREAM_PREFIX):
        options = {**connection, "bucket": name.removeprefix(kv_rows.STREAM_PREFIX)}
        return _table_of_bucket(name, options, source)
    return _table_of_messages(name, source, _MESSAGE)


def table_of_directory(name: str, path: str, options: Mapping[str, str]) -> Table:
    """Give the table of a stream's directory; `options` are of the format `penstock-blocks`."""
    given = {**options, "path": path}
    source = Input(BLOCK_FORMAT, given)
    if name.startswith(kv_rows.STREAM_PREFIX):
        return _table_of_bucket(name, given, source)
    return _table_of_messages(name, source, _BLOCK)


def table_of_archive(name: str, path: str) -> Table:
    """Give the table of an archive."""
    return _table_of_messages(name, Input(ARCHIVE_FORMAT, {"path": path}), _MESSAGE)


def _table_of_messages(name: str, source: Input, columns: tuple[schema.Column, ...]) -> Table:
    return Table(
        name=name,
        format=source.format,
        options=dict(source.options),
        columns=columns,
        payload=schema.DATA.name,
        sample=source,
        takes_filters=source.format != ARCHIVE_FORMAT,
    )


def _table_of_bucket(name: str, options: dict[str, str], source: Input) -> Table:
    return Table(
        name=name,
        format=KV_FORMAT,
        options=options,
        columns=kv_rows.COLUMNS,
        payload=kv_rows.VALUE.name,
        sample=source,
        takes_filters=False,
    )
