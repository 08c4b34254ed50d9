"""Processes that are killed while they write: nothing that they acknowledged is lost."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.crash.writer import Ledger, check

ROOT = Path(__file__).parents[2]


def kill_a_writer(store: Path, ledger: Path, seed: int) -> None:
    """Start a writer, let it acknowledge some messages, and kill it at a random moment."""
    noted = Ledger(ledger)
    wanted = noted.read()[0] + Random(seed).randint(1, 3000)
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer", store, ledger, str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    with writer.stdout:
        assert writer.stdout.readline() == b"writing\n"
        while noted.read()[0] < wanted:
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"the writer ended: {writer.wait(0.002)}")
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL


def survive_kills(folder: Path, kills: int) -> None:
    ledger = folder / "ledger"
    last_seq = 0
    for seed in range(kills):
        kill_a_writer(folder / "store", ledger, seed)
        found = check(str(folder / "store"), Ledger(ledger))
        assert found > last_seq
        last_seq = found


@pytest.mark.slow
def test_ten_killed_writers_lose_nothing_that_they_acknowledged(tmp_path: Path) -> None:
    survive_kills(tmp_path, 10)


@pytest.mark.soak
def test_a_hundred_killed_writers_lose_nothing_that_they_acknowledged(tmp_path: Path) -> None:
    survive_kills(tmp_path, 100)
