"""The columns of a stream as a table: their Spark and Arrow types, and which of them are read.

Spark compares the Arrow schema of a source's batches with its own, order and nullability included,
so both are made here from one table. All columns are nullable.

A user's own schema is the projection: a source yields exactly its columns. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import UsageError


class Column(msgspec.Struct, frozen=True):
    """One column: what it holds, its name and its types."""

    holds: str
    spark: DataType
    arrow: pa.DataType
    text: str
    shown_as: str = ""

    @property
    def name(self) -> str:
        """The column's name in the table."""
        return self.shown_as or self.holds


HEADERS = pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))
"""Header names with their values, in the order of the message."""

STREAM = Column("stream", StringType(), pa.string(), "the stream's name")
SUBJECT = Column("subject", StringType(), pa.string(), "the message's subject")
SUBJECT_RAW = Column("subject_raw", BinaryType(), pa.binary(), "the message's subject as it is")
"""For jobs, which must keep subjects that are no UTF-8; not a column of a table."""

SEQUENCE = Column("sequence", LongType(), pa.int64(), "its place in the stream")
TIMESTAMP = Column(
    "timestamp", TimestampType(), pa.timestamp("us", tz="UTC"), "when it was stored, to a µs"
)
TIME_NS = Column("time_ns", LongType(), pa.int64(), "when it was stored, Unix nanoseconds")
HEADER_MAP = Column(
    "headers",
    MapType(StringType(), ArrayType(StringType())),
    HEADERS,
    "its headers, null where it has none",
)
RAW_HEADERS = Column("headers_raw", BinaryType(), pa.binary(), "its headers as they were sent")
DATA = Column("data", BinaryType(), pa.binary(), "its payload")
VALUE = Column("value", StringType(), pa.string(), "its payload as text")
REPLY = Column("reply", StringType(), pa.string(), "null: a stored message has no reply subject")
SIZE = Column("size", IntegerType(), pa.int32(), "bytes of its payload and headers")
BLOCK = Column("_block", LongType(), pa.int64(), "the number of its block file")
OFFSET = Column("_offset", LongType(), pa.int64(), "its place in the block file")
STATE = Column("_state", StringType(), pa.string(), "live, or removed and still in its block")

NO_NUMBER = Column("no_number", LongType(), pa.int64(), "null: of a consumer, and there is none")

MESSAGE_COLUMNS = (
    STREAM,
    SUBJECT,
    SEQUENCE,
    TIMESTAMP,
    TIME_NS,
    HEADER_MAP,
    RAW_HEADERS,
    DATA,
    VALUE,
    REPLY,
    SIZE,
)
OFFICIAL_COLUMNS = tuple(
    msgspec.structs.replace(column, shown_as=name)
    for name, column in (
        ("subject", SUBJECT),
        ("replyTo", REPLY),
        ("content", DATA),
        ("headers", HEADER_MAP),
        ("domain", REPLY),
        ("stream", STREAM),
        ("consumer", REPLY),
        ("delivered", NO_NUMBER),
        ("streamSeq", SEQUENCE),
        ("consumerSeq", NO_NUMBER),
        ("timestamp", TIMESTAMP),
        ("pending", NO_NUMBER),
    )
)
"""The columns of the official NATS connector; those of its consumer are null."""

BLOCK_COLUMNS = (*MESSAGE_COLUMNS, BLOCK, OFFSET)
ALL_BLOCK_COLUMNS = (*BLOCK_COLUMNS, STATE)
"""The columns if removed messages are read, too."""


def spark_schema(columns: Iterable[Column]) -> StructType:
    """Return the columns as a Spark schema."""
    return StructType([StructField(each.name, each.spark, nullable=True) for each in columns])


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the columns as an Arrow schema."""
    return pa.schema([pa.field(each.name, each.arrow, nullable=True) for each in columns])


def choose(names: Sequence[str], known: Sequence[Column]) -> list[Column]:
    """Return the named columns; raise UsageError with the nearest name for an unknown one."""
    by_name = {each.name.lower(): each for each in known}
    chosen = []
    for name in names:
        column = by_name.get(name.strip().lower())
        if column is None:
            raise UsageError(_unknown(name, known))
        chosen.append(column)
    if not chosen:
        raise UsageError("no column is asked for: " + _listed(known))
    return chosen


def requested(schema: StructType, known: Sequence[Column]) -> list[Column]:
    """Return the columns of a schema; raise UsageError if one does not fit."""
    chosen = choose([field.name for field in schema.fields], known)
    for field, column in zip(schema.fields, chosen, strict=True):
        if _plain(field.dataType) != _plain(column.spark):
            raise UsageError(
                f"column {field.name} is {column.spark.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return [
        msgspec.structs.replace(column, shown_as=field.name)
        for field, column in zip(schema.fields, chosen, strict=True)
    ]


def _plain(kind: DataType) -> str:
    # Nullability within maps and lists is written in many ways and does not matter.
    return kind.simpleString()


def _unknown(name: str, known: Sequence[Column]) -> str:
    near = difflib.get_close_matches(name.lower(), [each.name for each in known], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"no column {name!r}{hint} There are: {_listed(known)}"


def _listed(known: Sequence[Column]) -> str:
    return ", ".join(each.name for each in known)
