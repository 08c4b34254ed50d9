"""One contract for every file system: the system's own, the one in memory, and the faulty one.

What a store's tests prove on the memory file system holds on a disk only as far as the two behave
alike; this is where that is proved.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StoreLocked
from penstock.store.vfs import FileSystem, OsFileSystem, write_all, write_atomically
from penstock.testing.faults import Effect, FaultPlan, FaultyFileSystem, Operation, every_fault
from penstock.testing.filesystem import MemoryFileSystem

HOLD_A_LOCK = """
import sys
from penstock.store.vfs import OsFileSystem
lock = OsFileSystem().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def process_holding(path: str) -> Iterator[int]:
    """Another process holds the lock meanwhile; gives its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_A_LOCK, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.communicate(timeout=60)


@dataclass(frozen=True)
class Disk:
    """A file system, an empty folder in it, and a way to have another process lock a path."""

    files: FileSystem
    folder: str
    held_elsewhere: Callable[[str], AbstractContextManager[int]]

    def at(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def put(self, name: str, data: bytes) -> None:
        file = self.files.open(self.at(name), "create")
        write_all(file, 0, data)
        file.close()

    def get(self, name: str) -> bytes:
        file = self.files.open(self.at(name), "read")
        data = file.read_at(0, file.size())
        file.close()
        return data


def memory_disk(*, faulty: bool) -> Disk:
    memory = MemoryFileSystem()
    memory.make_dirs("/store")

    @contextmanager
    def held_elsewhere(path: str) -> Iterator[int]:
        lock = memory.lock_as(path, 4_000_000)
        yield 4_000_000
        lock.release()

    return Disk(FaultyFileSystem(memory) if faulty else memory, "/store", held_elsewhere)


@pytest.fixture(params=["system", "memory", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "system":
        return Disk(OsFileSystem(), str(tmp_path), process_holding)
    return memory_disk(faulty=request.param == "faulty")


def code_of(call: Callable[[], object]) -> int | None:
    """Make a call that must fail; give the system's code for it."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the code says which
        call()
    return caught.value.errno


def test_what_is_written_is_read_back_and_a_read_at_the_end_is_short(disk: Disk) -> None:
    file = disk.files.open(disk.at("a"), "create")
    write_all(file, 0, b"hello world")

    assert file.size() == 11
    assert file.read_at(6, 5) == b"world"
    assert file.read_at(6, 100) == b"world"
    assert file.read_at(11, 1) == b""
    assert file.read_at(5000, 10) == b""
    assert file.read_at(3, 0) == b""


def test_a_mode_says_whether_the_file_must_exist(disk: Disk) -> None:
    files = disk.files

    assert code_of(lambda: files.open(disk.at("a"), "read")) == errno.ENOENT
    assert code_of(lambda: files.open(disk.at("a"), "update")) == errno.ENOENT
    assert code_of(lambda: files.open(disk.at("no/a"), "create")) == errno.ENOENT
    assert disk.files.list_names(disk.folder) == []

    disk.put("a", b"kept")

    assert code_of(lambda: files.open(disk.at("a"), "create")) == errno.EEXIST
    assert code_of(lambda: files.open(disk.at("a/b"), "create")) == errno.ENOTDIR
    assert code_of(lambda: files.open(disk.folder, "update")) == errno.EISDIR
    assert disk.get("a") == b"kept"


def test_a_file_opened_for_reading_cannot_be_changed(disk: Disk) -> None:
    disk.put("a", b"kept")
    file = disk.files.open(disk.at("a"), "read")

    assert code_of(lambda: file.write_at(0, b"x")) == errno.EBADF
    assert code_of(lambda: file.truncate(0)) == errno.EINVAL
    assert disk.get("a") == b"kept"


def test_a_file_opened_for_update_keeps_its_bytes(disk: Disk) -> None:
    disk.put("a", b"hello world")
    file = disk.files.open(disk.at("a"), "update")

    write_all(file, 6, b"there, you")

    assert disk.get("a") == b"hello there, you"


