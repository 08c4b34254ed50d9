"""Batches as Arrow: every column, and only those that are asked for."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from penstock.errors import UsageError
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.spark import schema
from penstock.spark.arrow import Converter, needs_of

TIME_NS = 1_700_000_000_123_456_789


def batch(seq: int = 7, subject: bytes = b"a.b", payload: bytes = b"data") -> ColumnBatch:
    builder = ColumnBuilder()
    builder.append(seq, TIME_NS, 128, subject, b"NATS/1.0\r\nA: b\r\n\r\n", payload)
    builder.append(seq + 1, -1, 300, b"c", b"", b"")
    return builder.take(3)


def test_every_column_holds_what_its_name_says() -> None:
    converted = Converter(schema.BLOCK_COLUMNS, "S").convert(batch())

    converted.validate(full=True)
    assert converted.schema == schema.arrow_schema(schema.BLOCK_COLUMNS)
    first, second = converted.to_pylist()
    assert first == {
        "stream": "S",
        "subject": "a.b",
        "sequence": 7,
        "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 123456, datetime.UTC),
        "time_ns": TIME_NS,
        "headers": [("A", ["b"])],
        "headers_raw": b"NATS/1.0\r\nA: b\r\n\r\n",
        "data": b"data",
        "value": "data",
        "reply": None,
        "size": 22,
        "_block": 3,
        "_offset": 128,
    }
    assert (second["headers"], second["size"], second["data"]) == (None, 0, b"")


def test_columns_come_in_the_order_and_under_the_names_that_are_asked_for() -> None:
    asked = schema.requested(
        schema.spark_schema(schema.choose(["DATA", "sequence"], schema.MESSAGE_COLUMNS)),
        schema.MESSAGE_COLUMNS,
    )

    converted = Converter(asked, "S").convert(batch())

    assert converted.schema.names == ["data", "sequence"]
    assert not needs_of(asked).headers
    assert needs_of(asked).payloads


def test_bytes_that_are_no_text_are_marked() -> None:
    converted = Converter([schema.SUBJECT, schema.VALUE], "S").convert(
        batch(subject=b"a\xff", payload=b"\xfe")
    )

    assert converted.to_pylist()[0] == {"subject": "a\ufffd", "value": "\ufffd"}


def test_sequences_that_spark_cannot_hold_are_refused() -> None:
    with pytest.raises(UsageError, match="bigint"):
        Converter([schema.SEQUENCE], "S").convert(batch(seq=2**63 - 1))


def test_a_schema_that_does_not_fit_is_refused() -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    with pytest.raises(UsageError, match="did you mean sequence"):
        schema.choose(["sequense"], schema.MESSAGE_COLUMNS)
    with pytest.raises(UsageError, match="sequence is bigint, not string"):
        schema.requested(
            StructType([StructField("sequence", StringType())]), schema.MESSAGE_COLUMNS
        )
    with pytest.raises(UsageError, match="no column"):
        schema.choose([], schema.MESSAGE_COLUMNS)


def test_spark_and_arrow_agree_on_every_column() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    expected = to_arrow_schema(schema.spark_schema(schema.BLOCK_COLUMNS), timezone="UTC")

    assert [each.type for each in schema.arrow_schema(schema.BLOCK_COLUMNS)] == [
        each.type if not pa.types.is_map(each.type) else schema.HEADERS for each in expected
    ]
