"""A store's directory: the paths of its files, and small files replaced whole.

Invariant: a file that is replaced is the old one or the new one after a crash, never a mixture.

Thread: any.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from penstock.format.layout import QUARANTINE_NAME, index_name
from penstock.limits import ROOM_TRIED_BYTES
from penstock.store.vfs import TEMPORARY_SUFFIX, FileSystem, write_all, write_atomically


class StoreDirectory:
    """The directory of one store; see the module."""

    def __init__(self, files: FileSystem, path: str, random_bytes: Callable[[int], bytes]) -> None:
        self.files = files
        self.path = path
        self._random_bytes = random_bytes

    def unique(self) -> str:
        """Return a new unique part of a temporary name."""
        return self._random_bytes(8).hex()

    def file_path(self, name: str) -> str:
        """Return the path of a file of the store."""
        return f"{self.path}/{name}"

    def replace_file(self, name: str, data: bytes) -> None:
        """Write a small file atomically."""
        write_atomically(self.files, self.file_path(name), data, unique=self.unique())

    def replace_index(self, number: int, image: bytes) -> None:
        """Write a block's index file atomically; it checks itself, so no sync is needed."""
        path = self.file_path(index_name(number))
        write_atomically(self.files, path, image, unique=self.unique(), durable=False)

    def try_room(self) -> None:
        """Write a file of zeros, sync it and remove it; raise OSError if it has no room."""
        if self.files.free_bytes(self.path) < 2 * ROOM_TRIED_BYTES:
            # What is left may be just enough for somebody who makes room.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        path = self.file_path(f"room.{self.unique()}{TEMPORARY_SUFFIX}")
        file = self.files.open(path, "create")
        try:
            write_all(file, 0, bytes(ROOM_TRIED_BYTES))
            file.sync_data()
        finally:
            file.close()
            self.files.unlink(path)

    def quarantine(self, name: str, data: bytes) -> None:
        """Keep bytes aside for people, before they are removed from where they were."""
        folder = self.file_path(QUARANTINE_NAME)
        if not self.files.exists(folder):
            self.files.make_dirs(folder)
            self.files.sync_dir(self.path)
        write_atomically(
            self.files, os.path.join(folder, f"{name}-{self.unique()}"), data, unique=self.unique()
        )
