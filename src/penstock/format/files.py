"""Read-only files as the readers of this package see them.

A reader is given a `ReadableFolder`, so that it works on the local disk, on a test's memory file
system and on a remote one alike. `LocalFolder` is the local disk.
"""

from __future__ import annotations

import os
from typing import Protocol


class ReadableFile(Protocol):
    """An open file with positional reads."""

    path: str

    def fileno(self) -> int:
        """Give the system's descriptor, or -1 where reads must go through `read_at`."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def size(self) -> int:
        """Give the length of the file in bytes."""
        ...

    def close(self) -> None:
        """Close; closing twice does nothing."""
        ...


class ReadableFolder(Protocol):
    """A folder whose files can be listed and opened for reading."""

    path: str

    def list_names(self) -> list[str]:
        """Give the sorted names in the folder; raises FileNotFoundError if there is none."""
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
        """Give the descriptor."""
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
        """Give the length."""
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
        """Give the sorted names."""
        return sorted(os.listdir(self.path))

    def open(self, name: str) -> ReadableFile:
        """Open a file of the folder."""
        return LocalFile(os.path.join(self.path, name))
