"""Long changes of a store in slices: removing very many messages, some at a time.

Each method returns a generator; a step of it takes the store's lock for a fraction of a
millisecond. Between two steps messages may come and go. What a change is to remove is settled when
it begins: what is stored later stays, unless a limit says otherwise.

Invariant: when a generator has ended, the store is as if all had been done in one go. The change is
durable with the next commit.

Thread: any, as for the store. `FileStore.in_slices` is the way in.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.store.engine import Engine
from penstock.store.interface import StoreConfig
from penstock.store.upkeep import limits
from penstock.subjects import SubjectFilter


class SlicedChanges:
    """Long changes of one store; see the module."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def purge(
        self, subjects: SubjectFilter | None = None, *, seq: int = 0, keep: int = 0
    ) -> Generator[None, None, int]:
        """Remove what `FileStore.purge` would; return how many messages."""
        return self._engine.removal.purge_in_slices(subjects, seq=seq, keep=keep)

    def compact(self, seq: int) -> Generator[None, None, int]:
        """Remove what `FileStore.compact` would; return how many messages."""
        limits.check_sequence(seq)
        return self._engine.removal.compact_in_slices(seq)

    def update_config(self, config: StoreConfig) -> Generator[None, None, None]:
        """Go over to another configuration at once, and apply its limits in slices."""
        self._engine.reconfigure(config)
        return self._enforce()

    def _enforce(self) -> Generator[None, None, None]:
        log = self._engine.log
        slices = limits.enforce_in_slices(log)
        is_done = False
        while not is_done:
            with log.lock:
                log.health.check_writable()
                is_done = next(slices, True) is True
            self._engine.durability.changed()
            yield
