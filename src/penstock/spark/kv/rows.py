"""Messages of a bucket's stream as rows of keys and values: the columns, and how they are made.

A bucket is the stream KV_<bucket>, a key the subject $KV.<bucket>.<key>. A message's headers say
what it did to its key: a client writes `KV-Operation`, a server that removed a value for its limits
`Nats-Marker-Reason`. A message with neither put a value.

Works on whole Arrow columns. Loaded by executors.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from penstock.limits import KV_WAITING_ROWS_MAX
from penstock.spark import schema
from penstock.spark.schema import Column, arrow_schema, requested

STREAM_PREFIX = "KV_"

BUCKET = Column("bucket", StringType(), pa.string(), "the bucket's name")
KEY = Column("key", StringType(), pa.string(), "the key")
VALUE = Column("value", BinaryType(), pa.binary(), "its value; empty where it was deleted")
TEXT_VALUE = Column("value", StringType(), pa.string(), "its value as text")
REVISION = Column("revision", LongType(), pa.int64(), "the sequence of the change")
OPERATION = Column(
    "operation", StringType(), pa.string(), "PUT, DEL, PURGE, or why a limit removed it"
)
COLUMNS = (BUCKET, KEY, VALUE, REVISION, OPERATION, schema.TIMESTAMP, schema.TIME_NS)
TEXT_COLUMNS = tuple(TEXT_VALUE if each is VALUE else each for each in COLUMNS)


PUT = "PUT"
_SUBJECT_START = r"^\$KV\.[^.]*\."
_OPERATION = r"\r\nKV-Operation:[ \t]*(?P<word>DEL|PURGE)[ \t]*\r\n"
_REASON = r"\r\nNats-Marker-Reason:[ \t]*(?P<word>MaxAge|Purge|Remove)[ \t]*\r\n"


def requested_columns(wanted: StructType) -> list[Column]:
    """Return the columns of a schema; the value may be binary or text."""
    is_text = any(
        field.name.lower() == "value" and field.dataType == StringType() for field in wanted.fields
    )
    return requested(wanted, TEXT_COLUMNS if is_text else COLUMNS)


class Rows(msgspec.Struct, frozen=True):
    """Converts messages to rows of a bucket; sent to tasks."""

    bucket: str
    columns: tuple[Column, ...]
    includes_deletes: bool

    @property
    def needed(self) -> list[Column]:
        """The columns of messages that rows are made of."""
        found = {schema.SUBJECT.holds: schema.SUBJECT, schema.SEQUENCE.holds: schema.SEQUENCE}
        for each in self.columns:
            if each.holds != BUCKET.holds:
                found[_source(each).holds] = _source(each)
        if not self.includes_deletes:
            found[schema.RAW_HEADERS.holds] = schema.RAW_HEADERS
        return list(found.values())

    def convert(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of messages, which has the needed columns, as rows."""
        if not self.includes_deletes:
            messages = messages.filter(is_put(messages.column(schema.RAW_HEADERS.name)))
        arrays = [_MAKERS[each.holds](self, messages, each) for each in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.columns))


class NewestMessages:
    """Finds the newest message of each subject among messages in any order."""

    def __init__(self) -> None:
        self._known: pa.Table = pa.schema(
            [(schema.SUBJECT.name, pa.string()), (schema.SEQUENCE.name, pa.int64())]
        ).empty_table()
        self._waiting: list[pa.Table] = []
        self._waiting_count = 0

    def add(self, messages: pa.RecordBatch | pa.Table) -> None:
        """Take messages into account."""
        columns = [messages.column(name) for name in self._known.column_names]
        self._waiting.append(pa.Table.from_arrays(columns, schema=self._known.schema))
        self._waiting_count += messages.num_rows
        # Grouping costs as much as the known subjects are many.
        if self._waiting_count > max(KV_WAITING_ROWS_MAX, self._known.num_rows):
            self._group()

    def _group(self) -> None:
        subject, sequence = self._known.column_names
        every = pa.concat_tables([self._known, *self._waiting])
        found = every.group_by(subject, use_threads=False).aggregate([(sequence, "max")])
        self._known = pa.Table.from_arrays(
            [found.column(subject), found.column(f"{sequence}_max")], schema=self._known.schema
        )
        self._waiting.clear()
        self._waiting_count = 0

    def table(self) -> pa.Table:
        """Return the subjects and sequences of the newest messages, sorted by sequence."""
        self._group()
        return self._known.sort_by(schema.SEQUENCE.name)


def with_sequences(messages: pa.RecordBatch, sequences: pa.Array) -> pa.RecordBatch:
    """Return the messages that have one of the sequences."""
    return messages.filter(pc.is_in(messages.column(schema.SEQUENCE.name), value_set=sequences))


def keys_of(subjects: pa.Array) -> pa.Array:
    """Return the keys of a bucket's subjects."""
    return pc.replace_substring_regex(subjects, pattern=_SUBJECT_START, replacement="")


def operations_of(headers: pa.Array) -> pa.Array:
    """Return what each message did to its key, by its headers."""
    words = pc.coalesce(_word(headers, _OPERATION), _word(headers, _REASON), pa.scalar(PUT))
    # Clients treat a marker's Purge like their own PURGE.
    return pc.if_else(pc.equal(words, "Purge"), "PURGE", words)


def is_put(headers: pa.Array) -> pa.Array:
    """Return for each message whether it put a value."""
    return pc.equal(operations_of(headers), PUT)


def _word(headers: pa.Array, pattern: str) -> pa.Array:
    if not headers.nbytes or pc.max(pc.binary_length(headers)).as_py() in (None, 0):
        return pa.nulls(len(headers), pa.string())
    found = pc.extract_regex(headers, pattern=pattern)
    return pc.struct_field(found, [0]).cast(pa.string())


def _bucket(rows: Rows, messages: pa.RecordBatch, _column: Column) -> pa.Array:
    return pa.repeat(pa.scalar(rows.bucket, pa.string()), messages.num_rows)


def _key(_rows: Rows, messages: pa.RecordBatch, _column: Column) -> pa.Array:
    return keys_of(messages.column(schema.SUBJECT.name))


def _operation(_rows: Rows, messages: pa.RecordBatch, _column: Column) -> pa.Array:
    return operations_of(messages.column(schema.RAW_HEADERS.name))


def _same(_rows: Rows, messages: pa.RecordBatch, column: Column) -> pa.Array:
    return messages.column(_source(column).name)


def _source(column: Column) -> Column:
    if column.holds == TEXT_VALUE.holds and column.arrow == TEXT_VALUE.arrow:
        return schema.VALUE
    return _SOURCES[column.holds]


_SOURCES: dict[str, Column] = {
    KEY.holds: schema.SUBJECT,
    VALUE.holds: schema.DATA,
    REVISION.holds: schema.SEQUENCE,
    OPERATION.holds: schema.RAW_HEADERS,
    schema.TIMESTAMP.holds: schema.TIMESTAMP,
    schema.TIME_NS.holds: schema.TIME_NS,
}
_MAKERS: dict[str, Callable[[Rows, pa.RecordBatch, Column], pa.Array]] = {
    BUCKET.holds: _bucket,
    KEY.holds: _key,
    VALUE.holds: _same,
    REVISION.holds: _same,
    OPERATION.holds: _operation,
    schema.TIMESTAMP.holds: _same,
    schema.TIME_NS.holds: _same,
}
