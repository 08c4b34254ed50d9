"""Files as the store sees them: two protocols, the operating system's version, and careful writes.

The store never calls `os` or `open` itself: it is given a `FileSystem`, so that tests can forget
what was not synced, tear writes and fail any call. Invariant: every method either does what
it says or raises `OSError`; `write_at` may be short, as the system's own call may, and only
`write_all` loops; nothing is retried after a failed sync.

Safe from any thread; one `File` object is used by one writer at a time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from penstock.errors import StoreLocked
from penstock.store.system_calls import (
    SYSTEM_CALLS,
    SYSTEM_ROOT,
    SystemCalls,
    read_file_starts,
)

TEMPORARY_SUFFIX = ".tmp"
"""What ends the name of a file that is not yet what it will be."""

Mode: TypeAlias = Literal["read", "update", "create"]
"""`read`: must exist. `update`: read and write, must exist. `create`: read and write, must not."""

Buffer: TypeAlias = bytes | bytearray | memoryview

FileStart: TypeAlias = tuple[int, bytes]
"""A file's length and its first bytes."""


class File(Protocol):
    """An open file with positional reads and writes."""

    path: str

    @property
    def calls(self) -> SystemCalls:
        """The system calls with which compiled code works on this file."""
        ...

    def call_fd(self) -> int:
        """Return the descriptor that `calls` take, or -1 if the file has only these methods."""
        ...

    def fileno(self) -> int:
        """Return the operating system's own descriptor, or -1 if there is none."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, offset: int, data: Buffer) -> int:
        """Write some prefix of `data` at `offset`; return how many bytes it was."""
        ...

    def size(self) -> int:
        """Return the length of the file in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) to `size` bytes."""
        ...

    def sync_data(self) -> None:
        """Put the file's bytes and its length on stable storage."""
        ...

    def close(self) -> None:
        """Close; closing twice does nothing."""
        ...


class Root(Protocol):
    """Where the paths of a file system begin, for compiled code that makes files."""

    @property
    def calls(self) -> SystemCalls:
        """The system calls with which files are made."""
        ...

    def call_fd(self) -> int:
        """Return the descriptor that `calls` take."""
        ...

    def opened(self, path: str, fd: int) -> File:
        """Return a file that `calls` have made, which has the descriptor from now on."""
        ...


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let go; letting go twice does nothing."""
        ...


class FileSystem(Protocol):
    """The calls that the store makes, and no others."""

    @property
    def root(self) -> Root | None:
        """Where compiled code makes files; None if only `open` makes any."""
        ...

    def open(self, path: str, mode: Mode) -> File:
        """Open a file; raises FileNotFoundError or FileExistsError as the mode says."""
        ...

    def list_names(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        ...

    def read_starts(self, folder: str, names: Sequence[str], size: int) -> list[FileStart]:
        """Return the length and up to `size` first bytes of each of a folder's files."""
        ...

    def exists(self, path: str) -> bool:
        """Return True if a file or folder exists."""
        ...

    def is_dir(self, path: str) -> bool:
        """Return True if a folder exists."""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents, private to the owner; an existing one is fine."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def sync_dir(self, path: str) -> None:
        """Put a folder's entries (creations, renames, removals) on stable storage."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return how much more a folder's disk takes of us."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the lock file exclusively, or raise StoreLocked with the holder's pid."""
        ...


