"""Real power cuts: an ext4 file system on a loop device is shut down without writing its journal.

What the kernel had not put on the device is gone then, as when the plug is pulled. It needs root,
loop devices and mkfs.ext4; where one of them is missing the tests are skipped and say so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.writer import Ledger, check
from tests.support.figures import Record

ROOT = Path(__file__).parents[2]
IMAGE_BYTES = 192 * 1024 * 1024
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Disk:
    """A file system of its own that can be cut off and found again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mounted"
        self._image = folder / "image"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self._image)
        self.mount()

    def mount(self) -> None:
        run("mount", "-o", "loop", self._image, self.path)

    def cut(self) -> None:
        """Take the power away: nothing that is under way arrives."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        run("umount", self.path)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a file system of its own needs root")
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is missing: install e2fsprogs")
    try:
        made = Disk(tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"loop devices do not work here: {error.stderr.decode().strip()}")
    yield made
    with contextlib.suppress(subprocess.CalledProcessError):
        made.unmount()


def cut_a_writer(disk: Disk, ledger: Path, seed: int) -> None:
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


def survive_cuts(disk: Disk, folder: Path, cuts: int) -> int:
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
    disk: Disk, tmp_path: Path
) -> None:
    survive_cuts(disk, tmp_path, 3)


@pytest.mark.soak
def test_a_hundred_real_power_cuts_lose_nothing_that_was_acknowledged(
    disk: Disk, tmp_path: Path, record_property: Record
) -> None:
    record_property("acknowledged", survive_cuts(disk, tmp_path, 100))
