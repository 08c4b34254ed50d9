"""Reopening a store after a failed write, for the owner of the store.

The owner has the directory opened again in another thread (`reopen`), and goes on in its own with
what that has opened (`adopt`). On a full disk the store then takes no messages (`refuse_messages`)
until there is room (`try_room`), but messages can be removed.

Invariant: the store can be read all the time, and nothing that it acknowledged is given up.

Thread: the owner's, except `reopen` and `try_room`.
"""

from __future__ import annotations

from penstock.store.engine import Engine
from penstock.store.filestore import FileStore
from penstock.store.interface import RecoveryReport
from penstock.store.log.fast_scan import Scanner


class Reopening:
    """What can be done about a store that has failed; see the module."""

    def __init__(self, store: FileStore) -> None:
        self._store = store

    @property
    def has_failed(self) -> bool:
        """Whether nothing can be written or removed before it is reopened."""
        return self._store.engine.log.health.failure is not None

    def reopen(self) -> tuple[Engine, RecoveryReport]:
        """Open what is on the disk again; raise what opening a store raises. Thread: any."""
        return self._store.engine.reopen()

    def adopt(self, opened: tuple[Engine, RecoveryReport]) -> None:
        """Go on with what `reopen` has opened; appenders and scanners are valid no more."""
        self._store.adopt(opened)

    def refuse_messages(self, reason: str | None) -> None:
        """Take no messages for a reason, while others can be removed; None: take them again."""
        self._store.engine.log.health.refuse_messages(reason)

    def try_room(self) -> None:
        """Write as much as it takes to go on after a full disk; raise OSError. Thread: any.

        What was removed is given back first: there may have been no room for that, either.
        """
        engine = self._store.engine
        engine.compaction.reclaim_if_open()
        engine.log.directory.try_room()


def renew(scanner: Scanner, store: FileStore) -> None:
    """Have a scanner that is not in use look at a store as it is now."""
    scanner.follow(store.engine.log, store.engine.durability)