def test_a_write_past_the_end_leaves_zeros_before_it(disk: Disk) -> None:
    disk.put("a", b"ab")
    file = disk.files.open(disk.at("a"), "update")

    write_all(file, 5, memoryview(b"xyz"))
    file.write_at(100, b"")

    assert disk.get("a") == b"ab\0\0\0xyz"


def test_truncate_cuts_and_extends_with_zeros(disk: Disk) -> None:
    disk.put("a", b"abcdef")
    file = disk.files.open(disk.at("a"), "update")

    file.truncate(2)
    file.truncate(4)

    assert disk.get("a") == b"ab\0\0"


def test_a_position_below_zero_is_refused(disk: Disk) -> None:
    file = disk.files.open(disk.at("a"), "create")

    assert code_of(lambda: file.read_at(-1, 1)) == errno.EINVAL
    assert code_of(lambda: file.write_at(-1, b"x")) == errno.EINVAL
    assert code_of(lambda: file.truncate(-1)) == errno.EINVAL


def test_a_closed_file_refuses_everything_but_another_close(disk: Disk) -> None:
    file = disk.files.open(disk.at("a"), "create")
    file.close()
    file.close()

    assert code_of(lambda: file.read_at(0, 1)) == errno.EBADF
    assert code_of(lambda: file.write_at(0, b"x")) == errno.EBADF
    assert code_of(file.size) == errno.EBADF


def test_a_closed_file_cannot_be_synced(disk: Disk) -> None:
    file = disk.files.open(disk.at("a"), "create")
    file.close()

    assert code_of(file.sync_data) == errno.EBADF


def test_only_the_system_has_descriptors(disk: Disk) -> None:
    file = disk.files.open(disk.at("a"), "create")

    assert (file.fileno() >= 0) == isinstance(disk.files, OsFileSystem)


def test_folders_and_their_parents_are_the_owners_alone(tmp_path: Path) -> None:
    files = OsFileSystem()
    files.make_dirs(str(tmp_path / "a" / "b" / "c"))
    files.make_dirs(str(tmp_path / "a" / "b" / "c"))
    (tmp_path / "file").touch()

    modes = [(tmp_path / each).stat().st_mode & 0o777 for each in ("a", "a/b", "a/b/c")]
    assert modes == [0o700] * 3
    with pytest.raises(FileExistsError):
        files.make_dirs(str(tmp_path / "file"))


def test_rename_replaces_the_target_and_open_files_stay_what_they_were(disk: Disk) -> None:
    disk.put("old", b"the old one")
    disk.put("new", b"the new one")
    old = disk.files.open(disk.at("old"), "read")

    disk.files.rename(disk.at("new"), disk.at("old"))

    assert disk.files.list_names(disk.folder) == ["old"]
    assert disk.get("old") == b"the new one"
    assert old.read_at(0, 100) == b"the old one"


def test_rename_moves_between_folders_and_moves_folders(disk: Disk) -> None:
    disk.files.make_dirs(disk.at("from"))
    disk.files.make_dirs(disk.at("to/empty"))
    disk.put("from/a", b"moved")

    disk.files.rename(disk.at("from/a"), disk.at("to/a"))
    disk.files.rename(disk.at("to"), disk.at("from"))

    assert disk.files.list_names(disk.folder) == ["from"]
    assert disk.files.list_names(disk.at("from")) == ["a", "empty"]
    assert disk.get("from/a") == b"moved"


def test_a_rename_that_makes_no_sense_is_refused(disk: Disk) -> None:
    files, at = disk.files, disk.at
    files.make_dirs(at("full/inner"))
    files.make_dirs(at("other"))
    disk.put("a", b"kept")

    assert code_of(lambda: files.rename(at("none"), at("b"))) == errno.ENOENT
    assert code_of(lambda: files.rename(at("a"), at("none/b"))) == errno.ENOENT
    assert code_of(lambda: files.rename(at("a"), at("full"))) == errno.EISDIR
    assert code_of(lambda: files.rename(at("full"), at("a"))) == errno.ENOTDIR
    assert code_of(lambda: files.rename(at("other"), at("full"))) == errno.ENOTEMPTY
    assert code_of(lambda: files.rename(at("full"), at("full/inner/x"))) == errno.EINVAL
    files.rename(at("a"), at("a"))
    assert files.list_names(disk.folder) == ["a", "full", "other"]


