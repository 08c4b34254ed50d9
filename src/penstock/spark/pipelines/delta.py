"""A flow into a Delta table: tasks write Parquet files, the driver names them in the table's log.

Invariant: a batch is in the table whole or not at all, and once. Its commit has the query and the
batch's number as Delta's own mark of a transaction, and a batch with that mark is not written
again. Files of failed attempts are in no commit, so no reader sees them. In mode complete a batch
replaces all before it. Needs `penstock[delta]`; no jar.
"""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame

from penstock.clock import SystemClock
from penstock.errors import UsageError
from penstock.spark.pipelines.pipeline import Mode
from penstock.spark.pipelines.write import BatchWriter

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError:
    raise UsageError("Delta tables need deltalake: pip install 'penstock[delta]'") from None

_WRITTEN = "name string, bytes long"


class DeltaWriter(BatchWriter):
    """Writes batches to one table; see the module."""

    def __init__(self, place: str, mode: Mode, checkpoint: str) -> None:
        super().__init__(checkpoint)
        self._place = place
        self._replaces = mode is Mode.COMPLETE

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch, unless it is in the table."""
        query = self.query_id(batch)
        table = DeltaTable(self._place) if DeltaTable.is_deltatable(self._place) else None
        # Numbers begin with 1: Delta returns 0 if there was no transaction.
        number = batch_id + 1
        if table is not None and (table.transaction_version(query) or 0) >= number:
            return
        write = functools.partial(_write_file, self._place, batch_id)
        written = batch.mapInArrow(write, _WRITTEN).collect()
        now_ms = SystemClock().now_ns() // 1_000_000
        added = [AddAction(each["name"], each["bytes"], {}, now_ms, True, "{}") for each in written]
        if not added and (table is None or not self._replaces):
            return
        schema = table.schema() if table is not None else _schema(self._place, added[0].path)
        mark = CommitProperties(app_transactions=[Transaction(query, number)])
        if table is None:
            create_table_with_add_actions(
                self._place, schema, added, mode="error", commit_properties=mark
            )
        else:
            how = "overwrite" if self._replaces else "append"
            table.create_write_transaction([*added], how, schema, commit_properties=mark)


def _schema(place: str, name: str) -> Schema:
    """Return the schema of a new table, from the first of its files."""
    files, folder = _opened(place)
    found = pq.read_schema(f"{folder}/{name}", filesystem=files)
    return Schema.from_arrow(pa.schema([each.with_nullable(True) for each in found]))


def _write_file(
    place: str, batch_id: int, rows: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows as one file, if there are any; yield its name and size. In a task."""
    files, folder = _opened(place)
    name = f"part-{batch_id:010}-{uuid.uuid4().hex}.parquet"
    writer = None
    for each in rows:
        if writer is None:
            files.create_dir(folder)
            writer = pq.ParquetWriter(f"{folder}/{name}", each.schema, filesystem=files)
        writer.write_batch(each)
    if writer is not None:
        writer.close()
        size = files.get_file_info(f"{folder}/{name}").size
        yield pa.RecordBatch.from_pydict({"name": [name], "bytes": [size]})


def _opened(place: str) -> tuple[fs.FileSystem, str]:
    if "://" not in place:
        return fs.LocalFileSystem(), os.path.abspath(place)
    files, folder = fs.FileSystem.from_uri(place)
    return files, folder
