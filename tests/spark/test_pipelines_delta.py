"""Flows into Delta tables: each batch once, whole, and read without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines.delta import DeltaWriter
from penstock.spark.pipelines.pipeline import Mode
from penstock.spark.pipelines.write import BatchFailed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUERY = "5e1d7b5c-0000-4000-8000-000000000000"


def numbers(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end, 1, 3).selectExpr(
        "id", "cast(id / 4 as decimal(10,2)) as price", "timestamp_micros(id) as at"
    )


def writer(folder: Path, mode: Mode, query: str = QUERY) -> DeltaWriter:
    checkpoint = folder / f"checkpoint-{query}"
    checkpoint.mkdir(exist_ok=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{query}"}}')
    return DeltaWriter(str(folder / "table"), mode, str(checkpoint))


def ids(folder: Path) -> list[int]:
    return sorted(DeltaTable(folder / "table").to_pyarrow_table()["id"].to_pylist())


def test_a_batch_that_comes_again_is_not_written_again(spark: SparkSession, tmp_path: Path) -> None:
    write = writer(tmp_path, Mode.APPEND)
    write(numbers(spark, 0, 0), 0)
    write(numbers(spark, 0, 10), 1)
    writer(tmp_path, Mode.APPEND)(numbers(spark, 0, 10), 1)
    write(numbers(spark, 10, 12), 2)
    writer(tmp_path, Mode.APPEND)(numbers(spark, 0, 10), 1)

    assert ids(tmp_path) == list(range(12))
    assert DeltaTable(tmp_path / "table").version() == 1


def test_a_query_that_was_begun_anew_is_another(spark: SparkSession, tmp_path: Path) -> None:
    writer(tmp_path, Mode.APPEND)(numbers(spark, 0, 3), 0)
    writer(tmp_path, Mode.APPEND, "another")(numbers(spark, 3, 5), 0)

    assert ids(tmp_path) == list(range(5))


def test_in_mode_complete_a_batch_takes_the_place_of_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    write = writer(tmp_path, Mode.COMPLETE)
    write(numbers(spark, 0, 10), 0)
    write(numbers(spark, 5, 7), 1)
    writer(tmp_path, Mode.COMPLETE)(numbers(spark, 0, 10), 0)

    table = DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == [5, 6]
    assert {name: str(table.schema.field(name).type) for name in table.column_names} == {
        "id": "int64",
        "price": "decimal128(10, 2)",
        "at": "timestamp[us, tz=UTC]",
    }
    write(numbers(spark, 0, 0), 2)
    assert ids(tmp_path) == []


def test_what_a_task_raises_is_told_in_one_line_and_leaves_the_table_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    write = writer(tmp_path, Mode.APPEND)
    write(numbers(spark, 0, 3), 0)

    with pytest.raises(BatchFailed) as failed:
        write(numbers(spark, 0, 9).selectExpr("id", "raise_error('it is 7') as price"), 1)

    assert str(failed.value) == write.failure == "it is 7"
    assert ids(tmp_path) == [0, 1, 2]