def test_folders_are_made_with_their_parents_and_listed_in_order(disk: Disk) -> None:
    files, at = disk.files, disk.at
    files.make_dirs(at("x/y"))
    files.make_dirs(at("x/y"))
    for name in ("b", "c", "a"):
        disk.put(f"x/{name}", b"")

    assert files.list_names(at("x")) == ["a", "b", "c", "y"]
    assert files.is_dir(at("x/y"))
    assert not files.is_dir(at("x/a"))
    assert files.exists(at("x/a"))
    assert files.exists(at("x"))
    assert not files.exists(at("x/z"))
    assert not files.exists(at("x/a/z"))
    assert code_of(lambda: files.list_names(at("z"))) == errno.ENOENT
    assert code_of(lambda: files.list_names(at("x/a"))) == errno.ENOTDIR
    assert code_of(lambda: files.make_dirs(at("x/a"))) == errno.EEXIST
    assert code_of(lambda: files.make_dirs(at("x/a/b"))) == errno.ENOTDIR


def test_a_removed_file_is_gone_by_name_and_still_readable_where_open(disk: Disk) -> None:
    disk.put("a", b"still here")
    file = disk.files.open(disk.at("a"), "read")

    disk.files.unlink(disk.at("a"))

    assert not disk.files.exists(disk.at("a"))
    assert file.read_at(0, 100) == b"still here"
    assert code_of(lambda: disk.files.unlink(disk.at("a"))) == errno.ENOENT


def test_only_an_empty_folder_is_removed(disk: Disk) -> None:
    files, at = disk.files, disk.at
    files.make_dirs(at("x"))
    disk.put("x/a", b"")

    assert code_of(lambda: files.remove_dir(at("x"))) == errno.ENOTEMPTY
    assert code_of(lambda: files.remove_dir(at("x/a"))) == errno.ENOTDIR
    assert code_of(lambda: files.unlink(at("x"))) == errno.EISDIR
    files.unlink(at("x/a"))
    files.remove_dir(at("x"))

    assert not files.exists(at("x"))
    assert code_of(lambda: files.remove_dir(at("x"))) == errno.ENOENT


def test_files_and_folders_can_be_synced(disk: Disk) -> None:
    file = disk.files.open(disk.at("a"), "create")

    file.sync_data()
    disk.files.sync_dir(disk.folder)

    assert code_of(lambda: disk.files.sync_dir(disk.at("none"))) == errno.ENOENT
    assert code_of(lambda: disk.files.sync_dir(disk.at("a"))) == errno.ENOTDIR


def test_a_second_lock_is_refused_with_the_holders_pid_until_the_first_is_released(
    disk: Disk,
) -> None:
    lock = disk.files.lock(disk.at("lock"))

    with pytest.raises(StoreLocked) as refused:
        disk.files.lock(disk.at("lock"))
    lock.release()
    again = disk.files.lock(disk.at("lock"))
    lock.release()

    assert refused.value.pid == os.getpid()
    assert refused.value.path == disk.at("lock")
    with pytest.raises(StoreLocked):
        disk.files.lock(disk.at("lock"))
    again.release()


def test_another_processs_lock_is_refused_with_its_pid_and_free_after_it(disk: Disk) -> None:
    with disk.held_elsewhere(disk.at("lock")) as pid:
        with pytest.raises(StoreLocked) as refused:
            disk.files.lock(disk.at("lock"))
        assert refused.value.pid == pid

    disk.files.lock(disk.at("lock")).release()


def test_the_holders_pid_replaces_a_longer_one_from_before(disk: Disk) -> None:
    disk.put("lock", b"12345678901\n")
    lock = disk.files.lock(disk.at("lock"))

    with pytest.raises(StoreLocked) as refused:
        disk.files.lock(disk.at("lock"))

    assert refused.value.pid == os.getpid()
    lock.release()


