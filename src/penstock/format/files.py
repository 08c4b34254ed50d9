"""Read-only folders and files, as an interface: the local disk, and small reads of any folder.

Readers take a `ReadableFolder`, so that they work on the local disk (`LocalFolder`), on the store's
file system, on a test's memory and on remote storage alike.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TypeAlias

FileStart: TypeAlias = tuple[int, bytes]
"""A file's length and its first bytes."""


class ReadableFile(Protocol):
    """An open file with positional reads."""

    path: str

    def fileno(self) -> int:
        """Return the system's descriptor, or -1 where reads must go through `read_at`."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def size(self) -> int:
        """Return the length of the file in bytes."""
        ...

    def close(self) -> None:
        """Close; closing twice does nothing."""
        ...


class ReadableFolder(Protocol):
    """A folder whose files can be listed and opened for reading."""

    path: str

    def list_names(self) -> list[str]:
        """Return the sorted names in the folder; raises FileNotFoundError if there is none."""
        ...

    def open(self, name: str) -> ReadableFile:
        """Open a file of the folder; raises FileNotFoundError."""
        ...


class LocalFile:
    """A local file opened for reading."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes, going on after short reads."""
        parts = []
        while size > 0:
            part = os.pread(self._fd, size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self) -> int:
        """Return the length."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class LocalFolder:
    """A folder on the local disk."""

    def __init__(self, path: str) -> None:
        self.path = path

    def list_names(self) -> list[str]:
        """Return the sorted names."""
        return sorted(os.listdir(self.path))

    def open(self, name: str) -> ReadableFile:
        """Open a file of the folder."""
        return LocalFile(os.path.join(self.path, name))


def read_file(folder: ReadableFolder, name: str) -> bytes | None:
    """Return a whole file of a folder, or None if there is no such file."""
    try:
        file = folder.open(name)
    except FileNotFoundError:
        return None
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def read_starts(folder: ReadableFolder, names: Sequence[str], size: int) -> list[FileStart]:
    """Return the length and up to `size` first bytes of each file; raises FileNotFoundError."""
    starts = []
    for name in names:
        file = folder.open(name)
        try:
            starts.append((file.size(), file.read_at(0, size)))
        finally:
            file.close()
    return starts
