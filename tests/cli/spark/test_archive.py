"""`penstock spark archive | tier | tail | check-archive | restore`: what people type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run_spark
from tests.support.archives import archive_here, directory, make_store, stored


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stream_is_archived_and_reported(tmp_path: Path) -> None:
    make_store(tmp_path / "ORDERS", count=300)
    report = tmp_path / "report.json"

    done = run_spark(
        "archive", tmp_path / "ORDERS", tmp_path / "archive", "--json", "--report", report,
        "-o", "maxRecordsPerPartition=200", "--format", "delta",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads(report.read_bytes())
    assert (told["job"], told["counts"]["messages"]) == ("archive", 297)
    assert (tmp_path / "archive" / "_delta_log").is_dir()


def test_blocks_are_restored_without_spark_being_started(run: Run, tmp_path: Path) -> None:
    make_store(tmp_path / "ORDERS", count=300)
    archive_here(directory(tmp_path / "ORDERS"), tmp_path / "archive")

    dry = run("spark", "restore", tmp_path / "archive", tmp_path / "new", "--dry-run", "--json")
    done = run("spark", "restore", tmp_path / "archive", tmp_path / "new", "--json")
    again = run("spark", "restore", tmp_path / "archive", tmp_path / "new")

    assert (dry.code, done.code, again.code) == (0, 0, 2)
    assert dry.document["dry_run"]
    assert done.document["counts"]["messages"] == 297
    assert stored(tmp_path / "new" / "msgs") == stored(tmp_path / "ORDERS")


@pytest.mark.parametrize(
    "words",
    [
        ("archive", "DIR", "ARCHIVE", "--format", "orc"),
        ("archive", "nats://127.0.0.1:4222", "ARCHIVE"),
        ("tier", "DIR", "ARCHIVE", "--keep", "7d"),
        ("tier", "nats://127.0.0.1:4222/ORDERS", "ARCHIVE"),
        ("tier", "nats://127.0.0.1:4222/ORDERS", "ARCHIVE", "--keep", "7d", "--keep-messages", "1"),
        ("tier", "nats://127.0.0.1:4222/ORDERS", "ARCHIVE", "--keep", "some days"),
        ("tail", "DIR", "ARCHIVE", "--dry-run"),
        ("tail", "DIR", "ARCHIVE", "--every", "often"),
        ("restore", "ARCHIVE", "INTO", "--mode", "magic"),
        ("restore", "ARCHIVE", "INTO", "--mode", "publish"),
        ("restore", "ARCHIVE", "nats://h/S", "--mode", "publish", "--name", "T"),
        ("restore", "ARCHIVE", "INTO", "--create"),
        ("restore", "ARCHIVE", "INTO"),
    ],
    ids=lambda words: " ".join(words),
)
def test_wrong_usage_is_told_before_spark_is_started(run: Run, words: tuple[str, ...]) -> None:
    done = run("spark", *words)

    assert done.code == 2
    assert done.err