def test_a_lock_whose_file_says_nothing_is_refused_without_a_pid(disk: Disk) -> None:
    lock = disk.files.lock(disk.at("lock"))
    disk.files.open(disk.at("lock"), "update").truncate(0)

    with pytest.raises(StoreLocked) as refused:
        disk.files.lock(disk.at("lock"))

    assert refused.value.pid is None
    lock.release()


@given(data=st.binary(max_size=2000), offset=st.integers(0, 2000))
def test_write_all_goes_on_after_short_writes(data: bytes, offset: int) -> None:
    plan = FaultPlan(1, [Operation.WRITE], effect=Effect.SHORT, forever=True)
    file = FaultyFileSystem(MemoryFileSystem(), plan).open("/a", "create")

    write_all(file, offset, data)

    assert file.read_at(offset, len(data) + 1) == data
    assert plan.calls >= min(len(data), 2)


class _Stuck:
    """A file whose writes take nothing."""

    path = "/stuck"

    def write_at(self, offset: int, data: object) -> int:
        return 0


def test_write_all_gives_up_on_a_file_that_takes_nothing() -> None:
    assert code_of(lambda: write_all(_Stuck(), 0, b"x")) == errno.EIO  # type: ignore[arg-type]  # only write_at is called


def test_write_atomically_replaces_the_whole_file(disk: Disk) -> None:
    write_atomically(disk.files, disk.at("a"), b"a long first version", unique="1")
    write_atomically(disk.files, disk.at("a"), b"second", unique="2")

    assert disk.get("a") == b"second"
    assert disk.files.list_names(disk.folder) == ["a"]


def faulty_attempts() -> Iterator[FaultPlan]:
    """Return every fault that one call can meet, of each kind."""
    for error in (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EINTR):
        yield from every_fault(error=error)
    for effect in (Effect.SHORT, Effect.TORN):
        yield from every_fault([Operation.WRITE], effect=effect)


def test_write_atomically_leaves_old_or_new_and_no_leftovers_whatever_fails() -> None:
    outcomes = set()
    for plan in faulty_attempts():
        memory = MemoryFileSystem()
        write_atomically(memory, "/a", b"the old bytes", unique="0")
        files = FaultyFileSystem(memory, plan)

        failed = False
        try:
            write_atomically(files, "/a", b"the new bytes", unique="1")
        except OSError:
            failed = True

        assert memory.list_names("/") == ["a"]
        assert memory.snapshot()["/a"] in (b"the old bytes", b"the new bytes")
        assert failed or memory.crash().snapshot() == {"/a": b"the new bytes"}
        outcomes.add((failed, memory.snapshot()["/a"]))

    # A failed sync of the folder is the one failure that leaves the new bytes in place.
    assert outcomes == {
        (False, b"the new bytes"),
        (True, b"the old bytes"),
        (True, b"the new bytes"),
    }


def test_write_atomically_leaves_old_or_new_after_a_power_cut_at_any_call() -> None:
    for plan in every_fault(forever=True):
        memory = MemoryFileSystem()
        write_atomically(memory, "/a", b"the old bytes" * 100, unique="0")

        with suppress(OSError):
            write_atomically(FaultyFileSystem(memory, plan), "/a", b"new" * 500, unique="1")

        found = memory.crash().snapshot()
        assert found["/a"] in (b"the old bytes" * 100, b"new" * 500)


def test_the_starts_of_files_are_given_with_their_lengths(disk: Disk) -> None:
    for name, data in (("a", b""), ("b", b"short"), ("c", b"longer than asked for")):
        disk.put(name, data)

    starts = disk.files.read_starts(disk.folder, ["c", "a", "b"], 8)

    assert starts == [(21, b"longer t"), (0, b""), (5, b"short")]
    with pytest.raises(FileNotFoundError):
        disk.files.read_starts(disk.folder, ["a", "missing"], 8)
