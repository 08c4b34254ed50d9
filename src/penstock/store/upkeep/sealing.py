"""Sealing blocks: the index of a block that is full is written once its bytes are on disk.

Invariant: an index is written only after every byte of its block was synced, and a block is let go
of only after its index was written.

Thread: any, never under the store's lock.
"""

from __future__ import annotations

import threading

from penstock.store.commit.commit import DiskWriter
from penstock.store.log.log import Log, writing


class Sealing:
    """Writes the indexes of one store's full blocks; see the module."""

    def __init__(self, log: Log, disk: DiskWriter, rewriting: threading.RLock) -> None:
        self._log = log
        self._disk = disk
        self._rewriting = rewriting
        self.sealed_since_checkpoint = 0

    def write_due_indexes(self) -> None:
        """Write the index files of sealed blocks whose bytes are all on disk."""
        log = self._log
        with log.lock:
            due = [
                block
                for block in log.unsealed_index
                if block.active not in log.unwritten and not self._disk.holds(writing(block))
            ]
        for block in due:
            # One at a time, and only those: a rewrite or a checkpoint that waits must come in
            # between, also when blocks fill faster than they can be sealed.
            with self._rewriting:
                if log.health.failure is not None:
                    return
                if block not in log.unsealed_index:
                    continue
                log.directory.replace_index(block.number, writing(block).index.encode())
                with log.lock:
                    log.settle_sealed(block)
                    self.sealed_since_checkpoint += 1

    def count_anew(self) -> None:
        """Count the sealed blocks from 0: a checkpoint covers those that were counted."""
        self.sealed_since_checkpoint = 0
