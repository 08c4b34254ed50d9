"""Folders of block files on the local disk, or on any file system that pyarrow knows.

A folder is named by a path or a URI (`file:`, `s3:`, `gs:`, `hdfs:` and so on). The driver opens it
to plan, and every task opens it again, so the name must mean the same everywhere. Read-only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pyarrow import fs

from penstock.errors import UsageError
from penstock.format.files import LocalFolder, ReadableFile, ReadableFolder
from penstock.format.layout import TEMPORARY_SUFFIX, is_stream_directory
from penstock.limits import STORE_DEPTH_MAX

MESSAGES_NAME = "msgs"
"""The folder of a stream's blocks, below the stream's own folder."""


class RemoteFile:
    """A file of a pyarrow file system."""

    def __init__(self, files: fs.FileSystem, path: str) -> None:
        self.path = path
        self._file: Any = files.open_input_file(path)

    def fileno(self) -> int:
        """Return -1: a remote file has no descriptor."""
        return -1

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        left = max(self.size() - offset, 0)
        data: bytes = self._file.read_at(min(size, left), offset)
        return data

    def size(self) -> int:
        """Return the length."""
        length: int = self._file.size()
        return length

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RemoteFolder:
    """A folder of a pyarrow file system."""

    def __init__(self, files: fs.FileSystem, path: str) -> None:
        self.path = path
        self._files = files

    def list_names(self) -> list[str]:
        """Return the sorted names; raise FileNotFoundError if there is no such folder."""
        return sorted(each.base_name for each in self._files.get_file_info(self._selector()))

    def _selector(self) -> fs.FileSelector:
        return fs.FileSelector(self.path)

    def open(self, name: str) -> ReadableFile:
        """Return a file of the folder, open; raise FileNotFoundError if there is none."""
        return RemoteFile(self._files, f"{self.path}/{name}")


def open_folder(place: str) -> ReadableFolder:
    """Return the folder of blocks at a path or URI; raise UsageError if there is none."""
    folder, names = _looked_at(place)
    if MESSAGES_NAME in names:
        return open_folder(f"{place.rstrip('/')}/{MESSAGES_NAME}")
    return folder


def folder_at(place: str) -> ReadableFolder:
    """Return the folder at a path or URI, whether it exists or not; raise UsageError for a bad
    URI."""
    if "://" not in place:
        # Spark's catalog writes a local path with its scheme, and with one slash.
        return LocalFolder(place.removeprefix("file:"))
    try:
        files, path = fs.FileSystem.from_uri(place)
    except (ValueError, OSError) as error:
        raise UsageError(f"{place}: {error}") from None
    is_local = isinstance(files, fs.LocalFileSystem)
    return LocalFolder(path) if is_local else RemoteFolder(files, path)


def _looked_at(place: str) -> tuple[ReadableFolder, list[str]]:
    folder = folder_at(place)
    try:
        return folder, folder.list_names()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{place}: no such folder") from None
    except OSError as error:
        raise UsageError(f"{place}: {error}") from None


def find_stream_folders(place: str) -> list[str]:
    """Return the folders of streams at or below a path: a server's store, or a part of it.

    Raise UsageError if there is no such folder, or no stream in it.
    """
    found = list(_streams_below(place.rstrip("/") or "/", _looked_at(place)[1], STORE_DEPTH_MAX))
    if not found:
        raise UsageError(f"{place}: no stream is here")
    return found


def _streams_below(place: str, names: list[str], depth: int) -> Iterator[str]:
    if MESSAGES_NAME in names or is_stream_directory(names):
        yield place
    elif depth:
        for name in names:
            # A name that begins with a dot is being removed; one with this suffix was
            # never finished.
            if not name.startswith(".") and not name.endswith(TEMPORARY_SUFFIX):
                with contextlib.suppress(UsageError):
                    below = f"{place.rstrip('/')}/{name}"
                    yield from _streams_below(below, _looked_at(below)[1], depth - 1)


def stream_name(place: str) -> str:
    """Return the stream's name, taken from the name of its folder."""
    parts = [part for part in place.split("/") if part]
    if len(parts) > 1 and parts[-1] == MESSAGES_NAME:
        parts.pop()
    return parts[-1] if parts else "stream"
