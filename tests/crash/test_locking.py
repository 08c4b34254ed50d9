"""One store, one process: who comes second is told who was first; and places that do not serve."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StoreLocked, StoreReadOnly
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

HOLDER = """
import sys
from penstock.store.filestore import FileStore
store = FileStore.open(sys.argv[1])
store.store(b"a", b"", b"kept")
store.flush()
print("open", flush=True)
sys.stdin.read()
store.stop()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the store open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / "store"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with process.stdout, process.stdin:
        assert process.stdout.readline() == b"open\n"
        yield process
        process.kill()
        process.wait()


def test_a_second_process_is_refused_with_the_pid_of_the_first(
    holder: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with pytest.raises(StoreLocked) as refused:
        FileStore.open(str(tmp_path / "store"))

    assert refused.value.pid == holder.pid


def test_a_store_opens_again_when_its_holder_was_killed(
    holder: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    with FileStore.open(str(tmp_path / "store")) as store:
        assert store.load(1).payload == b"kept"


def test_a_store_opens_again_when_its_holder_has_stopped(
    holder: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert holder.stdin is not None
    holder.stdin.close()
    assert holder.wait() == 0

    with FileStore.open(str(tmp_path / "store")) as store:
        assert store.report.clean
        assert store.load(1).payload == b"kept"


def test_one_process_cannot_open_a_store_twice(tmp_path: Path) -> None:
    with FileStore.open(str(tmp_path)), pytest.raises(StoreLocked) as refused:
        FileStore.open(str(tmp_path))

    assert refused.value.pid == os.getpid()


def test_a_failed_opening_lets_go_of_the_lock(tmp_path: Path) -> None:
    (tmp_path / "stream.state").mkdir()
    with pytest.raises(IsADirectoryError):
        FileStore.open(str(tmp_path))
    (tmp_path / "stream.state").rmdir()

    FileStore.open(str(tmp_path)).stop()


def test_a_path_that_is_a_file_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"something else")

    with pytest.raises(OSError, match="file") as refused:
        FileStore.open(str(path))

    assert refused.value.errno in (errno.EEXIST, errno.ENOTDIR)
    assert path.read_bytes() == b"something else"


def mount(options: str, path: Path) -> None:
    """Mount a file system in memory, or skip the test where that is not allowed."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting needs root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"mounting does not work here: {done.stderr.decode().strip()}")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    path = tmp_path / "mounted"
    path.mkdir()
    mount("size=1m", path)
    yield path
    subprocess.run(["umount", path], check=True)


def test_a_read_only_directory_is_refused_with_its_name(mounted: Path) -> None:
    with FileStore.open(str(mounted / "store")) as store:
        store.store(b"a", b"", b"kept")
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)

    with pytest.raises(OSError, match="store") as refused:
        FileStore.open(str(mounted / "store"))

    assert refused.value.errno == errno.EROFS


def test_a_full_disk_keeps_what_was_acknowledged_and_goes_on_when_there_is_room(
    mounted: Path,
) -> None:
    (mounted / "ballast").write_bytes(bytes(512 * 1024))
    config = StoreConfig(block_bytes=64 * 1024)
    store = FileStore.open(str(mounted / "store"), config)
    acknowledged = 0

    def store_one() -> int:
        store.store(b"a", b"", bytes(5000))
        return store.flush()

    with contextlib.suppress(StoreReadOnly):
        while True:
            acknowledged = store_one()
    assert acknowledged > 20
    assert "No space left" in (store.failure or "")
    assert [store.load(seq).seq for seq in range(1, acknowledged + 1)]

    with pytest.raises(StoreReadOnly):
        store.store(b"a", b"", b"")
    (mounted / "ballast").unlink()
    report = store.reopen()

    assert report.damage == []
    assert store.state().last_seq >= acknowledged
    seq, _ = store.store(b"a", b"", b"goes on")
    assert store.flush() == seq
    assert store.load(acknowledged).payload == bytes(5000)
    store.stop()
