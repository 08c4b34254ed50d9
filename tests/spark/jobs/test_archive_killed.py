"""Archiving under kill -9 at any moment: what manifests name is whole, and in the end it is all.

A process archives while the stream grows between its runs; it is killed at moments that a seed
draws. After each kill the archive is read and held against the store.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.archives.folder import ArchiveFolder, find_manifest
from penstock.spark.archives.parquet import check_file, read_exact
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.servers import environ
from tests.support.archives import Row, add, make_store, stored

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from tests.support.archives import archive_here, directory

print("ready", flush=True)
archive_here(directory(Path(sys.argv[1])), Path(sys.argv[2]))
"""
KILLS = 40
GROWTH = 2000


def run(store: Path, target: Path, seconds: float | None) -> bool:
    """Archive in a process of its own, and kill it after so long; tell whether it was done."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(store), str(target)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environ(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return False
    assert code == 0
    return True


def archived(target: Path) -> list[Row]:
    """Return the messages of an archive, after checking every file."""
    folder = ArchiveFolder(str(target))
    manifest = find_manifest(folder)
    if manifest is None:
        return []
    assert manifest.holes() == []
    for each in manifest.files:
        check_file(folder, each)
    return [
        tuple(row.values())
        for batch in read_exact(folder, manifest.files)
        for row in batch.to_pylist()
    ]


@pytest.mark.soak
def test_an_archive_is_whole_after_every_kill_and_complete_in_the_end(tmp_path: Path) -> None:
    chance = random.Random(20261116)
    store, target = tmp_path / "ORDERS", tmp_path / "archive"
    make_store(store, count=GROWTH)
    count = GROWTH
    kills = finished = 0
    while kills < KILLS:
        if run(store, target, chance.uniform(0, 0.4)):
            finished += 1
            with FileStore.open(
                str(store), StoreConfig(name="ORDERS", block_bytes=16384)
            ) as opened:
                add(opened, count, count + GROWTH)
            count += GROWTH
        else:
            kills += 1
        found = archived(target)
        assert found == stored(store)[: len(found)]

    assert run(store, target, None)
    assert archived(target) == stored(store)
    names = {path.name for path in (target / "data").iterdir()}
    manifest = find_manifest(ArchiveFolder(str(target)))
    assert manifest is not None
    assert names == {each.name.rpartition("/")[2] for each in manifest.files}
