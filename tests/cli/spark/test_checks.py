"""`penstock spark verify | stats`: what people type, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.format.layout import block_name
from penstock.store.filestore import FileStore
from tests.cli.conftest import run_spark

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def make_store(path: Path) -> None:
    with FileStore.open(str(path)) as store:
        for number in range(100):
            store.store(b"orders.%d.new" % (number % 2), b"", b"x" * 100)


@pytest.mark.exhaustive
def test_damage_in_a_tree_is_told_and_ends_with_one(tmp_path: Path) -> None:
    make_store(tmp_path / "streams" / "A")
    make_store(tmp_path / "streams" / "B")
    file = tmp_path / "streams" / "B" / block_name(1)
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    report = tmp_path / "report.json"

    done = run_spark("verify", tmp_path / "streams", "--json", "--report", report)

    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads(report.read_bytes())
    assert [(each["kind"], each["where"]) for each in told["findings"]] == [
        ("damage", str(tmp_path / "streams" / "B"))
    ]
    assert told["counts"]["directories"] == 2


@pytest.mark.exhaustive
def test_the_largest_groups_are_a_table(tmp_path: Path) -> None:
    make_store(tmp_path / "ORDERS")

    done = run_spark("stats", tmp_path / "ORDERS", "--depth", 2, "--by-hour", "--rows", 1)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if "orders.0.>" in line]
    assert not [line for line in lines if "orders.1.>" in line]
    assert "hour" in done.stdout
    assert "size p50" in done.stdout
