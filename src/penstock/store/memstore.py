"""The memory store: the same stream, kept in memory only.

It is the file store's engine over files that are memory, so that both obey one contract; what is
stored counts as durable at once, and messages count as the reference server counts those that it
keeps in memory (16 bytes beside subject, headers and payload).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.clock import Clock, SystemClock
from penstock.store.engine import Engine
from penstock.store.filestore import FileStore
from penstock.store.interface import DurableCallback, StoreConfig
from penstock.store.ram_files import RamFileSystem
from penstock.store.recovery import recover


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
        return cls(engine, files.lock(""), recover(engine))

    def checkpoint(self) -> None:
        """Nothing outlives the process, so there is nothing to sum up."""
