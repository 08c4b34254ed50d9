"""Spark finds our formats by the names of modules, without registration."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.session import FORMATS
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "src").glob("pyspark_*.py"))


def test_every_format_has_a_module_that_spark_looks_for() -> None:
    found = {importlib.import_module(name).DefaultSource for name in MODULES}

    assert found == set(FORMATS)
    assert sorted(f"pyspark_{each.name()}".replace("-", "_") for each in FORMATS) == MODULES


def test_the_modules_are_installed_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert sorted(project["tool"]["setuptools"]["py-modules"]) == MODULES


def test_the_formats_are_imported_without_pandas() -> None:
    # Spark starts a process for each step of a plan, and every one of them imports the formats:
    # pandas would be a second more of each. pyarrow imports it with the first array that is made.
    look = "import penstock.spark, sys; print('pandas' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert ended.stdout == "False\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_session_that_was_told_nothing_knows_the_formats(
    spark: SparkSession, tmp_path: Path
) -> None:
    with FileStore.open(str(tmp_path / "KV_B"), StoreConfig(name="KV_B")) as store:
        store.store(b"$KV.B.a", b"", b"1")
    # What is registered is known to one session alone.
    fresh = spark.newSession()
    path = str(tmp_path / "KV_B")

    blocks = fresh.read.format("penstock-blocks").load(path)
    bucket = fresh.read.format("Penstock-KV").option("valueFormat", "string").load(path)
    fresh.sql(
        f"CREATE TEMPORARY VIEW told USING `penstock-meta` OPTIONS (table 'streams', path '{path}')"
    )

    assert blocks.count() == 1
    assert [(row.key, row.value) for row in bucket.collect()] == [("a", "1")]
    assert fresh.sql("SELECT messages FROM told").collect() == [(1,)]
