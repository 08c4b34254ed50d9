"""The kinds of store that one contract holds for, and how each is opened and opened again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from penstock.format.envelope import StoreKey
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.memstore import MemoryStore
from penstock.store.vfs import FileSystem, OsFileSystem
from penstock.testing.clock import FakeClock
from penstock.testing.filesystem import MemoryFileSystem
from tests.models.store import IN_FILES, IN_MEMORY, Counting, StoreModel

KINDS = ("disk", "simulated disk", "memory")
KEY = StoreKey(b"the contract's own secret")


class StoreHouse:
    """Opens stores of one kind, and stops those that a test leaves open.

    On the disk they have their threads; on the simulated disk they have none.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.clock = FakeClock()
        self.path = str(folder / "orders")
        self.files: FileSystem = OsFileSystem() if kind == "disk" else MemoryFileSystem()
        self.durable: list[int] = []
        self._config = StoreConfig(name="orders", block_bytes=4096)
        self._random = Random(7)
        self._open: list[FileStore] = []

    @property
    def is_lasting(self) -> bool:
        """Whether a store can be opened again."""
        return self.kind != "memory"

    @property
    def counting(self) -> Counting:
        """How this kind counts bytes."""
        return IN_FILES if self.is_lasting else IN_MEMORY

    def model(self, **config: Any) -> StoreModel:
        """Return a model of the store that `open` gives."""
        return StoreModel(StoreConfig(name="orders", block_bytes=4096, **config), self.counting)

    def open(self, **config: Any) -> FileStore:
        """Open the store; small blocks unless told otherwise."""
        self._config = StoreConfig(**{"name": "orders", "block_bytes": 4096, **config})
        return self._opened()

    def _opened(self) -> FileStore:
        if not self.is_lasting:
            store: FileStore = MemoryStore.create(
                self._config,
                clock=self.clock,
                random_bytes=self._random.randbytes,
                on_durable=self.durable.append,
            )
        else:
            store = FileStore.open(
                self.path,
                self._config,
                files=self.files,
                clock=self.clock,
                random_bytes=self._random.randbytes,
                key=KEY,
                threaded=self.kind == "disk",
                on_durable=self.durable.append,
            )
        self._open.append(store)
        return store

    def open_again(
        self, store: FileStore, meanwhile: Callable[[], object] | None = None, **config: Any
    ) -> FileStore:
        """Stop a store and open it again; one in memory just goes on, with the new limits."""
        if config:
            self._config = StoreConfig(**{"name": "orders", "block_bytes": 4096, **config})
        if not self.is_lasting:
            if meanwhile is not None:
                meanwhile()
            store.update_config(self._config)
            return store
        store.stop()
        if meanwhile is not None:
            meanwhile()
        return self._opened()

    def lose_files(self, *ends: str) -> None:
        """Remove the files of a stopped store whose names end like this."""
        for name in self.files.list_names(self.path):
            if ends and name.endswith(ends):
                self.files.unlink(f"{self.path}/{name}")

    def lose_power(self) -> None:
        """Cut the power of a simulated disk; what was open is dead."""
        assert isinstance(self.files, MemoryFileSystem)
        self.files = self.files.crash()
        self._open.clear()

    def file_bytes(self) -> dict[str, bytes]:
        """Return the store's files; one that its threads remove meanwhile may be missing."""
        found = {}
        for name in self.files.list_names(self.path):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                file = self.files.open(f"{self.path}/{name}", "read")
                found[name] = file.read_at(0, file.size())
                file.close()
        return found

    def disk_bytes(self) -> int:
        """Return the length of all block files."""
        return sum(len(data) for name, data in self.file_bytes().items() if ".blk" in name)

    def close(self) -> None:
        """Stop what is still open."""
        for store in self._open:
            store.stop()
