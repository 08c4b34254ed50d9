"""Who holds a lock file is found without touching the lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.store.vfs import OsFileSystem, find_lock_holder


def test_a_missing_or_released_lock_has_no_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "LOCK")
    assert find_lock_holder(path) is None

    OsFileSystem().lock(path).release()

    assert find_lock_holder(path) is None


def test_the_holder_is_named_and_keeps_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "LOCK")
    lock = OsFileSystem().lock(path)

    assert find_lock_holder(path) == os.getpid()

    lock.release()
    OsFileSystem().lock(path).release()


def test_a_process_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "LOCK")
    program = (
        "import sys\n"
        "from penstock.store.vfs import OsFileSystem\n"
        "lock = OsFileSystem().lock(sys.argv[1])\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert find_lock_holder(path) == other.pid
        other.kill()

    assert find_lock_holder(path) is None
