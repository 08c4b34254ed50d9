"""The tables of `penstock-meta`: their columns, and rows made into Arrow batches.

A row is a dictionary; columns that a server or a directory does not have stay null. Times are Unix
nanoseconds and are shown to a microsecond. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    LongType,
    StringType,
    TimestampType,
)

from penstock.spark.schema import Column, arrow_schema

BATCH_ROWS = 16_384

Row = Mapping[str, Any]
"""One row by its columns' names."""


class TableName(StrEnum):
    """Which table is read."""

    STREAMS = "streams"
    BLOCKS = "blocks"
    CONSUMERS = "consumers"
    SUBJECTS = "subjects"


def _text(name: str, text: str) -> Column:
    return Column(name, StringType(), pa.string(), text)


def _number(name: str, text: str) -> Column:
    return Column(name, LongType(), pa.int64(), text)


def _flag(name: str, text: str) -> Column:
    return Column(name, BooleanType(), pa.bool_(), text)


def _time(name: str, text: str) -> Column:
    return Column(name, TimestampType(), pa.timestamp("us", tz="UTC"), text)


def _texts(name: str, text: str) -> Column:
    kind = pa.list_(pa.field("element", pa.string()))
    return Column(name, ArrayType(StringType()), kind, text)


ACCOUNT = _text("account", "the account's folder; null through a server")
STREAM = _text("stream", "the stream's name")

TABLES: dict[TableName, tuple[Column, ...]] = {
    TableName.STREAMS: (
        ACCOUNT,
        STREAM,
        _texts("subjects", "what it listens to"),
        _text("retention", "limits, interest or workqueue"),
        _text("storage", "file or memory"),
        _number("replicas", "servers that keep it"),
        _time("created", "when it was made"),
        _number("messages", "messages that it holds"),
        _number("bytes", "their bytes, as servers count them"),
        _number("first_sequence", "the first of them"),
        _time("first_timestamp", "when that was stored"),
        _number("last_sequence", "the last sequence that was given"),
        _time("last_timestamp", "when that was stored"),
        _number("deleted", "sequences in between without a message"),
        _number("subject_count", "distinct subjects; null with Go's layout"),
        _number("consumer_count", "consumers"),
        _number("block_count", "block files; null through a server"),
    ),
    TableName.BLOCKS: (
        ACCOUNT,
        STREAM,
        _number("block", "the number of the block file"),
        _number("generation", "how often it was rewritten"),
        _number("bytes", "its length"),
        _number("messages", "messages in it that were not removed"),
        _number("records", "messages in it, removed ones included; null with Go's layout"),
        _number("first_sequence", "no sequence of it is below"),
        _number("last_sequence", "the last sequence that it accounts for"),
        _time("first_timestamp", "the earliest time in it; null with Go's layout"),
        _time("last_timestamp", "the latest; null with Go's layout"),
        _flag("sealed", "whether it is finished"),
        _flag("encrypted", "whether it needs a key"),
    ),
    TableName.CONSUMERS: (
        ACCOUNT,
        STREAM,
        _text("consumer", "the consumer's name"),
        _flag("durable", "whether it stays when nobody uses it"),
        _time("created", "when it was made"),
        _texts("filter_subjects", "what it is for; empty for all subjects"),
        _text("deliver_policy", "where it began"),
        _text("ack_policy", "how messages are acknowledged"),
        _number("delivered_sequence", "the last message that it delivered"),
        _number("ack_floor_sequence", "up to here all is acknowledged"),
        _number("pending", "messages still to be delivered; null from a directory"),
        _number("ack_pending", "delivered and not acknowledged yet"),
        _number("redelivered", "of those, delivered more than once"),
        _number("waiting", "requests that wait for messages; null from a directory"),
    ),
    TableName.SUBJECTS: (
        ACCOUNT,
        STREAM,
        _text("subject", "the subject"),
        _number("messages", "its messages"),
    ),
}


def to_batches(rows: Iterable[Row], columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of some columns."""
    schema = arrow_schema(columns)
    left = iter(rows)
    while some := list(itertools.islice(left, BATCH_ROWS)):
        arrays = [_array(each, some) for each in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Column, rows: Sequence[Row]) -> pa.Array:
    values = [row.get(column.holds) for row in rows]
    if pa.types.is_timestamp(column.arrow):
        values = [None if each is None else each // 1000 for each in values]
    return pa.array(values, column.arrow)
