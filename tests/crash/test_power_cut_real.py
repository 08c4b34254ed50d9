"""Real power cuts: an ext4 file system on a loop device is shut down without writing its journal.

What the kernel had not put on the device is gone then, as when the plug is pulled. It needs root,
loop devices and mkfs.ext4; where one of them is missing the tests are skipped and say so.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.writer import Ledger, check
from tests.support.figures import Record
from tests.support.loop_disk import LoopDisk, loop_disk

ROOT = Path(__file__).parents[2]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path, 192 * 2**20) as made:
        yield made


def cut_a_writer(disk: LoopDisk, ledger: Path, seed: int) -> None:
    """Start a writer, let it acknowledge some messages, and take the power away."""
    noted = Ledger(ledger)
    wanted = noted.read()[0] + Random(seed).randint(1, 4000)
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer", disk.path / "store", ledger, str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    with writer.stdout:
        assert writer.stdout.readline() == b"writing\n"
        while noted.read()[0] < wanted:
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"the writer ended: {writer.wait(0.002)}")
        disk.cut()
        writer.send_signal(signal.SIGKILL)
        writer.wait()


def survive_cuts(disk: LoopDisk, folder: Path, cuts: int) -> int:
    """Cut a writer's power again and again; return how many messages were acknowledged."""
    ledger = folder / "ledger"
    for seed in range(cuts):
        cut_a_writer(disk, ledger, seed)
        disk.unmount()
        disk.mount()
        check(str(disk.path / "store"), Ledger(ledger))
    return Ledger(ledger).read()[0]


@pytest.mark.slow
def test_three_real_power_cuts_lose_nothing_that_was_acknowledged(
    disk: LoopDisk, tmp_path: Path
) -> None:
    survive_cuts(disk, tmp_path, 3)


@pytest.mark.soak
def test_a_hundred_real_power_cuts_lose_nothing_that_was_acknowledged(
    disk: LoopDisk, tmp_path: Path, record_property: Record
) -> None:
    record_property("acknowledged", survive_cuts(disk, tmp_path, 100))
