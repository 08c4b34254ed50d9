"""A file system in memory that knows what was synced, and can lose power.

It behaves as the operating system's does, errors included, and both pass one suite of contract
tests. `crash` gives the file system that is found after a power cut at this moment; what was open
in the old one is dead from then on: every call raises `OSError`. Losing power changes nothing of
what the old one holds, so a test may ask it for many different survivors, also before the cut.

Safe from any thread.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Sequence
from random import Random

from penstock.errors import StoreLocked, UsageError
from penstock.store.system_calls import read_file_starts
from penstock.store.vfs import Buffer, File, FileStart, FileSystem, Lock, Mode
from penstock.testing.disk import FileImage, FolderImage, Image, Journal, Resize, Write
from penstock.testing.simulated_calls import SIMULATED_CALLS, new_descriptor


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class SimulatedFolder:
    """An open folder of a simulated file system, for compiled code that opens files in it."""

    calls = SIMULATED_CALLS

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = path
        self._files = files
        self._fd = new_descriptor(self)
        self._opened: list[File] = []

    def call_fd(self) -> int:
        """Return the descriptor that `calls` take."""
        return self._fd

    def call_open(self, name: str) -> int:
        """Open one of the folder's files to be read; return its descriptor."""
        file = self._files.open(f"{self.path}/{name}", "read")
        # A descriptor leads to its file only as long as something holds that.
        self._opened.append(file)
        return file.call_fd()


class SimulatedRoot:
    """Where the paths of a simulated file system begin, for compiled code that makes files."""

    calls = SIMULATED_CALLS

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._fd = new_descriptor(self)
        self._made: dict[int, File] = {}

    def call_fd(self) -> int:
        """Return the descriptor that `calls` take."""
        return self._fd

    def call_create(self, path: str) -> int:
        """Make a file; return its descriptor."""
        file = self._files.open(path, "create")
        self._made[file.call_fd()] = file
        return file.call_fd()

    def call_sync_folder(self, path: str) -> None:
        """Put a folder's entries on stable storage."""
        self._files.sync_dir(path)

    def opened(self, path: str, fd: int) -> File:
        """Return a file that was made, and hold it no more."""
        return self._made.pop(fd)


