"""Rows of a frame as messages: which columns are used, and their bytes as they are sent.

Works on whole Arrow columns: no Python runs for each row. Called by sinks, in tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, LongType, MapType, StringType

from penstock.client.row_publisher import Rows
from penstock.errors import UsageError
from penstock.spark.sinks.header_blocks import MapColumn, header_blocks

PAYLOADS = ("data", "value", "content")
ID_COLUMN = "msg_id"
ORIGIN_COLUMNS = ("stream", "sequence")
ORIGIN_TIME = "time_ns"
"""The headers that say where a message was before, and when, if that is known."""


class RowShape(msgspec.Struct, frozen=True):
    """Which columns of a frame make up a message."""

    payload: str
    subject: str = ""
    """The subject of all rows; "" if each has its own."""

    has_headers: bool = False
    id_column: str = ""
    keeps_origin: bool = False

    def rows(self, batch: pa.RecordBatch, id_start: bytes | None = None, first: int = 0) -> Rows:
        """Return the rows of a batch as messages; raise UsageError.

        Without a column of ids, their ids are `id_start` and their numbers from `first` on.
        """
        return Rows(
            column_bytes(self.subjects(batch), "subject"),
            self._header_blocks(batch, id_start, first),
            column_bytes(batch.column(self.payload), self.payload),
        )

    def subjects(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the rows' subjects."""
        if self.subject:
            return pa.repeat(self.subject, batch.num_rows)
        return batch.column("subject")

    def _header_blocks(
        self, batch: pa.RecordBatch, id_start: bytes | None, first: int
    ) -> tuple[memoryview, memoryview] | None:
        if not (self.has_headers or self.id_column or id_start or self.keeps_origin):
            return None
        ids = lines = None
        if self.id_column:
            ids = column_bytes(batch.column(self.id_column).cast(pa.string()), self.id_column)
        if self.keeps_origin:
            lines = column_bytes(_origin_lines(batch), " or ".join(ORIGIN_COLUMNS))
        offsets, blocks = header_blocks(
            batch.num_rows,
            map_column(batch.column("headers")) if self.has_headers else None,
            ids,
            None if self.id_column else id_start,
            first,
            lines,
        )
        return memoryview(offsets), memoryview(blocks)


def shape_of(
    kinds: Mapping[str, Any], subject: str, id_column: str, keeps_origin: bool
) -> RowShape:
    """Return which of a frame's columns are used; raise UsageError."""
    payloads = [each for each in PAYLOADS if each in kinds]
    if len(payloads) != 1:
        raise UsageError(f"the frame needs one of the columns {', '.join(PAYLOADS)}")
    _check_type(kinds, payloads[0], BinaryType, StringType)
    if not subject:
        if "subject" not in kinds:
            raise UsageError("give the option subject, or a column subject")
        _check_type(kinds, "subject", StringType)
    if "headers" in kinds:
        _check_type(kinds, "headers", MapType)
    if id_column and id_column not in kinds:
        raise UsageError(f"option msgIdColumn: the frame has no column {id_column}")
    if keeps_origin:
        if not kinds.keys() >= set(ORIGIN_COLUMNS):
            raise UsageError(f"preserveOrigin needs the columns {' and '.join(ORIGIN_COLUMNS)}")
        _check_type(kinds, "stream", StringType)
        _check_type(kinds, "sequence", LongType)
        if ORIGIN_TIME in kinds:
            _check_type(kinds, ORIGIN_TIME, LongType)
    return RowShape(payloads[0], subject, "headers" in kinds, id_column, keeps_origin)


def _check_type(kinds: Mapping[str, Any], name: str, *wanted: type) -> None:
    if not isinstance(kinds[name], wanted):
        raise UsageError(f"column {name} cannot be {kinds[name].simpleString()}")


def _origin_lines(batch: pa.RecordBatch) -> pa.Array:
    stream = batch.column("stream")
    # The value becomes one header line, so it must have no line break.
    if pc.any(pc.match_substring_regex(stream, "[\r\n]")).as_py():
        raise UsageError("column stream holds what is no stream's name")
    parts = ["Nats-Orig-Stream: ", stream, "\r\nNats-Orig-Sequence: "]
    parts.append(batch.column("sequence").cast(pa.string()))
    if ORIGIN_TIME in batch.schema.names:
        moments = batch.column(ORIGIN_TIME).cast(pa.timestamp("ns", tz="UTC"))
        parts += ["\r\nNats-Orig-Time: ", pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ")]
    return pc.binary_join_element_wise(*parts, "\r\n", "")


def column_bytes(column: pa.Array, name: str) -> tuple[memoryview, memoryview]:
    """Return a column's offsets (int32) and its bytes; raise UsageError if a row is null."""
    if column.null_count:
        raise UsageError(f"column {name} is null in a row")
    plain = column.cast(pa.binary())
    if plain.offset:
        plain = pa.concat_arrays([plain])
    _, offsets, data = plain.buffers()
    if offsets is None:
        return memoryview(bytes(4)).cast("i"), memoryview(b"")
    return _offsets(offsets, len(plain)), _bytes(data)


def map_column(column: pa.MapArray) -> MapColumn:
    """Return the buffers of a column of headers; raise UsageError if a value is null."""
    if column.offset:
        column = pa.concat_arrays([column])
    keys, lists = column.keys, column.items
    values = lists.values
    if values.null_count:
        raise UsageError("column headers has a null among the values of a name")
    validity, offsets = column.buffers()[:2]
    list_validity, list_offsets = lists.buffers()[:2]
    return MapColumn(
        _bytes(validity),
        _offsets(offsets, len(column)),
        *column_bytes(keys, "headers"),
        _bytes(list_validity),
        _offsets(list_offsets, len(lists)),
        *column_bytes(values, "headers"),
    )


def _offsets(buffer: pa.Buffer | None, count: int) -> memoryview:
    if buffer is None or buffer.size < 4:
        return memoryview(bytes(4)).cast("i")
    return memoryview(buffer.slice(0, (count + 1) * 4)).cast("i")


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if buffer is None else buffer).cast("B")
