"""Parts of jobs run in tasks: their results, their order, their errors."""

from __future__ import annotations

import gc
import operator

import pytest
from pyspark.sql import SparkSession

from penstock.errors import CorruptStore, UsageError
from penstock.spark.jobs.job import run_parts


def test_results_come_in_the_order_of_the_parts(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []

    results = run_parts(
        spark, operator.neg, [5, 3, 8], lambda done, total: told.append((done, total))
    )

    assert results == [-5, -3, -8]
    assert told[0] == (0, 3)
    assert told[-1] == (3, 3)


def test_no_parts_are_no_work(spark: SparkSession) -> None:
    assert run_parts(spark, operator.neg, []) == []


def test_a_worker_does_not_look_for_garbage_in_what_it_has_loaded(spark: SparkSession) -> None:
    def objects_left_out(_: int) -> int:
        return gc.get_freeze_count()

    assert min(run_parts(spark, objects_left_out, [1, 2, 3])) > 1000


def test_what_a_part_raises_is_raised(spark: SparkSession) -> None:
    def fail_on_three(number: int) -> int:
        if number == 3:
            raise CorruptStore("/data/ORDERS", 17, "it is broken")
        return number

    def refuse(number: int) -> int:
        raise UsageError(f"no part like {number}")

    with pytest.raises(CorruptStore, match=r"/data/ORDERS: it is broken \(offset 17\)"):
        run_parts(spark, fail_on_three, [1, 2, 3])
    with pytest.raises(UsageError, match="no part like 1"):
        run_parts(spark, refuse, [1])