class _OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    calls = SYSTEM_CALLS

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def call_fd(self) -> int:
        return self._fd

    def fileno(self) -> int:
        return self._fd

    def read_at(self, offset: int, size: int) -> bytes:
        parts = []
        while size > 0:
            part = os.pread(self._fd, size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write_at(self, offset: int, data: Buffer) -> int:
        return os.pwrite(self._fd, data, offset)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync_data(self) -> None:
        if self._fd < 0:
            # The system's call would answer with ValueError before it even asks the system.
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class _OsRoot:
    """Where the operating system's paths begin."""

    calls = SYSTEM_CALLS

    def call_fd(self) -> int:
        return SYSTEM_ROOT

    def opened(self, path: str, fd: int) -> File:
        return _OsFile(path, fd)


class _OsLock:
    """A lock file held with flock; the system frees it if the process dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


_OPEN_FLAGS: dict[str, int] = {
    "read": os.O_RDONLY,
    "update": os.O_RDWR,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


class OsFileSystem:
    """The operating system's file system."""

    root: Root = _OsRoot()

    def open(self, path: str, mode: Mode) -> File:
        """Open a file, closed on exec, private to the owner when created."""
        return _OsFile(path, os.open(path, _OPEN_FLAGS[mode] | os.O_CLOEXEC, 0o600))

    def list_names(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        return sorted(os.listdir(path))

    def read_starts(self, folder: str, names: Sequence[str], size: int) -> list[FileStart]:
        """Return the length and first bytes of each file: a store of many blocks opens by it."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        opened = _OsFile(folder, os.open(folder, flags))
        try:
            return read_file_starts(opened, names, size)
        finally:
            opened.close()

    def exists(self, path: str) -> bool:
        """Return True if a file or folder exists."""
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        """Return True if a folder exists."""
        return os.path.isdir(path)

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents, all for the owner alone."""
        # `os.makedirs` would let others read the parents.
        parent = os.path.dirname(path)
        if parent and not os.path.exists(parent):
            self.make_dirs(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        """Put a folder's entries on stable storage."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        """Return how much more a folder's disk takes of us."""
        found = os.statvfs(path)
        return found.f_frsize * (found.f_bavail if os.geteuid() else found.f_bfree)

    def lock(self, path: str) -> Lock:
        """Hold `path` with flock and write our pid into it, for the error of a refused process."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(fd, 32, 0).strip()
            os.close(fd)
            raise StoreLocked(path, int(text) if text.isdigit() else None) from None
        except OSError:
            os.close(fd)
            raise
        text = b"%d\n" % os.getpid()
        os.pwrite(fd, text, 0)
        if os.fstat(fd).st_size > len(text):
            # A file that is cut to nothing and written again makes some file systems wait.
            os.ftruncate(fd, len(text))
        return _OsLock(fd)


def find_lock_holder(path: str) -> int | None:
    """Return the pid of the process that holds a lock file, or None; the lock is not touched.

    If the system does not list its locks, the process named in the file counts if it is alive.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        text = os.pread(fd, 32, 0).strip()
        status = os.fstat(fd)
    finally:
        os.close(fd)
    pid = int(text) if text.isdigit() else 0
    try:
        with open("/proc/locks") as table:
            held = any(_is_lock_on(line.split(), status, pid) for line in table)
    except FileNotFoundError:
        held = pid > 0 and _is_alive(pid)
    return pid if held else None


def _is_lock_on(fields: list[str], status: os.stat_result, pid: int) -> bool:
    # "1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> <first> <last>". Some file systems
    # list another device than stat gives; then the pid must agree.
    if fields[1] != "FLOCK":
        return False
    device, _, inode = fields[5].rpartition(":")
    expected = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return int(inode) == status.st_ino and (device == expected or int(fields[4]) == pid)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def starts_one_by_one(
    files: FileSystem, folder: str, names: Sequence[str], size: int
) -> list[FileStart]:
    """Do what `read_starts` does with a file system's other calls."""
    starts = []
    for name in names:
        file = files.open(f"{folder}/{name}", "read")
        try:
            starts.append((file.size(), file.read_at(0, size)))
        finally:
            file.close()
    return starts


def write_all(file: File, offset: int, data: Buffer) -> None:
    """Write every byte of `data`, going on after short writes; a write of nothing is an error."""
    view = memoryview(data)
    while view:
        written = file.write_at(offset, view)
        if written <= 0:
            raise OSError(errno.EIO, "the file system wrote nothing", file.path)
        offset += written
        view = view[written:]


def write_atomically(
    files: FileSystem, path: str, data: Buffer, *, unique: str, durable: bool = True
) -> None:
    """Replace a small file so that a crash leaves the old one or the new one, whole.

    `unique` makes the temporary name; the caller draws it from its own source of randomness. On
    failure the temporary file is removed and the old file is untouched. A file that is derived
    and checks itself need not be durable: after a power cut it may be missing or cut off.
    """
    folder = os.path.dirname(path)
    temporary = f"{path}.{unique}{TEMPORARY_SUFFIX}"
    try:
        file = files.open(temporary, "create")
        try:
            write_all(file, 0, data)
            if durable:
                file.sync_data()
        finally:
            file.close()
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    if durable:
        files.sync_dir(folder)


REMOVING_TRIES = 10
"""How often a folder is looked at again that was not empty when it had been emptied."""


def remove_tree(files: FileSystem, path: str) -> None:
    """Remove a folder and all that is in it.

    A file that another thread creates meanwhile goes too: the folder is listed again a few times.
    """
    for tries_left in reversed(range(REMOVING_TRIES)):
        for name in files.list_names(path):
            inner = os.path.join(path, name)
            if files.is_dir(inner):
                remove_tree(files, inner)
            else:
                files.unlink(inner)
        try:
            files.remove_dir(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not tries_left:
                raise
        else:
            return