class MemoryFile:
    """An open file of a MemoryFileSystem."""

    calls = SIMULATED_CALLS

    def __init__(
        self, files: MemoryFileSystem, path: str, image: FileImage, *, writable: bool
    ) -> None:
        self.path = path
        self._files = files
        self._image = image
        self._writable = writable
        self._open = True
        self._fd = new_descriptor(self)

    def call_fd(self) -> int:
        """Return the descriptor that `calls` take."""
        return self._fd

    def fileno(self) -> int:
        """Return -1: the operating system knows nothing of it."""
        return -1

    # What compiled code calls through the descriptor.

    def call_read(self, offset: int, size: int) -> bytes:
        """Read as `pread` does."""
        return self.read_at(offset, size)

    def call_write(self, offset: int, data: bytes) -> int:
        """Write as `pwrite` does."""
        return self.write_at(offset, data)

    def call_sync(self) -> None:
        """Sync as `fdatasync` does."""
        self.sync_data()

    # What the store calls.

    def read_at(self, offset: int, size: int) -> bytes:
        """Read from the current bytes."""
        with self._files.guard:
            self._check(offset)
            return bytes(self._image.current[offset : offset + max(size, 0)])

    def write_at(self, offset: int, data: Buffer) -> int:
        """Write all of `data`."""
        copy = bytearray(data)
        with self._files.guard:
            self._check(offset, write_code=errno.EBADF)
            self._image.change(Write(offset, copy))
        return len(copy)

    def size(self) -> int:
        """Return the current length."""
        with self._files.guard:
            self._check()
            return len(self._image.current)

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros."""
        with self._files.guard:
            self._check(size, write_code=errno.EINVAL)
            self._image.change(Resize(size))

    def sync_data(self) -> None:
        """Put what was changed on stable storage."""
        with self._files.guard:
            self._check()
            self._image.sync()

    def lose_unsynced(self) -> None:
        """Forget that the unsynced changes are unsynced, as Linux does when a sync fails.

        They can still be read, and no later sync will put them on stable storage.
        """
        with self._files.guard:
            self._check()
            self._image.unsynced.clear()

    def close(self) -> None:
        """Close."""
        self._open = False

    def _check(self, position: int = 0, *, write_code: int = 0) -> None:
        self._files.check_power(self.path)
        if not self._open:
            raise _error(errno.EBADF, self.path)
        if position < 0:
            raise _error(errno.EINVAL, self.path)
        if write_code and not self._writable:
            raise _error(write_code, self.path)


class _MemoryLock:
    """A held lock of a MemoryFileSystem."""

    def __init__(self, files: MemoryFileSystem, image: FileImage) -> None:
        self._files = files
        self._image = image

    def release(self) -> None:
        with self._files.guard:
            # A lock that is released twice must not free a lock that was taken in between.
            if self._files.holders.get(self._image) is self:
                del self._files.holders[self._image]


class MemoryFileSystem:
    """See the module. `guard` and `holders` are for its own files and locks."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.holders: dict[FileImage, _MemoryLock] = {}
        self._root = FolderImage()
        self._journal = Journal()
        self._powered = True
        self.root = SimulatedRoot(self)

    # What the store calls.

    def open(self, path: str, mode: Mode) -> File:
        """Open a file."""
        with self.guard:
            folder, name = self._parent(path)
            image = folder.current.get(name)
            if mode == "create":
                if image is not None or not name:
                    raise _error(errno.EEXIST, path)
                image = FileImage()
                self._journal.change((folder, name, image))
            return MemoryFile(self, path, self._file(path), writable=mode != "read")

    def list_names(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        with self.guard:
            return sorted(self._folder(path).current)

    def read_starts(self, folder: str, names: Sequence[str], size: int) -> list[FileStart]:
        """Return the length and first bytes of each file."""
        with self.guard:
            self._folder(folder)
        return read_file_starts(SimulatedFolder(self, folder), names, size)

    def exists(self, path: str) -> bool:
        """Return True if a file or folder exists."""
        with self.guard:
            return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        """Return True if a folder exists."""
        with self.guard:
            return isinstance(self._find(path), FolderImage)

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents."""
        with self.guard:
            self.check_power(path)
            folder = self._root
            names = self._names(path)
            for position, name in enumerate(names):
                image = folder.current.get(name)
                if image is None:
                    image = FolderImage()
                    self._journal.change((folder, name, image))
                elif isinstance(image, FileImage):
                    last = position == len(names) - 1
                    raise _error(errno.EEXIST if last else errno.ENOTDIR, path)
                folder = image

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        with self.guard:
            source, source_name = self._parent(old)
            moved = self._image(old)
            target, target_name = self._parent(new)
            replaced = target.current.get(target_name)
            if moved is replaced:
                return
            if isinstance(moved, FolderImage) and isinstance(replaced, FileImage):
                raise _error(errno.ENOTDIR, new)
            if isinstance(replaced, FolderImage):
                if isinstance(moved, FileImage):
                    raise _error(errno.EISDIR, new)
                if replaced.current:
                    raise _error(errno.ENOTEMPTY, new)
            if self._names(new)[: len(self._names(old))] == self._names(old):
                raise _error(errno.EINVAL, new)
            self._journal.change((source, source_name, None), (target, target_name, moved))

    def unlink(self, path: str) -> None:
        """Remove a file."""
        with self.guard:
            self._file(path)
            folder, name = self._parent(path)
            self._journal.change((folder, name, None))

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder."""
        with self.guard:
            if self._folder(path).current:
                raise _error(errno.ENOTEMPTY, path)
            folder, name = self._parent(path)
            self._journal.change((folder, name, None))

    def sync_dir(self, path: str) -> None:
        """Put a folder's entries on stable storage."""
        with self.guard:
            self._journal.sync(self._folder(path))

    def free_bytes(self, path: str) -> int:
        """Return a bound that is never reached."""
        return sys.maxsize

    def lock(self, path: str) -> Lock:
        """Take a lock in this process's name."""
        return self.lock_as(path, os.getpid())

    # What tests call.

    def lock_as(self, path: str, pid: int) -> Lock:
        """Take a lock in the name of any process."""
        with self.guard:
            if self._find(path) is None:
                self.open(path, "create").close()
            image = self._file(path)
            if image in self.holders:
                text = bytes(image.current).strip()
                raise StoreLocked(path, int(text) if text.isdigit() else None)
            image.change(Resize(0))
            image.change(Write(0, bytearray(b"%d\n" % pid)))
            held = self.holders[image] = _MemoryLock(self, image)
            return held

    def crash(self, keep: Random | None = None) -> MemoryFileSystem:
        """Cut the power; give the file system as it is found afterwards.

        Without `keep`, what was not synced is lost, all of it. With it, some of the unsynced
        changes arrived all the same; one seed always gives the same survivor.
        """
        with self.guard:
            self._powered = False
            return self.survivor(keep)

    def survivor(self, keep: Random | None = None) -> MemoryFileSystem:
        """Return what `crash` would return, and keep the power on."""
        with self.guard:
            found = MemoryFileSystem()
            found._root = self._journal.survivor(self._root, keep)
            return found

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage a file on the medium: bit 0 is the lowest bit of its first byte."""
        with self.guard:
            image = self._file(path)
            if not 0 <= bit < 8 * len(image.current):
                raise UsageError(f"{path} has no bit {bit}")
            image.flip_bit(bit)

    def snapshot(self) -> dict[str, bytes]:
        """Return the current bytes of every file by its path."""
        with self.guard:
            found: dict[str, bytes] = {}
            self._collect("", self._root, found)
            return found

    def check_power(self, path: str) -> None:
        """Raise unless there is power."""
        if not self._powered:
            raise OSError(errno.EIO, "the machine has lost power", path)

    # Finding things.

    @staticmethod
    def _names(path: str) -> list[str]:
        return [name for name in os.path.normpath(path).split("/") if name not in ("", ".")]

    def _find(self, path: str) -> Image | None:
        try:
            return self._image(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _image(self, path: str) -> Image:
        self.check_power(path)
        image: Image = self._root
        for name in self._names(path):
            if isinstance(image, FileImage):
                raise _error(errno.ENOTDIR, path)
            if name not in image.current:
                raise _error(errno.ENOENT, path)
            image = image.current[name]
        return image

    def _folder(self, path: str) -> FolderImage:
        image = self._image(path)
        if isinstance(image, FileImage):
            raise _error(errno.ENOTDIR, path)
        return image

    def _file(self, path: str) -> FileImage:
        image = self._image(path)
        if isinstance(image, FolderImage):
            raise _error(errno.EISDIR, path)
        return image

    def _parent(self, path: str) -> tuple[FolderImage, str]:
        names = self._names(path)
        return self._folder("/".join(names[:-1])), names[-1] if names else ""

    def _collect(self, path: str, folder: FolderImage, found: dict[str, bytes]) -> None:
        for name, image in sorted(folder.current.items()):
            if isinstance(image, FileImage):
                found[f"{path}/{name}"] = bytes(image.current)
            else:
                self._collect(f"{path}/{name}", image, found)
