"""Archives as tables of other engines: all that the manifest names, and each commit once."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.errors import UsageError
from penstock.spark.archives.folder import Manifest
from penstock.spark.jobs.archive import TableFormat, bring_tables
from penstock.spark.jobs.delta_table import commit_delta
from penstock.spark.jobs.iceberg_table import commit_iceberg, open_table
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from tests.support.archives import Row, add, archive_here, directory, make_store, stored

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "ORDERS"
    make_store(path, count=1000)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def grow(path: Path) -> None:
    with FileStore.open(str(path), StoreConfig(name="ORDERS", block_bytes=16384)) as opened:
        add(opened, 1000, 1500)


def rows_of(table: object) -> list[tuple[object, ...]]:
    names = ("sequence", "time_ns", "subject", "headers", "data")
    columns = [table.column(name).to_pylist() for name in names]  # type: ignore[attr-defined]
    return sorted(zip(*columns, strict=True))


def shown(rows: list[Row]) -> list[tuple[object, ...]]:
    return [
        (seq, time_ns, subject.decode(errors="replace"), headers, payload)
        for seq, time_ns, subject, headers, payload in rows
    ]


def delta(target: Path) -> DeltaTable:
    return DeltaTable(str(target))


def test_a_delta_table_has_every_message_and_each_commit_once(store: Path, target: Path) -> None:
    before = archive_here(directory(store), target)
    commit_delta(str(target), before)
    commit_delta(str(target), before)
    assert delta(target).version() == 0
    assert rows_of(delta(target).to_pyarrow_table()) == shown(stored(store))
    grow(store)

    after = archive_here(directory(store), target)
    for manifest in (after, after, before):
        commit_delta(str(target), manifest)

    assert delta(target).version() == 1
    assert rows_of(delta(target).to_pyarrow_table()) == shown(stored(store))


def test_a_delta_table_is_brought_up_over_several_manifests(store: Path, target: Path) -> None:
    archive_here(directory(store), target, until=200)
    archive_here(directory(store), target, until=400)
    commit_delta(str(target), archive_here(directory(store), target, until=600))
    archive_here(directory(store), target, until=800)

    bring_tables(str(target), archive_here(directory(store), target), TableFormat.DELTA)

    assert rows_of(delta(target).to_pyarrow_table()) == shown(stored(store))


def test_an_iceberg_table_has_every_message_and_each_commit_once(store: Path, target: Path) -> None:
    before = archive_here(directory(store), target)
    commit_iceberg(str(target), before)
    commit_iceberg(str(target), before)
    table = open_table(str(target), "ORDERS")
    assert len(table.snapshots()) == 1
    assert rows_of(table.scan().to_arrow()) == shown(stored(store))
    grow(store)

    after = archive_here(directory(store), target)
    for manifest in (after, after, before):
        bring_tables(str(target), manifest, TableFormat.ICEBERG)

    table = open_table(str(target), "ORDERS")
    assert len(table.snapshots()) == 2
    assert rows_of(table.scan().to_arrow()) == shown(stored(store))


def test_a_table_that_is_not_there_is_told(store: Path, target: Path) -> None:
    archive_here(directory(store), target)

    with pytest.raises(UsageError):
        open_table(str(target), "ORDERS")


@pytest.mark.parametrize(
    ("library", "module", "table"),
    [
        ("deltalake", "delta_table", TableFormat.DELTA),
        ("pyiceberg.catalog", "iceberg_table", TableFormat.ICEBERG),
    ],
)
def test_a_library_that_is_missing_is_told_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str, module: str, table: TableFormat
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"penstock.spark.jobs.{module}")

    with pytest.raises(UsageError, match=rf"penstock\[{table}\]"):
        bring_tables(str(tmp_path), Manifest("S", "", {}, 1, 1, number=1), table)


def test_the_catalog_of_the_users_settings_counts(
    store: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PENSTOCK__URI", f"sqlite:///{tmp_path}/theirs.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__PENSTOCK__WAREHOUSE", f"file://{tmp_path}/warehouse")

    commit_iceberg(str(target), archive_here(directory(store), target))

    assert rows_of(open_table(str(target), "ORDERS").scan().to_arrow()) == shown(stored(store))
    assert (tmp_path / "theirs.db").exists()
    assert not (target / "iceberg").exists()


def test_an_archive_elsewhere_needs_a_catalog_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(UsageError, match="catalog"):
        commit_iceberg("s3://bucket/archive?region=nowhere", Manifest("S", "", {}, 1, 1, number=1))


@pytest.mark.parametrize(
    ("module", "library"), [("delta_table", "pyiceberg"), ("iceberg_table", "deltalake")]
)
def test_one_kind_of_table_does_not_need_the_library_of_the_other(
    monkeypatch: pytest.MonkeyPatch, module: str, library: str
) -> None:
    name = f"penstock.spark.jobs.{module}"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)

    assert importlib.import_module(name).__name__ == name
