"""A file system of a test's own: ext4 on a loop device, which can be filled, or cut off.

It needs root, loop devices and mkfs.ext4; where one of them is missing the test is skipped and says
so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


class LoopDisk:
    """The file system, mounted at `path`."""

    def __init__(self, folder: Path, size: int) -> None:
        self.path = folder / "mounted"
        self._image = folder / "image"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(size)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self._image)
        self.mount()

    def mount(self) -> None:
        """Mount it."""
        _run("mount", "-o", "loop", self._image, self.path)

    def cut(self) -> None:
        """Take the power away: nothing that is under way arrives."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Unmount it; nothing may be open there."""
        _run("umount", self.path)


@contextlib.contextmanager
def loop_disk(folder: Path, size: int) -> Iterator[LoopDisk]:
    """Yield a disk of `size` bytes, or skip the test and say why."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system of its own needs root")
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is missing: install e2fsprogs")
    try:
        made = LoopDisk(folder, size)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"loop devices do not work here: {error.stderr.decode().strip()}")
    try:
        yield made
    finally:
        # Also where a test that failed has left files open: they go when it closes them.
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("umount", "--lazy", made.path)
