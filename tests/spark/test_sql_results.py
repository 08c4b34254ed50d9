"""Results of SQL as rows, CSV, JSON lines and Parquet."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.spark.sql.results import Result

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVERYTHING = """SELECT
    7 AS `a.b`, 1.5D AS A, CAST(2.50 AS DECIMAL(5, 2)) AS a, true AS yes, 'x,"y' AS text,
    X'00ff' AS bytes, TIMESTAMP '2026-01-02 03:04:05.000006' AS moment, DATE '2026-01-02' AS day,
    parse_json('{"n": [1, null]}') AS json, array(parse_json('1')) AS many,
    map('k', array(1, 2)) AS named, named_struct('s', 1) AS inner, NULL AS nothing"""


def test_rows_have_the_values_of_python(spark: SparkSession) -> None:
    result = Result(spark.sql(EVERYTHING))

    assert result.names[:4] == ["a.b", "A", "a_2", "yes"]
    assert list(result.rows()) == [
        [
            7, 1.5, Decimal("2.50"), True, 'x,"y', b"\x00\xff",
            datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(2026, 1, 2).date(),  # noqa: DTZ001
            {"n": [1, None]}, [1], {"k": [1, 2]}, {"s": 1}, None,
        ]
    ]  # fmt: skip


def test_json_lines_hold_json_as_json(spark: SparkSession) -> None:
    file = io.BytesIO()

    Result(spark.sql(EVERYTHING)).write_json(file)

    assert json.loads(file.getvalue()) == {
        "a.b": 7, "A": 1.5, "a_2": 2.5, "yes": True, "text": 'x,"y', "bytes": "AP8=",
        "moment": "2026-01-02T03:04:05.000006Z", "day": "2026-01-02", "json": {"n": [1, None]},
        "many": [1], "named": {"k": [1, 2]}, "inner": {"s": 1}, "nothing": None,
    }  # fmt: skip


def test_csv_has_one_text_for_each_value(spark: SparkSession) -> None:
    file = io.BytesIO()

    Result(spark.sql(EVERYTHING)).write_csv(file)

    assert file.getvalue().decode().splitlines() == [
        "a.b,A,a_2,yes,text,bytes,moment,day,json,many,named,inner,nothing",
        '7,1.5,2.50,true,"x,""y",AP8=,2026-01-02T03:04:05.000006Z,2026-01-02,'
        '"{""n"":[1,null]}",[1],"{""k"":[1,2]}","{""s"":1}",',
    ]


def test_parquet_holds_the_columns_also_of_no_rows(spark: SparkSession) -> None:
    for statement, count in (
        ("SELECT id, parse_json('1') AS v FROM range(5)", 5),
        ("SELECT id, parse_json('1') AS v FROM range(0)", 0),
    ):
        file = io.BytesIO()
        Result(spark.sql(statement)).write_parquet(file)

        table = pq.read_table(io.BytesIO(file.getvalue()))
        assert table.column_names == ["id", "v"]
        assert table.column("v").to_pylist() == ["1"] * count


def test_the_order_of_rows_is_kept_and_cut(spark: SparkSession) -> None:
    statement = "SELECT id FROM range(0, 20000, 1, 7) ORDER BY id DESC"

    assert [row[0] for row in Result(spark.sql(statement)).rows()] == list(range(19999, -1, -1))
    assert [row[0] for row in Result(spark.sql(statement), rows_max=3).rows()] == [
        19999, 19998, 19997,
    ]  # fmt: skip


def test_a_statement_that_only_does_something_has_no_columns(spark: SparkSession) -> None:
    result = Result(spark.sql("CREATE OR REPLACE TEMPORARY VIEW nothing_to_show AS SELECT 1"))

    assert result.names == []
    spark.catalog.dropTempView("nothing_to_show")
