"""The memory store: the same stream, kept in memory only.

`MemoryStore` is the file store over `RamFileSystem`, whose files are byte arrays, so that both
stores obey one contract. Syncing does nothing and the files are gone with the process: the test kit
has a file system that simulates crashes.

Invariant: what is stored counts as durable at once. Messages count as the reference server counts
those that it keeps in memory: 16 bytes beside subject, headers and payload.

Thread: any, as for the file store.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence

from penstock.clock import Clock, SystemClock
from penstock.store.engine import Engine
from penstock.store.filestore import FileStore
from penstock.store.interface import DurableCallback, StoreConfig
from penstock.store.system_calls import SYSTEM_CALLS
from penstock.store.vfs import Buffer, File, FileStart, Lock, Mode, Root, starts_one_by_one


class _RamFile:
    """An open view of a file in memory."""

    __slots__ = ("_data", "path")

    calls = SYSTEM_CALLS
    """Unused: the bytes belong to the interpreter, and no descriptor leads to them."""

    def __init__(self, path: str, data: bytearray) -> None:
        self.path = path
        self._data = data

    def call_fd(self) -> int:
        return -1

    def fileno(self) -> int:
        return -1

    def read_at(self, offset: int, size: int) -> bytes:
        # No view of the bytes: while there is one, a writer in another thread could not grow them.
        return bytes(self._data[offset : offset + size])

    def write_at(self, offset: int, data: Buffer) -> int:
        view = memoryview(data)
        if offset > len(self._data):
            self._data.extend(bytes(offset - len(self._data)))
        self._data[offset : offset + len(view)] = view
        return len(view)

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        if size < len(self._data):
            del self._data[size:]
        else:
            self._data.extend(bytes(size - len(self._data)))

    def sync_data(self) -> None:
        pass

    def close(self) -> None:
        pass


class _NoLock:
    """No other process can reach this memory."""

    def release(self) -> None:
        pass


class RamFileSystem:
    """Files in memory; see the module."""

    root: Root | None = None

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}

    def open(self, path: str, mode: Mode) -> File:
        """Open a file."""
        data = self._files.get(path)
        if mode == "create":
            if data is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            data = self._files[path] = bytearray()
        elif data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return _RamFile(path, data)

    def list_names(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        start = path.rstrip("/") + "/"
        return sorted(
            {name[len(start) :].partition("/")[0] for name in self._files if name.startswith(start)}
        )

    def read_starts(self, folder: str, names: Sequence[str], size: int) -> list[FileStart]:
        """Return the length and first bytes of each file."""
        return starts_one_by_one(self, folder, names, size)

    def exists(self, path: str) -> bool:
        """Return True if a file or folder exists."""
        return path in self._files or self.is_dir(path)

    def is_dir(self, path: str) -> bool:
        """Return True if a file lies below."""
        return any(name.startswith(path.rstrip("/") + "/") for name in self._files)

    def make_dirs(self, path: str) -> None:
        """Folders come with their files."""

    def rename(self, old: str, new: str) -> None:
        """Replace a file by another."""
        if old not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._files[new] = self._files.pop(old)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        if self._files.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def remove_dir(self, path: str) -> None:
        """Folders go with their files."""

    def sync_dir(self, path: str) -> None:
        """Nothing to sync."""

    def free_bytes(self, path: str) -> int:
        """Return a bound that is never reached."""
        return sys.maxsize

    def lock(self, path: str) -> Lock:
        """No other process can reach this memory."""
        return _NoLock()


class MemoryStore(FileStore):
    """A stream in memory; see the module. `create` is the way in."""

    @classmethod
    def create(
        cls,
        config: StoreConfig | None = None,
        *,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        on_durable: DurableCallback | None = None,
    ) -> MemoryStore:
        """Make an empty store."""
        files = RamFileSystem()
        engine = Engine(
            "/memory",
            config or StoreConfig(),
            files=files,
            clock=clock or SystemClock(),
            random_bytes=random_bytes,
            key=None,
            threaded=False,
            volatile=True,
            on_durable=on_durable,
            on_damage=None,
        )
        return cls(engine, files.lock(""), engine.recover())

    def checkpoint(self) -> None:
        """Nothing outlives the process, so there is nothing to sum up."""
